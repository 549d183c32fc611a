"""A client: registered with the servers, introduced to peers, and in channels with some of them."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random, SystemRandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgpack
import trio

from sphtp.core.channel.gate.security import Security
from sphtp.core.channel.gate.trust import Roster
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Parameter
from sphtp.core.control.events import ClientEvent, Established, PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.records import Candidate, Member, ServerAddress
from sphtp.core.control.timers import ControlTimers
from sphtp.core.row import Address
from sphtp.core.secure.identity import Identity
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.addresses import Outlook
from sphtp.shell.channel import Channel
from sphtp.shell.feed import Listener
from sphtp.shell.impairment import UNIMPAIRED, Impairment
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import running
from sphtp.shell.node import Node
from sphtp.shell.node_statistics import NodeStatistics
from sphtp.shell.opening import open_node
from sphtp.shell.peer import Peer
from sphtp.shell.registration import Bus, Registration, open_bus
from sphtp.shell.tls import Tls, require_tls

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec

Wanted = int | Callable[[Peer], bool]


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Figures of one client since its start."""

    counters: Mapping[str, int]
    """Control messages dropped, by reason."""
    node: NodeStatistics
    """Datagrams at its socket."""
    events_dropped: int
    """Events missed by listeners that were too far behind."""
    undialable: int
    """Addresses of servers that the bus cannot make sense of."""


@asynccontextmanager
async def open_client(
    servers: str | Sequence[str | ServerAddress],
    *,
    data: Any = None,
    host: str | None = None,
    port: int = 0,
    advertise: Sequence[Address] = (),
    timeout: float = 30.0,
    timers: ControlTimers | None = None,
    channel_settings: ChannelSettings | None = None,
    instruments: Sequence[Instrument] = (),
    messages: "MessageCodec | None" = None,
    impairment: Impairment = UNIMPAIRED,
    seed: int | None = None,
    ids: Iterator[int] | None = None,
    identity: Identity | None = None,
    secret: bytes | None = None,
    tls: Tls | None = None,
) -> AsyncIterator["Client"]:
    """Register with a cluster for the length of the block, which begins when all servers agreed.

    Args:
        servers: one server's address is enough, ``"tcp://host:8764"``; it tells the others'.
        data: what peers learn of this client, as msgpack; 4096 bytes at most.
        host, port: where to bind the UDP socket; by default the address that faces the servers.
        advertise: where peers reach that socket, should that differ from where it is bound.
        timeout, timers, ids: seconds to wait until registered; the servers' periods; ids to try.
        channel_settings, messages, instruments, impairment, seed: as for ``open_node``.
        identity, secret, tls: who this client is (else somebody new), and what servers ask for.

    Raises:
        SettingsError, UdpAddressError, UnreachableError, RefusedError: the message says why.
    """
    outlook = Outlook(addresses := _parse(servers, tls), timeout)
    identity, peers = identity or draw_identity(seed), dict[int, Peer]()
    async with open_node(
        host or await outlook.where_to_bind(),
        port,
        settings=channel_settings,
        messages=messages,
        security=Security(identity=identity, trust=Roster(peers)),
        instruments=instruments,
        impairment=impairment,
        seed=seed,
    ) as node:
        where = await outlook.candidates_of(node.address, advertise)
        machine = _make_machine(seed, timers, addresses, where, data, ids, identity)
        with open_bus(secret, tls) as bus:
            async with _registered(Client(node, machine, bus, identity, peers), outlook) as it:
                yield it


