"""STUN (RFC 8489) on real sockets: the answers of servers, and the driver of ``NatTraversal``.

STUN shares the socket of a node's channels, because another socket would have another mapping at
the NAT. The first byte of a datagram distinguishes the two (RFC 7983): it is 0 to 3 in STUN. In all
other datagrams its upper half is the version, which is never 0.

A connectivity check is a Binding indication. Its USERNAME has the ids of both nodes: first that of
the receiver, then that of the sender. The key of its MESSAGE-INTEGRITY is the token of the attempt.
It gets no response. It opens a path through the NAT of its sender, which the handshake of the
channel then uses.

This module loads ``aioice``, whose codec does no I/O. So only servers that answer STUN load this
module, clients of such servers, and clients with a relay.
"""

import logging
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from hashlib import md5
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final, cast
from urllib.parse import urlsplit

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.records import Candidate, Peer, ServerAddress
from sphtp.core.datagrams import RELAYED, Address, Datagrams, Kind
from sphtp.core.nat import (
    LOOK,
    RECHECK,
    BindingRequest,
    CheckCredential,
    ConnectivityCheck,
    NatTraversal,
    PathSample,
    RelayAllocation,
    TurnMethod,
    TurnRequest,
    TurnServer,
)
from sphtp.core.timers import earliest
from sphtp.core.token_bucket import TokenBucket, TokenBuckets
from sphtp.errors import RemoteError, UnreachableError, untrusted
from sphtp.shell.addresses import resolve
from sphtp.shell.config import SECRETS
from sphtp.shell.driver import Wakeup
from sphtp.shell.lifetime import running
from sphtp.shell.registration import Registration
from sphtp.shell.udp import LARGEST_DATAGRAM, UdpSocket

try:
    from aioice import stun
except ModuleNotFoundError as error:
    lacks = "STUN and TURN need aioice: pip install 'sphtp[nat]' brings it"
    raise ModuleNotFoundError(lacks, name=error.name) from error

LAST_STUN: Final = 3
"""The highest first byte of a STUN message."""

LARGEST_STUN: Final = 548
"""The largest STUN message that needs no known path MTU, in bytes (RFC 8489, section 6.1). Servers
read no larger one.
"""

TRANSACTION_SIZE: Final = 12
UDP_TRANSPORT: Final = 17 << 24
"""The number of UDP in REQUESTED-TRANSPORT (RFC 8656, section 18.8)."""

STATELESS: Final = frozenset((Kind.REFUSE, Kind.COOKIE, Kind.RESET))
"""The kinds of datagrams that a node sends to addresses without a connection."""

CHANNEL_DATA: Final = struct.Struct(">HH")
"""The front of a ChannelData message: channel and length (RFC 8656, section 12.4)."""

MOST_REASON: Final = 128
"""The most characters of an error's reason that are logged (RFC 8489, section 14.8)."""

TURN_METHODS: Final = {
    TurnMethod.ALLOCATE: stun.Method.ALLOCATE,
    TurnMethod.REFRESH: stun.Method.REFRESH,
    TurnMethod.CREATE_PERMISSION: stun.Method.CREATE_PERMISSION,
    TurnMethod.CHANNEL_BIND: stun.Method.CHANNEL_BIND,
}
BATCH: Final = 256

PER_HOST: Final = 64
"""The most datagrams of one host that a server reads in a second, and at once. A client sends one
every 15 s, so that almost a thousand may share a NAT."""

LOOK_UP_AGAIN: Final = 15.0
"""Seconds until an unknown name is looked up again."""

log: Final = logging.getLogger("sphtp.client")


# Codec


@untrusted
def decode_stun_untrusted(datagram: bytes, most: int = LARGEST_STUN) -> stun.Message:
    """Decode a STUN message of at most ``most`` bytes. The caller checks its integrity.

    Raises ``RemoteError`` if the datagram is no such message.
    """
    if len(datagram) > most or datagram[4:8] != stun.COOKIE.to_bytes(4, "big"):
        raise RemoteError(f"{len(datagram)} bytes are no STUN message")
    try:
        return stun.parse_message(datagram)
    except (ValueError, struct.error) as error:
        raise RemoteError(f"not a STUN message: {error}") from error


