"""A client: registered with the servers, introduced to peers, and in channels with some of them.

It has two halves. ``Registration`` drives the core's ``ClientMachine`` over the bus, and keeps an
id registered; a ``Node`` has the channels and streams. They meet in three places: the node has the
id that was acknowledged, it dials the addresses of the peers that servers introduce, and it admits
the keys of those peers.
"""

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import HandshakeLimits, RosterAuthenticator, Security
from sphtp.core.channel.settings import ChannelSettings
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
from sphtp.core.control.records import Candidate, Member, Peer, ServerAddress, check_groups
from sphtp.core.control.settings import ClientLimits, ControlTimers
from sphtp.core.datagrams import Address
from sphtp.core.packing import pack
from sphtp.core.secure.identity import Identity
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.address_discovery import AddressDiscovery
from sphtp.shell.channel import Channel
from sphtp.shell.feed import Listener
from sphtp.shell.impairment import UNIMPAIRED, Impairment
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import block, running
from sphtp.shell.node import Node, NodeStatistics, open_node
from sphtp.shell.randomness import SECRETS, decisions
from sphtp.shell.registration import Registration, open_bus
from sphtp.shell.server_wait import ServerWait
from sphtp.shell.tls import Tls, require_tls

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.shell.group import GroupAdmission, LockstepGroup
    from sphtp.shell.multicast import Group
    from sphtp.shell.source import Source
    from sphtp.shell.subscription import Stream


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

    def timeout_error(self, seconds: float, others: int) -> UnreachableError:
        """Return the error to raise when the time is up."""
        name = f"peer {self._wanted:#010x}" if isinstance(self._wanted, int) else "the wanted peer"
        text = f"{name} did not appear within {seconds:g} s; {others} others are here"
        if not self._failures:
            return UnreachableError(text)
        *_, last = self._failures.values()
        error = UnreachableError(
            f"{text}; the function raised for {len(self._failures)} of them, last {last!r}"
        )
        error.__cause__ = last
        return error


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
        name: str,
    ) -> None:
        self._name = name
        self._groups: tuple[str, ...] = ()
        self._admissions: dict[str, GroupAdmission] = {}
        self._identity = identity
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
    def name(self) -> str:
        """The name that its peers see, or empty."""
        return self._name

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that this client is in."""
        return self._groups

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

    def set_groups(self, groups: Iterable[str]) -> None:
        """Change the groups that this client is in, which its peers get as ``peer.groups``.

        The groups given replace the present ones: ``client.set_groups([*client.groups, "fluid"])``
        enters one more. Raises ``SettingsError`` for more than 64, or a name that is not 1 to 255
        bytes of printable text.
        """
        self._groups = check_groups(groups)
        self._machine.set_groups(trio.current_time(), self._groups)
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

    async def wait_for_peer(self, wanted: Wanted, *, timeout: float = 30.0) -> Peer:
        """Wait for a peer with this id, or the first one for which a function returns true.

        A peer's data can be anything. If the function fails on a peer's data, that peer does not
        match, and the function is called again when the data has changed. An error that no data can
        cause is raised: a name, or an attribute of ``Peer``, that does not exist.

        Raises ``UnreachableError`` when none has come after ``timeout`` seconds; if the function
        failed, it says so, and the last error is its cause.
        """
        search = PeerMatcher(wanted)
        if isinstance(wanted, int) and wanted not in self._peers:
            self._machine.lookup(trio.current_time(), wanted)
            self._registration.flush()
        with trio.move_on_after(timeout):
            await self._registration.wait(lambda: search.find(self._peers) is not None)
        peer = search.find(self._peers)
        if peer is None:
            raise search.timeout_error(timeout, len(self._peers))
        return peer

    @block
    async def open_channel(self, peer_id: int, *, timeout: float = 5.0) -> AsyncIterator[Channel]:
        """Open a channel to a peer for the length of the block; leaving it drains and closes.

        Raises:
            UnreachableError: the servers do not know the peer within ``timeout`` seconds, what it
                told them is no key, or it does not answer within ``connect_timeout``.
            RefusedError: the peer is full, another one now has its address, or its messages are
                of other types.
        """
        (host, port), *more = await self._addresses_of(peer_id, timeout)
        async with self._node.open_channel(host, port, *more, wanted=peer_id) as channel:
            yield channel

    @block
    async def open_source(
        self,
        *topics: str,
        settings: "StreamSettings | None" = None,
        group: "Group | None" = None,
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
        peer_id: int,
        topic: str,
        *,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        ordered: bool = True,
        recover: bool = True,
        settings: "StreamSettings | None" = None,
        interface: str | None = None,
        timeout: float = 5.0,
    ) -> "AsyncIterator[Stream]":
        """Subscribe to a topic of a peer for the length of the block.

        Args:
            peer_id, topic: the peer, and one of its ``topics``.
            late_join: messages sent before: all that the source retains, or so many of the last.
            after: instead, every message after the one with this number, or its loss.
            session: the ``session`` of the stream in which this number was read.
            numbered: messages come as ``StreamMessage``, with their numbers.
            ordered: in the order of their sending; else as they arrive, each at most once.
            recover: True if messages that the stream does not repair are fetched over TCP.
            settings: timers and limits of this receiver, by default those of one network.
            interface: the address at which to join a multicast group, by default this client's.
            timeout: seconds to wait until the servers know the peer.

        Raises:
            UnreachableError: as ``open_channel``.
            RefusedError: the peer has no such topic, or all receivers that it may have, or its
                source began anew and ``session`` is no more.
            SettingsError: ``late_join`` is below 0, or ``after`` below -1.
        """
        # As in ``NodeStreams``: loaded with the first subscription.
        from sphtp.core.stream.settings import StreamSettings
        from sphtp.shell.subscription import Terms

        terms = Terms(
            late_join=late_join,
            after=after,
            session=session,
            numbered=numbered,
            ordered=ordered,
            recover=recover,
            settings=settings or StreamSettings(),
            interface=interface or self.address[0],
        )
        (host, port), *more = await self._addresses_of(peer_id, timeout)
        async with self._node.subscribe(
            host, port, *more, topic=topic, wanted=peer_id, terms=terms
        ) as stream:
            yield stream

    def join(
        self,
        group: str,
        *,
        size: int = 1,
        on_death: str = "raise",
        state: Callable[[], Any] | None = None,
    ) -> "AbstractAsyncContextManager[LockstepGroup]":
        """Be a member of a group in lock step for the length of the block.

        The block begins when this client takes part: with the first step, or at a later one on
        which all members agree. Leaving it waits until no other member needs this one any more; a
        block that an error ends is a death. Nothing that members send passes through a server.

        Args:
            group: its name, the same for all members.
            size: the members for which step 0 waits; those who come later are let in at once.
            on_death: what happens when a member dies: ``"raise"`` (the step fails at all members,
                with ``MemberDiedError``), ``"continue"`` (it is made without that member, at all)
                or ``"wait"`` (for a client of the same name, which takes its place).
            state: a function that returns the state of the simulation between two steps, for those
                who come later: their ``group.snapshot``. ``exchange`` calls it.

        Raises:
            RefusedError: the others have another ``on_death``.
            ExcludedError: those who let this client in are gone, or cannot be reached by all.
            SettingsError, StateError: an argument makes no sense, or this client is in the group.
        """
        from sphtp.shell.group import join_group

        return join_group(self, self._admissions, group, size, on_death, state)

    async def accept(self) -> Channel:
        """Wait for the next channel that a peer opens."""
        return await self._node.accept()

    def incoming(self) -> AsyncIterator[Channel]:
        """Iterate over the channels that peers open."""
        return self._node.incoming()

    async def _addresses_of(self, peer_id: int, timeout: float) -> tuple[Address, ...]:
        if not isinstance(peer_id, int):
            raise TypeError(f"{peer_id!r} is no id of a peer, which is an int")
        peer = await self.wait_for_peer(peer_id, timeout=timeout)
        if not peer.addresses:
            raise UnreachableError(f"peer {peer_id:#010x} has announced no address")
        return tuple(peer.addresses)

    def _tell_topics(self, topics: Sequence[str]) -> None:
        """Publish the topics of this client's sources to its peers."""
        self._topics = topics
        self._machine.set_topics(trio.current_time(), topics)
        self._registration.flush()


