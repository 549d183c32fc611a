"""A client: registered with the servers, introduced to peers, and in channels with some of them.

It has two halves. ``Registration`` drives the core's ``ClientMachine`` over the bus, and keeps an
id registered; a ``Node`` has the channels and streams. They meet in three places: the node has the
id that was acknowledged, it dials the addresses of the peers that servers introduce, and it admits
the keys of those peers.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import trio

from sphtp.core.channel.security import RosterAuthenticator, Security
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.events import (
    ClientEvent,
    Established,
    PeerChanged,
    PeerEntered,
    PeerLeft,
)
from sphtp.core.control.records import Member, Peer, ServerAddress
from sphtp.core.control.settings import ClientLimits, ControlTimers
from sphtp.core.datagrams import Address
from sphtp.core.packing import pack
from sphtp.core.secure.identity import Identity
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.address_discovery import AddressDiscovery
from sphtp.shell.channel import Channel
from sphtp.shell.config import DEFAULTS, Config
from sphtp.shell.feed import Listener
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import block, running
from sphtp.shell.node import Handler, Node, NodeStatistics, open_node
from sphtp.shell.randomness import SECRETS, decisions
from sphtp.shell.registration import Registration, open_bus
from sphtp.shell.server_wait import ServerWait
from sphtp.shell.tls import Tls, require_tls

if TYPE_CHECKING:
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.shell.multicast import MulticastGroup
    from sphtp.shell.source import Source
    from sphtp.shell.subscription import Subscription

PATIENCE: Final = 5.0
"""Seconds after which the log says what a program waits for."""

log: Final = logging.getLogger("sphtp.client")


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Statistics of one client since its start."""

    counters: Mapping[str, int]
    """The control messages that were dropped, by reason."""
    node: NodeStatistics
    """The statistics of its node."""
    events_dropped: int
    """The events that listeners missed because they were too far behind."""
    undialable: int
    """The addresses of servers that the bus cannot dial."""


Wanted = int | Callable[[Peer], bool]


class PeerMatcher:
    """Finds the wanted peer.

    An error that a peer's data caused in the function means that it is another one.
    """

    def __init__(self, wanted: Wanted) -> None:
        if not isinstance(wanted, int) and not callable(wanted):
            raise TypeError(f"{wanted!r} is neither the id of a peer nor a function of a peer")
        self._wanted = wanted
        self._failures: dict[int, Exception] = {}

    def find(self, peers: Mapping[int, Peer]) -> Peer | None:
        """Return the wanted peer if it is there. Raises errors of the function itself."""
        if isinstance(self._wanted, int):
            return peers.get(self._wanted)
        self._failures.clear()
        for peer in tuple(peers.values()):
            try:
                if self._wanted(peer):
                    return peer
            except Exception as error:
                if _is_of_function(error):
                    raise
                self._failures[peer.id] = error
        return None

    def describe(self, others: int, time: str = "") -> str:
        """Return in words that the peer is not there, and why the function may be the reason."""
        name = f"peer {self._wanted:#010x}" if isinstance(self._wanted, int) else "the wanted peer"
        text = f"{name} did not appear{time}; {others} others are here"
        if not self._failures:
            return text
        *_, last = self._failures.values()
        return f"{text}; the function raised for {len(self._failures)} of them, last {last!r}"