def answer_binding_untrusted(datagram: bytes, source: Address) -> bytes | None:
    """Return the response to a Binding request from ``source``; None for other messages.

    Raises ``RemoteError`` if the datagram is no STUN message.
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
    """Return an address, in the form of IPv4 if it is an IPv4 address mapped to IPv6."""
    host = ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, IPv6Address) else None
    return str(mapped or host), address[1]


def _encode_request(request: BindingRequest) -> bytes:
    transaction = request.transaction.to_bytes(TRANSACTION_SIZE, "big")
    message = stun.Message(stun.Method.BINDING, stun.Class.REQUEST, transaction)
    # The fingerprint makes the request 28 bytes long, which its response exceeds by four (IPv4).
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

    A response has 32 bytes, or 44 with an IPv6 address. A request has at least 20, that of a client
    28. The rate limits the responses, so that an attacker gains little by a forged source address.

    Raises ``UdpAddressError`` if the port cannot be bound.
    """
    with UdpSocket(host, port) as udp:
        async with running(partial(_answer, udp, rate, counters)):
            yield


async def _answer(udp: UdpSocket, rate: TokenBucket, counters: ControlCounters) -> None:
    rates: TokenBuckets[str] = TokenBuckets(PER_HOST)
    while True:
        await udp.wait_readable()
        now = trio.current_time()
        for row in udp.receive_batch(BATCH):
            for datagram in row.datagrams:
                # Datagrams that are no requests use up only the tokens of their host.
                if not rates.take(now, row.address[0]):
                    counters.add(Count.OVER_STUN_PER_SECOND)
                    continue
                try:
                    answer = answer_binding_untrusted(datagram, row.address)
                except RemoteError:
                    counters.add(Count.MALFORMED)
                    continue
                if answer is None:
                    continue
                if rate.take(now):
                    _send(udp, row.address, answer)
                else:
                    counters.add(Count.OVER_STUN_PER_SECOND)
        await trio.lowlevel.checkpoint()


def _send(udp: UdpSocket, address: Address, datagram: bytes) -> None:
    # A datagram for which there is no room is lost: clients repeat requests, and checks follow.
    udp.send(deque([Datagrams.of(address, datagram)]))


# Clients


class RelayLink:
    """The path through a TURN relay (RFC 8656), on a node's socket; see ``RelayAllocation``."""

    def __init__(self, udp: UdpSocket, server: TurnServer, address: Address) -> None:
        self.address = address
        self.allocation = RelayAllocation(SECRETS)
        self._udp = udp
        self._server = server
        self._key = b""

    def wrap(self, peer: Address, datagram: bytes) -> bytes:
        """Return the datagram for the relay that contains this one for a peer."""
        # Stateless responses use no channel: strangers can cause them, to any number of ports.
        is_answer = not datagram or datagram[0] <= LAST_STUN or datagram[0] & 0x0F in STATELESS
        channel = None if is_answer else self.allocation.channel_to(trio.current_time(), peer)
        if channel is not None:
            return CHANNEL_DATA.pack(channel, len(datagram)) + datagram
        attributes = {"XOR-PEER-ADDRESS": peer, "DATA": datagram}
        return bytes(stun.Message(stun.Method.SEND, stun.Class.INDICATION, attributes=attributes))

    def reaches(self, host: str) -> bool:
        """Return True unless the host is in a private network, and the relay is not."""
        return is_private(self.address[0]) or not is_private(host)

    def take_channel_untrusted(self, datagram: bytes) -> Datagrams | None:
        """Return the datagram of a peer in a ChannelData message; None if that is not valid."""
        if len(datagram) < CHANNEL_DATA.size:
            return None
        channel, size = CHANNEL_DATA.unpack_from(datagram)
        peer, data = self.allocation.peer_of(channel), datagram[CHANNEL_DATA.size :][:size]
        return None if peer is None or len(data) < size else _relayed(peer, data)

    def take_data(self, message: stun.Message) -> Datagrams | None:
        """Return the datagram of a peer in a Data indication; None for any other message."""
        kind = message.message_method, message.message_class
        peer, data = message.attributes.get("XOR-PEER-ADDRESS"), message.attributes.get("DATA")
        if kind != (stun.Method.DATA, stun.Class.INDICATION) or peer is None or data is None:
            return None
        return _relayed(peer, data)

    def handle(self, now: float, message: stun.Message) -> bool:
        """Handle a response of the relay; return True if it belongs to a present request."""
        attributes, kind = message.attributes, message.message_class
        transaction = int.from_bytes(message.transaction_id, "big")
        if kind is stun.Class.RESPONSE and message.check_message_integrity(self._key):
            relayed, lifetime = attributes.get("XOR-RELAYED-ADDRESS"), attributes.get("LIFETIME")
            return self.allocation.handle_success(now, transaction, relayed, lifetime or 0)
        if kind is stun.Class.ERROR:
            code, reason = attributes.get("ERROR-CODE", (0, ""))
            realm, nonce = attributes.get("REALM", ""), attributes.get("NONCE", b"")
            return self.allocation.handle_error(now, transaction, code, reason, realm, nonce)
        return False

    def send_requests(self) -> None:
        """Send the requests that are due."""
        while (request := self.allocation.poll_request()) is not None:
            _send(self._udp, self.address, self._encode(request))

    def _encode(self, request: TurnRequest) -> bytes:
        attributes: dict[str, Any] = {}
        if request.method is TurnMethod.ALLOCATE:
            attributes["REQUESTED-TRANSPORT"] = UDP_TRANSPORT
        if request.channel:
            attributes["CHANNEL-NUMBER"] = request.channel
        if request.peer is not None:
            attributes["XOR-PEER-ADDRESS"] = request.peer
        transaction = request.transaction.to_bytes(TRANSACTION_SIZE, "big")
        message = stun.Message(
            TURN_METHODS[request.method], stun.Class.REQUEST, transaction, attributes
        )
        if request.nonce:
            attributes["USERNAME"] = self._server.user
            attributes["REALM"] = request.realm
            attributes["NONCE"] = request.nonce
            # RFC 8489, section 9.2.2. All relays support this hash.
            secret = f"{self._server.user}:{request.realm}:{self._server.password}".encode()
            self._key = md5(secret, usedforsecurity=False).digest()
            message.add_message_integrity(self._key)
        return bytes(message)