Servers = str | ServerAddress | Sequence[str | ServerAddress | Address]


@block
async def open_client(
    servers: Servers,
    *,
    name: str = "",
    data: Any = None,
    host: str | None = None,
    port: int = 0,
    advertise: Sequence[Address] = (),
    timeout: float = 30.0,
    wait: float = 0.0,
    timers: ControlTimers | None = None,
    channel_settings: ChannelSettings | None = None,
    instruments: Sequence[Instrument] = (),
    messages: "MessageCodec | None" = None,
    impairment: Impairment = UNIMPAIRED,
    seed: int | None = None,
    ids: Iterator[int] | None = None,
    identity: Identity | None = None,
    secret: bytes | None = None,
    server_keys: Collection[bytes] = (),
    tls: Tls | None = None,
    handshake_limits: HandshakeLimits | None = None,
    limits: ClientLimits | None = None,
) -> AsyncIterator[Client]:
    """Register with a cluster for the length of the block, which begins when all servers agreed.

    Args:
        servers: the address of one server, ``"tcp://host:8764"``, which names the others; or a
            list of several, as text, as ``ServerAddress`` or as pairs of host and port.
        name: the client's name for its peers, up to 64 printable characters; it need not be unique.
        data, limits: the client's data for its peers, up to 4096 bytes as msgpack; its limits.
        host, port: where to bind the UDP socket; by default the address that faces the servers.
        advertise: the addresses of that socket for peers, if they differ from the bound one.
        timeout: seconds within which running servers have to acknowledge the id.
        wait: seconds to wait for a server to start; by default one has to be running.
        timers, ids: the servers' periods; ids to try.
        channel_settings, handshake_limits: of its node.
        messages, instruments, impairment, seed: of its node, too.
        identity, secret, tls: this client's identity (by default a new one), and the secret and
            the certificates that servers ask for.
        server_keys: public keys of servers, or of clusters that certify them; no others are
            accepted.

    Raises:
        UnreachableError: no server is heard, and why: within a second where nobody listens and
            there is no ``wait``, or where a server has another secret or certificate. What may
            still come right is a warning in the log ``sphtp.client``, until time is up.
        RefusedError: the servers do not admit this client; ``reason`` is their word.
        SettingsError, UdpAddressError: an argument makes no sense, or its address no socket.
    """
    server_wait, peers = ServerWait(timeout, wait), dict[int, Peer]()
    discovery = AddressDiscovery(addresses := _parse(servers, tls), server_wait)
    async with open_node(
        host or await discovery.where_to_bind(),
        port,
        settings=channel_settings,
        messages=messages,
        security=_secure(identity := identity or draw_identity(), peers, handshake_limits),
        instruments=instruments,
        impairment=impairment,
        seed=seed,
    ) as node:
        where = await discovery.candidates_of(node.address, advertise)
        machine = _make_machine(seed, timers, addresses, where, data, ids, identity, limits, name)
        with open_bus(secret, tls, server_keys) as bus:
            registration = Registration(machine, bus, partial(_note, node, peers))
            async with _registered(registration, server_wait, tls):
                yield Client(node, machine, registration, identity, peers, name)


def _secure(identity: Identity, peers: dict[int, Peer], limits: HandshakeLimits | None) -> Security:
    return Security(
        identity=identity,
        roster=RosterAuthenticator(peers),
        limits=limits or HandshakeLimits(),
    )


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


def _make_machine(
    seed: int | None,
    timers: ControlTimers | None,
    servers: Sequence[ServerAddress],
    candidates: Sequence[Candidate],
    data: Any,
    ids: Iterator[int] | None,
    identity: Identity,
    limits: ClientLimits | None,
    name: str,
) -> ClientMachine:
    return ClientMachine(
        decisions(seed),
        timers or ControlTimers(),
        secrets=SECRETS,
        servers=servers,
        candidates=candidates,
        data=b"" if data is None else pack(data),
        ids=ids,
        key=identity.public,
        name=name,
        limits=limits or ClientLimits(),
    )


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