def _is_of_function(error: Exception) -> bool:
    """Return true if the error is the function's own: a misspelt name, or a wrong signature."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Peer)
    # The first entry of the traceback is our call; a function that could be called has a second.
    was_called = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return isinstance(error, NameError) or (isinstance(error, TypeError) and not was_called)


class Client:
    """A registered client. Made by ``open_client``."""

    def __init__(
        self,
        node: Node,
        machine: ClientMachine,
        registration: Registration,
        identity: Identity,
        peers: Mapping[int, Peer],
        config: Config,
    ) -> None:
        self._identity = identity
        self._connect_timeout = config.channel.connect_timeout
        self._node = node
        self._machine = machine
        self._peers = peers
        self._topics: Sequence[str] = ()
        self._registration = registration

    def __repr__(self) -> str:
        host, port = self.address
        return f"<Client {self.id:#010x} {self.state.name} at {host}:{port}>"

    @property
    def id(self) -> int:
        """The odd number that all servers acknowledged last.

        After ``IdLost`` it stays until another one is acknowledged.
        """
        return self._node.peer_id

    @property
    def identity(self) -> Identity:
        """The identity of this client; the servers tell its peers the public key."""
        return self._identity

    @property
    def state(self) -> ClientState:
        """The state of its registration; SUSPENDED while no server is heard."""
        return self._machine.state

    @property
    def address(self) -> Address:
        """The address that its UDP socket is bound to, with the real port."""
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
        counters = self._machine.counters
        return ClientStatistics(
            counters=counters.as_dict(),
            node=self._node.statistics(),
            events_dropped=self._registration.feed.dropped,
            undialable=counters[Count.UNDIALABLE],
        )

    def events(self) -> Listener[ClientEvent]:
        """Return an async iterator over what happens from now on; it ends with the client.

        ``with client.events() as events:`` closes it; it is also closed when it is dropped. A
        reader that falls 1024 events behind misses some; ``statistics`` counts them.
        """
        return self._registration.feed.listen()

    def set_data(self, data: Any) -> None:
        """Change this client's data, which its peers get."""
        self._machine.set_data(trio.current_time(), pack(data))
        self._registration.flush()

    def publish(self, command: int, parameters: Sequence[Parameter] = ()) -> None:
        """Send the servers a message of the application.

        Raises:
            StateError: command and parameters do not have numbers from 0x0100 to 0xffff, or no
                server is heard (``state``).
            MessageTooLargeError: a parameter is over 65,535 bytes, or all is over 65,536, of which
                22 and 4 for each parameter are taken; with a secret, another 36.
        """
        self._machine.publish(trio.current_time(), command, parameters)
        self._registration.flush()

    async def wait_for_peer(self, wanted: Wanted) -> Peer:
        """Wait for a peer with this id, or the first one for which a function returns true.

        ``with trio.fail_after(10):`` around the call bounds the wait. A wait of more than 5 s says
        once in the log ``sphtp.client`` what it waits for, and so does one that is cancelled.

        A peer's data can be anything. If the function fails on a peer's data, that peer does not
        match, and the function is called again when the data has changed; the log has the last
        error. An error that no data can cause is raised: a name, or an attribute of ``Peer``, that
        does not exist.
        """
        search = PeerMatcher(wanted)
        self._look_up(wanted)
        try:
            with trio.move_on_after(PATIENCE):
                return await self._find(search)
            log.warning("%s", search.describe(len(self._peers)))
            return await self._find(search)
        except trio.Cancelled:
            log.warning("a wait was cancelled: %s", search.describe(len(self._peers)))
            raise

    @block
    async def open_channel(self, peer: Peer | int) -> AsyncIterator[Channel[Any]]:
        """Open a channel to a peer, or to one with this id, for the length of the block.

        Leaving the block drains and closes the channel.

        Raises:
            UnreachableError: the servers do not know the peer within ``connect_timeout``, what it
                told them is no key, or it does not answer within as long.
            RefusedError: the peer is full, another one now has its address, or its messages are
                of other types.
        """
        number, addresses = await self._reach(peer)
        async with self._node.services.open(None, addresses, number) as channel:
            yield channel

    @block
    async def open_source(
        self,
        *topics: str,
        settings: "StreamSettings | None" = None,
        group: "MulticastGroup | None" = None,
    ) -> "AsyncIterator[Source]":
        """Open a source of one topic or more, of which all peers learn; see ``Node.open_source``.

        Peers find it by ``peer.topics`` and ``subscribe``.
        """
        async with self._node.open_source(*topics, settings=settings, group=group) as source:
            self._tell_topics([*self._topics, *topics])
            try:
                yield source
            finally:
                self._tell_topics([topic for topic in self._topics if topic not in topics])

    @block
    async def subscribe(
        self,
        peer: Peer | int,
        topic: str,
        *,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        settings: "StreamSettings | None" = None,
    ) -> "AsyncIterator[Subscription[Any]]":
        """Subscribe to a topic of a peer for the length of the block.

        Args:
            peer, topic: the peer or its id, and one of its ``topics``.
            late_join: messages sent before: all that the source retains, or so many of the last.
            after: instead, every message after the one with this number, or its loss.
            session: the ``session`` of the subscription in which this number was read.
            numbered: messages come as ``StreamMessage``, with their numbers.
            settings: timers and limits of this receiver, instead of ``Config.streams``.

        Raises:
            UnreachableError: as ``open_channel``.
            RefusedError: the peer has no such topic, or all receivers that it may have, or its
                source began anew and ``session`` is no more.
            SettingsError: ``late_join`` is below 0, or ``after`` below -1.
        """
        number, addresses = await self._reach(peer)
        streams = self._node.streams
        dial = partial(self._node.services.open, streams.service, addresses, number)
        async with streams.subscribe(
            dial,
            topic,
            late_join=late_join,
            after=after,
            session=session,
            numbered=numbered,
            settings=settings,
        ) as subscription:
            yield subscription

    async def accept(self) -> Channel[Any]:
        """Wait for the next channel that a peer opens."""
        return await self._node.accept()

    async def serve_channels(
        self,
        handler: Handler,
        *,
        handler_nursery: trio.Nursery | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> NoReturn:
        """Accept channels for ever, and run ``handler(channel)`` for each in a task of its own.

        See ``Node.serve_channels``.
        """
        await self._node.serve_channels(
            handler, handler_nursery=handler_nursery, task_status=task_status
        )

    def _look_up(self, wanted: Wanted) -> None:
        if isinstance(wanted, int) and wanted not in self._peers:
            self._machine.lookup(trio.current_time(), wanted)
            self._registration.flush()

    async def _find(self, search: PeerMatcher) -> Peer:
        found: list[Peer] = []

        def is_here() -> bool:
            peer = search.find(self._peers)
            found.extend([peer] if peer is not None else [])
            return peer is not None

        await self._registration.wait(is_here)
        return found[0]

    async def _reach(self, peer: Peer | int) -> tuple[int, tuple[Address, ...]]:
        """Return the id and the addresses of a peer that the servers know, or will soon."""
        number = peer.id if isinstance(peer, Peer) else peer
        if not isinstance(number, int):
            raise TypeError(f"{peer!r} is neither a peer nor its id")
        search, found = PeerMatcher(number), None
        self._look_up(number)
        with trio.move_on_after(self._connect_timeout):
            found = await self._find(search)
        if found is None:
            time = f" within {self._connect_timeout:g} s"
            raise UnreachableError(search.describe(len(self._peers), time))
        if not found.addresses:
            raise UnreachableError(f"peer {number:#010x} has announced no address")
        return number, tuple(found.addresses)

    def _tell_topics(self, topics: Sequence[str]) -> None:
        """Publish the topics of this client's sources to its peers."""
        self._topics = topics
        self._machine.set_topics(trio.current_time(), topics)
        self._registration.flush()


Servers = str | ServerAddress | Sequence[str | ServerAddress | Address]


@block
async def open_client(
    servers: Servers | None = None,
    *,
    data: Any = None,
    host: str | None = None,
    port: int = 0,
    advertise: Sequence[Address] = (),
    ids: Iterator[int] | None = None,
    config: Config = DEFAULTS,
) -> AsyncIterator[Client]:
    """Register with a cluster for the length of the block, which begins when all servers agreed.

    Args:
        servers: the address of one server, ``"tcp://host:8764"``, which names the others; or a
            list of several, as text, as ``ServerAddress`` or as pairs of host and port. None looks
            for announced servers on this host, and else on this network.
        data: the client's data for its peers, up to 4096 bytes as msgpack.
        host, port: where to bind the UDP socket; by default the address that faces the servers.
        advertise: the addresses of that socket for peers, if they differ from the bound one.
        ids: ids to try, for tests; drawn at random by default.
        config: the behaviour of this client: its identity in ``security``, the secret of its
            servers in ``cluster``, how long to wait for them in ``timers``.

    Raises:
        UnreachableError: no server is heard, and why: within a second where nobody listens and
            there is no ``timers.start_timeout``, or where a server has another secret or
            certificate; else after ``timers.answer_timeout``. What may still come right is a
            warning in the log ``sphtp.client``, until time is up. Without ``servers``: nothing was
            found within 3 s or ``timers.start_timeout``, or several clusters were.
        RefusedError: the servers do not admit this client; ``reason`` is their word.
        SettingsError, UdpAddressError: an argument makes no sense, or its address no socket.
    """
    timers, cluster = config.timers or ControlTimers(), config.cluster
    security = _secure(config.security, peers := dict[int, Peer]())
    if servers is None:
        # Loaded only by programs that search.
        from sphtp.shell.discovery import find_servers

        servers = await find_servers(config)
    server_wait = ServerWait(timers.answer_timeout, timers.start_timeout)
    discovery = AddressDiscovery(addresses := _parse(servers, cluster.tls), server_wait)
    async with open_node(
        host or await discovery.where_to_bind(),
        port,
        config=replace(config, security=security.of_node),
    ) as node:
        machine = ClientMachine(
            decisions(config.seed),
            timers,
            secrets=SECRETS,
            servers=addresses,
            candidates=await discovery.candidates_of(node.address, advertise),
            data=b"" if data is None else pack(data),
            ids=ids,
            key=security.identity.public,
            limits=config.client_limits or ClientLimits(),
        )
        with open_bus(cluster.secret, cluster.tls, cluster.server_keys) as bus:
            registration = Registration(machine, bus, partial(_note, node, peers))
            async with _registered(registration, server_wait, cluster.tls):
                yield Client(node, machine, registration, security.identity, peers, config)


class _ClientSecurity(NamedTuple):
    """What makes the node of a client admit those whom the servers introduce, and no others."""

    identity: Identity
    of_node: Security


def _secure(security: Security | None, peers: dict[int, Peer]) -> _ClientSecurity:
    if security is None:
        raise SettingsError("security is None; the channels of a client are always sealed")
    identity = security.identity or draw_identity()
    roster = RosterAuthenticator(peers)
    return _ClientSecurity(identity, replace(security, identity=identity, roster=roster))


@asynccontextmanager
async def _registered(
    registration: Registration, server_wait: ServerWait, tls: Tls | None
) -> AsyncIterator[None]:
    async with running(registration.run):
        try:
            await registration.wait_established(server_wait, tls)
            yield
        finally:
            with trio.CancelScope(shield=True):
                await registration.leave()


def _note(node: Node, peers: dict[int, Peer], event: ClientEvent) -> None:
    """Update the id and the peers from an event."""
    match event:
        case Established(client_id, _):
            node.peer_id = client_id
        case PeerEntered(peer) | PeerChanged(peer):
            peers[peer.id] = peer
        case PeerLeft(peer, _):
            peers.pop(peer.id, None)
        case _:
            pass


def _parse(servers: Servers, tls: Tls | None) -> list[ServerAddress]:
    if not servers:
        raise SettingsError("servers is empty; allowed is one address or more")
    if isinstance(servers, str | ServerAddress):
        servers = [servers]
    parsed = [_parse_one(server) for server in servers]
    require_tls(parsed, tls)
    return parsed


def _parse_one(server: object) -> ServerAddress:
    match server:
        case ServerAddress():
            return server
        case str():
            return ServerAddress.parse(server)
        case (str(host), int(port)):
            bare = host.removeprefix("[").removesuffix("]")
            return ServerAddress.parse(f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}")
        case _:
            raise SettingsError(
                f"server address {server!r}: allowed is text such as 'tcp://host:8764', a "
                "ServerAddress, or a pair of host and port"
            )
