"""STUN (RFC 8489) on real sockets: the answers of servers, and the driver of ``NatTraversal``.

STUN shares the socket of a node's channels, as it must: another socket would have another mapping.
The first byte of a datagram tells the two apart (RFC 7983): it is 0 to 3 in STUN, and has the
version in its upper half, which is never 0, in all others.

A connectivity check is a Binding indication. Its USERNAME has the ids of both nodes, the one that
checks last, and its MESSAGE-INTEGRITY the token of the attempt as key. It gets no answer: the
handshake of the channel goes the way that it has opened.

This module loads ``aioice``, whose codec does no I/O. So it is itself loaded only by servers that
answer STUN, and by clients that hear of such a server.
"""

import logging
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, cast
from urllib.parse import urlsplit

import trio
from aioice import stun

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.nat import (
    LOOK,
    BindingRequest,
    CheckCredential,
    ConnectivityCheck,
    NatTraversal,
    PathSample,
)
from sphtp.core.timers import earliest
from sphtp.core.token_bucket import TokenBucket
from sphtp.errors import RemoteError, UnreachableError, untrusted
from sphtp.shell.addresses import resolve
from sphtp.shell.config import SECRETS
from sphtp.shell.driver import Wakeup
from sphtp.shell.lifetime import running
from sphtp.shell.registration import Registration
from sphtp.shell.udp import UdpSocket

LAST_STUN: Final = 3
"""The highest first byte of a STUN message."""

LARGEST_STUN: Final = 548
"""The largest STUN message that is read, in bytes (RFC 8489, section 6.1)."""

TRANSACTION_SIZE: Final = 12
BATCH: Final = 256

log: Final = logging.getLogger("sphtp.client")


# Codec


@untrusted
def decode_stun_untrusted(datagram: bytes) -> stun.Message:
    """Decode a STUN message. The caller checks its integrity."""
    if len(datagram) > LARGEST_STUN or datagram[4:8] != stun.COOKIE.to_bytes(4, "big"):
        raise RemoteError(f"{len(datagram)} bytes are no STUN message")
    try:
        return stun.parse_message(datagram)
    except (ValueError, struct.error) as error:
        raise RemoteError(f"not a STUN message: {error}") from error


def answer_binding_untrusted(datagram: bytes, source: Address) -> bytes | None:
    """Return the answer to a Binding request, which has its source address; None for others.

    Raises ``RemoteError``.
    """
    message = decode_stun_untrusted(datagram)
    if (message.message_method, message.message_class) != (stun.Method.BINDING, stun.Class.REQUEST):
        return None
    attributes = {"XOR-MAPPED-ADDRESS": _plain(source)}
    answer = stun.Message(
        stun.Method.BINDING, stun.Class.RESPONSE, message.transaction_id, attributes
    )
    return bytes(answer)


def _plain(address: Address) -> Address:
    """Return an IPv4 address as such if it came to a socket for both families."""
    host = ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, IPv6Address) else None
    return str(mapped or host), address[1]


def _encode_request(request: BindingRequest) -> bytes:
    transaction = request.transaction.to_bytes(TRANSACTION_SIZE, "big")
    message = stun.Message(stun.Method.BINDING, stun.Class.REQUEST, transaction)
    # It makes the request as long as its answer, within four bytes.
    message.add_fingerprint()
    return bytes(message)


def _encode_check(own: int, credential: CheckCredential) -> bytes:
    attributes = {"USERNAME": f"{credential.peer:08x}:{own:08x}"}
    message = stun.Message(stun.Method.BINDING, stun.Class.INDICATION, attributes=attributes)
    message.add_message_integrity(_key(credential.token))
    return bytes(message)


def _key(token: int) -> bytes:
    return f"{token:016x}".encode()


# Servers


@asynccontextmanager
async def answering(
    host: str, port: int, rate: TokenBucket, counters: ControlCounters
) -> AsyncIterator[None]:
    """Answer Binding requests at a UDP port for the length of the block.

    An answer is a few bytes longer than the requests of clients, and none leaves beyond the rate: a
    forged source address is of no use to anybody. Raises ``UdpAddressError``.
    """
    with UdpSocket(host, port) as udp:
        async with running(partial(_answer, udp, rate, counters)):
            yield


async def _answer(udp: UdpSocket, rate: TokenBucket, counters: ControlCounters) -> None:
    while True:
        await udp.wait_readable()
        now = trio.current_time()
        for row in udp.receive_batch(BATCH):
            for datagram in row.datagrams:
                if not rate.take(now):
                    counters.add(Count.OVER_STUN_PER_SECOND)
                    continue
                try:
                    answer = answer_binding_untrusted(datagram, row.address)
                except RemoteError:
                    counters.add(Count.MALFORMED)
                    continue
                if answer is not None:
                    _send(udp, row.address, answer)
        await trio.lowlevel.checkpoint()


def _send(udp: UdpSocket, address: Address, datagram: bytes) -> None:
    # Whatever has no room is repeated: by a client, or with the next check.
    udp.send(deque([Datagrams.of(address, datagram)]))


# Clients