class Client:
    """A registered client. Made by ``open_client``."""

    def __init__(
        self,
        node: Node,
        machine: ClientMachine,
        bus: Bus,
        identity: Identity,
        peers: dict[int, Peer],
    ) -> None:
        self._identity = identity
        self._node = node
        self._machine = machine
        self._peers = peers
        self._registration = Registration(machine, bus, self._note)

    @property
    def id(self) -> int:
        """The odd number that all servers acknowledged last.

        After ``IdLost`` it stays until another one is acknowledged.
        """
        return self._node.peer_id

    @property
    def identity(self) -> Identity:
        """Who this client is; the servers tell its peers the public key."""
        return self._identity

    @property
    def state(self) -> ClientState:
        """Where it stands with the servers; SUSPENDED while none is heard."""
        return self._machine.state

    @property
    def address(self) -> Address:
        """Where its UDP socket is bound, with the real port."""
        return self._node.address

    @property
    def peers(self) -> Mapping[int, Peer]:
        """The other clients of the cluster, by id."""
        return MappingProxyType(self._peers)

    @property
    def servers(self) -> Mapping[int, Member]:
        """The servers that are heard, by id."""
        return self._machine.servers

    def statistics(self) -> ClientStatistics:
        """Return the figures so far."""
        return ClientStatistics(
            counters=self._machine.counters.as_dict(),
            node=self._node.statistics(),
            events_dropped=self._registration.feed.dropped,
            undialable=self._registration.undialable,
        )

    def events(self) -> Listener[ClientEvent]:
        """Return an async iterator over what happens from now on; it ends with the client.

        ``with client.events() as events:`` closes it; it is also closed when it is dropped. A
        reader that falls 1024 events behind misses some; ``statistics`` counts them.
        """
        return self._registration.feed.listen()

    def set_data(self, data: Any) -> None:
        """Change what peers learn of this client."""
        self._machine.set_data(trio.current_time(), msgpack.packb(data))
        self._registration.flush()

    def publish(self, command: int, parameters: Sequence[Parameter] = ()) -> None:
        """Send the servers a message of the application.

        Raises ``StateError`` unless command and parameters have numbers from 0x0100 on.
        """
        self._machine.publish(trio.current_time(), command, parameters)
        self._registration.flush()

    async def wait_for_peer(self, wanted: Wanted, *, timeout: float = 30.0) -> Peer:
        """Wait for a peer, named by its id or by what a function says of it.

        Raises ``UnreachableError`` when none has come after ``timeout`` seconds.
        """
        if isinstance(wanted, int) and wanted not in self._peers:
            self._machine.lookup(trio.current_time(), wanted)
            self._registration.flush()
        with trio.move_on_after(timeout):
            await self._registration.wait(lambda: self._find(wanted) is not None)
        peer = self._find(wanted)
        if peer is None:
            name = f"peer {wanted:#010x}" if isinstance(wanted, int) else "the wanted peer"
            raise UnreachableError(
                f"{name} did not appear within {timeout:g} s; {len(self._peers)} others are here"
            )
        return peer

    @asynccontextmanager
    async def open_channel(self, peer_id: int, *, timeout: float = 5.0) -> AsyncIterator[Channel]:
        """Open a channel to a peer for the length of the block; leaving it drains and closes.

        Raises:
            UnreachableError: the servers do not know the peer within ``timeout`` seconds, or it
                does not answer within ``connect_timeout``.
            RefusedError: the peer is full, another one now has its address, or its messages are
                of other types.
        """
        peer = await self.wait_for_peer(peer_id, timeout=timeout)
        if not peer.addresses:
            raise UnreachableError(f"peer {peer_id:#010x} told no address")
        (host, port), *more = peer.addresses
        async with self._node.open_channel(host, port, *more, wanted=peer_id) as channel:
            yield channel

    async def accept(self) -> Channel:
        """Wait for the next channel that a peer opens."""
        return await self._node.accept()

    def incoming(self) -> AsyncIterator[Channel]:
        """Iterate over the channels that peers open."""
        return self._node.incoming()

    def _find(self, wanted: Wanted) -> Peer | None:
        if isinstance(wanted, int):
            return self._peers.get(wanted)
        return next((peer for peer in self._peers.values() if wanted(peer)), None)

    def _note(self, event: ClientEvent) -> None:
        match event:
            case Established(client_id, _):
                self._node.peer_id = client_id
            case PeerEntered(record) | PeerChanged(record):
                self._peers[record.id] = Peer.from_record(record)
            case PeerLeft(record, _):
                self._peers.pop(record.id, None)
            case _:
                pass


@asynccontextmanager
async def _registered(client: Client, outlook: Outlook) -> AsyncIterator[Client]:
    registration = client._registration  # noqa: SLF001 - the two halves of one thing
    async with running(registration.run):
        try:
            await registration.wait_established(outlook.timeout, outlook.deadline)
            yield client
        finally:
            with trio.CancelScope(shield=True):
                await registration.leave()


def _make_machine(
    seed: int | None,
    timers: ControlTimers | None,
    servers: Sequence[ServerAddress],
    candidates: Sequence[Candidate],
    data: Any,
    ids: Iterator[int] | None,
    identity: Identity,
) -> ClientMachine:
    return ClientMachine(
        SystemRandom() if seed is None else Random(seed),
        timers or ControlTimers(),
        servers=servers,
        candidates=candidates,
        data=b"" if data is None else msgpack.packb(data),
        ids=ids,
        key=identity.public,
    )


def _parse(servers: str | Sequence[str | ServerAddress], tls: Tls | None) -> list[ServerAddress]:
    if not servers:
        raise SettingsError("servers is empty; allowed is one address or more")
    if isinstance(servers, str):
        servers = [servers]
    parsed = [
        server if isinstance(server, ServerAddress) else ServerAddress.parse(server)
        for server in servers
    ]
    require_tls(parsed, tls)
    return parsed