PRIVATE: Final = tuple(
    ip_network(each)
    for each in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
        *("169.254.0.0/16", "127.0.0.0/8", "fc00::/7", "fe80::/10", "::1/128"),
    )
)
"""The networks that no relay on the Internet reaches (RFC 1918, 6598, 3927, 4193). If coturn has no
route to such a network, a datagram to it ends the allocation of the sender."""


def is_private(host: str) -> bool:
    """Return True for an address in one of the ``PRIVATE`` networks."""
    address = ip_address(host)
    return any(address.version == each.version and address in each for each in PRIVATE)


def _relayed(peer: Address, data: bytes) -> Datagrams:
    return Datagrams.of((peer[0] + RELAYED, peer[1]), data)


class NatDriver:
    """The driver of a client's ``NatTraversal``, on the socket of its node.

    ``flush`` sends the waiting datagrams of a channel.
    """

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        flush: Callable[[Connection], None],
        peers: Callable[[], Mapping[int, Peer]],
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._traversal = NatTraversal(SECRETS)
        self._flush_channel = flush
        self._wakeup = Wakeup()
        self._attempts: dict[int, Connection] = {}
        self._is_behind = False
        self._link: RelayLink | None = None
        self._peers = peers
        # For each channel that uses the relay: the time of the next search for a direct path, and
        # the token of the present search.
        self._rechecks: dict[Connection, tuple[float, int]] = {}
        # Addresses through the relay from which checks of an attempt came. They wait until the
        # attempt may use the relay; then it is in ``_relaying``.
        self._held: dict[int, dict[Address, None]] = {}
        self._relaying: set[int] = set()
        self._troubles: dict[str, str] = {}

    # Attempts

    @contextmanager
    def attempting(self, connection: Connection) -> Iterator[None]:
        """Search for paths to the peer of an attempt for the length of the block."""
        candidates, wanted = connection.handshake.candidates, connection.handshake.wanted
        # No search if the peer has no id, or if neither side is behind NAT: a peer with one address
        # is not.
        if not wanted or (not self._is_behind and len(candidates) == 1):
            yield
            return
        self._permit(candidates)
        token = self._traversal.begin(trio.current_time(), wanted)
        self._attempts[token] = connection
        self._wakeup.wake()
        try:
            yield
        finally:
            self._traversal.end(token)
            del self._attempts[token]
            self._held.pop(token, None)
            self._relaying.discard(token)

    # The socket

    def take_own_untrusted(self, now: float, rows: Sequence[Datagrams]) -> Sequence[Datagrams]:
        """Handle the STUN messages among the received rows. Return the other rows."""
        link = self._link
        if all(
            row.data[:1] > b"\3" and (link is None or row.address != link.address) for row in rows
        ):
            return rows
        rest: list[Datagrams] = []
        for row in rows:
            is_link = link is not None and row.address == link.address
            if not is_link and (not row.data or row.data[0] > LAST_STUN):
                rest.append(row)
                continue
            for datagram in row.datagrams:
                taken: Datagrams | None = None
                if not datagram or datagram[0] > LAST_STUN:
                    taken = Datagrams.of(row.address, datagram)
                    if is_link and link is not None:
                        taken = link.take_channel_untrusted(datagram)
                else:
                    with suppress(RemoteError):
                        message = decode_stun_untrusted(datagram, LARGEST_DATAGRAM)
                        if not is_link or link is None:
                            self._handle_stun(now, row.address, message)
                        elif (taken := link.take_data(message)) is None:
                            self._wake_if(link.handle(now, message))
                if taken is not None:
                    rest.extend(self._take_relayed(now, taken))
        return rest

    def _wake_if(self, has_changed: bool) -> None:
        """Wake the task if an input had an effect, which messages of strangers never have."""
        if has_changed:
            self._wakeup.wake()

    def _take_relayed(self, now: float, row: Datagrams) -> Iterator[Datagrams]:
        """Handle a check that came through the relay. Yield any other datagram."""
        if row.address[0].endswith(RELAYED) and row.data and row.data[0] <= LAST_STUN:
            with suppress(RemoteError):
                self._handle_stun(now, row.address, decode_stun_untrusted(row.data))
        else:
            yield row

    def _handle_stun(self, now: float, source: Address, message: stun.Message) -> None:
        if message.message_method is not stun.Method.BINDING:
            return
        if message.message_class is stun.Class.RESPONSE:
            mapped = message.attributes.get("XOR-MAPPED-ADDRESS")
            if mapped is not None and self._can_send_to(mapped):
                transaction = int.from_bytes(message.transaction_id, "big")
                self._wake_if(self._traversal.handle_binding(now, source, transaction, mapped))
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
                    self._wakeup.wake()
                return

    def _handle_candidate(self, now: float, source: Address, token: int) -> None:
        stalled = self._traversal.stalled
        connections = [cast("Connection", it) for it, other in stalled.items() if other == token]
        connections += [it for it, (_, other) in self._rechecks.items() if other == token]
        if token in self._attempts:
            if source[0].endswith(RELAYED) and token not in self._relaying:
                self._held.setdefault(token, {})[source] = None
            else:
                connections.append(self._attempts[token])
        for connection in connections:
            self._try(now, connection, source)

    def _try(self, now: float, connection: Connection, address: Address) -> None:
        """Have a channel try an address of its peer, unless it and the present one are relayed."""
        is_relayed = (connection.address or ("", 0))[0].endswith(RELAYED)
        if not (is_relayed and address[0].endswith(RELAYED)):
            self._endpoint.handle_candidate(now, connection, address)
            self._flush_channel(connection)

    # The relay

    def _permit(self, addresses: Sequence[Address]) -> None:
        if self._link is not None:
            hosts = [host for host, _ in addresses if self._link.reaches(host)]
            self._link.allocation.permit(trio.current_time(), hosts)

    def _addresses_of(self, connection: Connection) -> tuple[Address, ...]:
        """Return the announced addresses of a channel's peer to which this node can send."""
        number = connection.peer_id or connection.handshake.wanted
        peer = self._peers().get(number)
        return () if peer is None else tuple(filter(self._can_send_to, peer.addresses))

    def _can_send_to(self, address: Address) -> bool:
        """Return True for an address of one host, of the family of this node's socket."""
        host, port = ip_address(address[0]), address[1]
        version = 6 if self._udp.family is socket.AF_INET6 else 4
        return (
            host.version == version and not (host.is_multicast or host.is_unspecified) and port > 0
        )

    def _try_relay(self, now: float, token: int) -> None:
        """Have an attempt, or a stalled channel, try the relay, too."""
        stalled = self._traversal.stalled.items()
        found = [cast("Connection", it) for it, other in stalled if other == token]
        if self._link is None or self._link.allocation.relayed is None:
            return
        if token in self._attempts:
            self._relaying.add(token)
            found.append(self._attempts[token])
        for connection in found:
            announced = [
                (host + RELAYED, port)
                for host, port in self._addresses_of(connection)
                if self._link.reaches(host)
            ]
            for address in [*self._held.pop(token, ()), *announced]:
                self._try(now, connection, address)

    def _try_announced(self, now: float) -> None:
        """Have attempts dial the addresses that their peers have announced meanwhile."""
        for connection in self._attempts.values():
            for address in self._addresses_of(connection):
                if address not in connection.handshake.candidates:
                    self._permit([address])
                    self._try(now, connection, address)

    def _recheck(self, now: float) -> None:
        """Search for a direct path for each channel that uses the relay."""
        used = [
            it
            for it in (self._endpoint.connections if self._is_behind else ())
            if it.state is State.OPEN and it.address is not None and it.address[0].endswith(RELAYED)
        ]
        for gone in self._rechecks.keys() - set(used):
            self._traversal.end(self._rechecks.pop(gone)[1])
        for connection in used:
            due, token = self._rechecks.get(connection, (now, 0))
            if now >= due:
                self._traversal.end(token)
                token = self._traversal.begin(now, connection.peer_id, wait=0.0)
                due = now + RECHECK
                self._rechecks[connection] = due, token
            addresses = self._addresses_of(connection)
            if addresses:
                # One address in each turn, because only one path is validated at a time.
                place = int((due - now) / LOOK) % len(addresses)
                self._try(now, connection, addresses[place])

    # The task

    async def run(
        self,
        machine: ClientMachine,
        registration: Registration,
        hosts: Sequence[Candidate],
        *,
        announces: bool,
        relay: TurnServer | None = None,
    ) -> None:
        """Run until cancelled. With ``announces``, announce public addresses beside ``hosts``."""
        # Lookups of names may take long, so that they have tasks of their own.
        async with (
            running(partial(self._follow_servers, machine, registration)),
            running(partial(self._open_relay, relay)),
        ):
            await self._drive(machine, registration, hosts, announces=announces)

    async def _drive(
        self,
        machine: ClientMachine,
        registration: Registration,
        hosts: Sequence[Candidate],
        *,
        announces: bool,
    ) -> None:
        known: tuple[Address, ...] = ()
        own = {(host.host, host.port) for host in hosts}
        while True:
            now = trio.current_time()
            while (request := machine.poll_check()) is not None:
                announced = [(each.host, each.port) for each in request.candidates]
                candidates = [address for address in announced if self._can_send_to(address)]
                self._permit(candidates)
                credential = CheckCredential(request.peer, request.token)
                self._traversal.handle_check_request(now, credential, candidates)
            self._traversal.handle_timeout(now)
            # If this client is no longer behind NAT, the empty sample ends earlier attempts.
            self._traversal.handle_paths(now, self._sample() if self._is_behind else ())
            self._recheck(now)
            self._try_announced(now)
            while (token := self._traversal.poll_relay()) is not None:
                self._try_relay(now, token)
            public = [address for address in self._traversal.reflexive if address not in own]
            due = self._traversal.poll_timeout()
            if self._link is not None:
                self._link.allocation.handle_timeout(now)
                self._link.send_requests()
                due = earliest(due, self._link.allocation.poll_timeout())
                failure = self._link.allocation.failure
                self._note_trouble("the relay", failure and repr(failure[:MOST_REASON]))
                relayed = self._link.allocation.relayed
                public += [relayed] if relayed is not None and self._can_send_to(relayed) else []
            if tuple(public) != known:
                known = tuple(public)
                log.info("addresses of this client outside its NAT: %s", known or "none")
                if announces:
                    machine.set_candidates(now, [*hosts, *(Candidate(*it) for it in public)])
            self._is_behind = bool(public)
            self._send_all(machine, now)
            registration.flush()
            with self._wakeup.waiting(earliest(due, now + LOOK if self._is_behind else None)):
                await registration.next_change()
            self._wakeup.clear()

    async def _follow_servers(self, machine: ClientMachine, registration: Registration) -> None:
        """Use the present servers that answer STUN. Without any, keep the last ones."""
        asked: tuple[ServerAddress, ...] = ()
        while True:
            servers = machine.stun_servers
            if servers not in (asked, ()):
                found = await self._look_up("STUN", list(map(_place, servers)))
                if found:
                    asked = servers
                    self._traversal.set_servers(trio.current_time(), found)
                    self._wakeup.wake()
                else:
                    await trio.sleep(LOOK_UP_AGAIN)
            if machine.stun_servers == servers:
                await registration.next_change()

    async def _open_relay(self, server: TurnServer | None) -> None:
        if server is None:
            return
        places = [(server.host, server.port)]
        found = await self._look_up("the relay", places)
        while not found:
            await trio.sleep(LOOK_UP_AGAIN)
            found = await self._look_up("the relay", places)
        self._link = self._udp.relay = RelayLink(self._udp, server, found[0])
        self._link.allocation.begin(trio.current_time())
        self._wakeup.wake()

    async def _look_up(self, service: str, places: Sequence[Address]) -> list[Address]:
        try:
            return await resolve(places, self._udp.family)
        except UnreachableError as error:
            self._note_trouble(service, str(error))
            return []

    def _note_trouble(self, service: str, trouble: str) -> None:
        """Log the cause why a service cannot be used, once for each change."""
        if self._troubles.get(service, "") != trouble:
            self._troubles[service] = trouble
            if trouble:
                log.warning("%s cannot be used: %s", service, trouble)

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


def _place(server: ServerAddress) -> Address:
    parts = urlsplit(server.pub)
    return parts.hostname or "", parts.port or 0