class NatDriver:
    """Drives the ``NatTraversal`` of a client, on the socket of its node.

    ``flush`` sends what a channel has to send.
    """

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        flush: Callable[[Connection], None],
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._traversal = NatTraversal(SECRETS)
        self._flush_channel = flush
        self._wakeup = Wakeup()
        self._attempts: dict[int, Connection] = {}
        self._is_behind = False

    # Attempts

    @contextmanager
    def attempting(self, connection: Connection) -> Iterator[None]:
        """Look for ways to the peer of an attempt for the length of the block."""
        # A peer with one address is not behind NAT, nor is this node.
        if not self._is_behind and len(connection.handshake.candidates) == 1:
            yield
            return
        token = self._traversal.begin(trio.current_time(), connection.handshake.wanted)
        self._attempts[token] = connection
        self._wakeup.wake()
        try:
            yield
        finally:
            self._traversal.end(token)
            del self._attempts[token]

    # The socket

    def take_own_untrusted(self, now: float, rows: Sequence[Datagrams]) -> Sequence[Datagrams]:
        """Take STUN messages out of what has come; return the rest."""
        if all(row.data[:1] > b"\3" for row in rows):
            return rows
        rest: list[Datagrams] = []
        for row in rows:
            if not row.data or row.data[0] > LAST_STUN:
                rest.append(row)
                continue
            for datagram in row.datagrams:
                if not datagram or datagram[0] > LAST_STUN:
                    rest.append(Datagrams.of(row.address, datagram))
                    continue
                with suppress(RemoteError):
                    self._handle_stun(now, row.address, decode_stun_untrusted(datagram))
        self._wakeup.wake()
        return rest

    def _handle_stun(self, now: float, source: Address, message: stun.Message) -> None:
        if message.message_method is not stun.Method.BINDING:
            return
        if message.message_class is stun.Class.RESPONSE:
            mapped = message.attributes.get("XOR-MAPPED-ADDRESS")
            if mapped is not None and mapped[1]:
                transaction = int.from_bytes(message.transaction_id, "big")
                self._traversal.handle_binding(now, source, transaction, mapped)
        elif message.message_class is stun.Class.INDICATION:
            self._handle_check(now, source, message)

    def _handle_check(self, now: float, source: Address, message: stun.Message) -> None:
        own, _, peer = message.attributes.get("USERNAME", "").partition(":")
        if own != f"{self._endpoint.peer_id:08x}":
            return
        for credential in self._traversal.credentials:
            if peer == f"{credential.peer:08x}" and message.check_message_integrity(
                _key(credential.token)
            ):
                if self._traversal.takes_check(source, credential):
                    self._handle_candidate(now, source, credential.token)
                return

    def _handle_candidate(self, now: float, source: Address, token: int) -> None:
        stalled = self._traversal.stalled
        connections = [cast("Connection", it) for it, other in stalled.items() if other == token]
        if token in self._attempts:
            connections.append(self._attempts[token])
        for connection in connections:
            self._endpoint.handle_candidate(now, connection, source)
            self._flush_channel(connection)

    # The task

    async def run(
        self,
        machine: ClientMachine,
        registration: Registration,
        hosts: Sequence[Candidate],
        *,
        announces: bool,
    ) -> None:
        """Run until cancelled. With ``announces`` public addresses are announced with ``hosts``."""
        asked: tuple[ServerAddress, ...] = ()
        reflexive: tuple[Address, ...] = ()
        own = {(host.host, host.port) for host in hosts}
        while True:
            if machine.stun_servers != asked:
                asked = machine.stun_servers
                servers = await self._look_up(asked)
                self._traversal.set_servers(trio.current_time(), servers)
            now = trio.current_time()
            while (request := machine.poll_check()) is not None:
                candidates = [(each.host, each.port) for each in request.candidates]
                credential = CheckCredential(request.peer, request.token)
                self._traversal.handle_check_request(now, credential, candidates)
            self._traversal.handle_timeout(now)
            if self._is_behind:
                self._traversal.handle_paths(now, self._sample())
            if self._traversal.reflexive != reflexive:
                reflexive = self._traversal.reflexive
                public = [address for address in reflexive if address not in own]
                self._is_behind = bool(public)
                log.info("servers see this client at %s", reflexive)
                if announces:
                    machine.set_candidates(now, [*hosts, *(Candidate(*it) for it in public)])
            self._send_all(machine, now)
            registration.flush()
            due = now + LOOK if self._is_behind else None
            with self._wakeup.waiting(earliest(due, self._traversal.poll_timeout())):
                await registration.next_change()
            self._wakeup.clear()

    def _send_all(self, machine: ClientMachine, now: float) -> None:
        traversal = self._traversal
        while (request := traversal.poll_request()) is not None:
            _send(self._udp, request.server, _encode_request(request))
        while (check := traversal.poll_check()) is not None:
            self._send_check(check)
        while (wanted := traversal.poll_check_request()) is not None:
            machine.request_check(now, wanted.peer, wanted.token)

    def _send_check(self, check: ConnectivityCheck) -> None:
        _send(self._udp, check.address, _encode_check(self._endpoint.peer_id, check.credential))

    def _sample(self) -> Iterator[PathSample]:
        for connection in self._endpoint.connections:
            if connection.state is State.OPEN and connection.peer_id:
                yield PathSample(
                    connection, connection.peer_id, connection.received_at, connection.is_owed
                )

    async def _look_up(self, servers: Sequence[ServerAddress]) -> list[Address]:
        places = [(parts.hostname or "", parts.port or 0) for parts in _split(servers)]
        try:
            return await resolve(places, self._udp.family)
        except UnreachableError:
            return []


def _split(servers: Sequence[ServerAddress]) -> list[Any]:
    return [urlsplit(server.pub) for server in servers]
