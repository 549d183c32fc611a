"""A client, which registers with the servers and opens channels to the peers that they introduce.

It has two halves. ``Registration`` drives the core's ``ClientMachine`` over the bus, and keeps an
id registered; a ``Node`` has the channels and streams. They meet in three places: the node has the
id that was acknowledged, it dials the addresses of the peers that servers introduce, and it admits
the keys of those peers.
"""

import logging
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, overload

import trio

from sphtp.core.channel.security import RosterAuthenticator, Security
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import (
    ClientEvent,
    Established,
    PeerChanged,
    PeerEntered,
    PeerLeft,
)
from sphtp.core.control.records import Candidate, Member, Peer
from sphtp.core.control.settings import ClientLimits, ControlTimers
from sphtp.core.datagrams import Address
from sphtp.core.packing import pack
from sphtp.core.printable import peer_label
from sphtp.core.requests.table import RequestStatistics
from sphtp.core.secure.identity import Identity
from sphtp.core.topics import TopicPattern
from sphtp.errors import RequestError, SettingsError, StateError
from sphtp.shell.addresses import AddressDiscovery, Servers, parse_servers
from sphtp.shell.channel import Channel
from sphtp.shell.clock import Clock
from sphtp.shell.config import DEFAULTS, SECRETS, Config, decisions
from sphtp.shell.feed import Listener
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import ScopedService, block, running
from sphtp.shell.node import Handler, Node, NodeStatistics, open_node
from sphtp.shell.peer_search import CallersIntroduced, PeerSearch, Reachable, Wanted, named
from sphtp.shell.probe import ServerWait
from sphtp.shell.registration import OwnGroups, Registration, open_bus
from sphtp.shell.requests import MOST_HANDLED, RequestHandler, Requests
from sphtp.shell.tls import Tls

if TYPE_CHECKING:
    from sphtp.core.nat import TurnServer
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.shell.group import GroupAdmission, LockstepGroup
    from sphtp.shell.source import Source
    from sphtp.shell.subscription import StreamMessage, Subscription
    from sphtp.shell.topics import TopicSubscription
    from sphtp.shell.udp import MulticastGroup


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
    requests: RequestStatistics
    """The requests that it sent and received."""


class Client(ScopedService):
    """A registered client. Made by ``open_client``."""

    def __init__(
        self,
        node: Node,
        machine: ClientMachine,
        registration: Registration,
        identity: Identity,
        peers: Mapping[int, Peer],
        search: PeerSearch,
        name: str,
    ) -> None:
        self._name = name
        self.own_groups = OwnGroups(registration)
        """The groups that this client is in, chosen and joined."""
        self.admissions: dict[str, GroupAdmission] = {}
        """The groups in lock step that it is in, by name."""
        self._identity = identity
        self._search = search
        self.node = node
        """The node whose socket its channels and streams share."""
        self._machine = machine
        self._clock = Clock(machine.clock, registration.wait)
        self._peers = peers
        self._topics: Sequence[str] = ()
        self._registration = registration
        self._requests = Requests(
            node.services, lambda: node.peer_id, self._find_addresses, self._label
        )

    def __repr__(self) -> str:
        host, port = self.address
        return f"<Client {peer_label(self.name, self.id)} {self.state.name} at {host}:{port}>"

    def _label(self, peer_id: int) -> str:
        peer = self._peers.get(peer_id)
        return peer_label("" if peer is None else peer.name, peer_id)

    @property
    def id(self) -> int:
        """The odd number that all servers acknowledged last.

        After ``IdLost`` it stays until another one is acknowledged.
        """
        return self.node.peer_id

    @property
    def name(self) -> str:
        """The name that its peers see, or empty."""
        return self._name

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that this client is in."""
        return self.own_groups.names

    @property
    def identity(self) -> Identity:
        """The identity of this client; the servers tell its peers the public key."""
        return self._identity

    @property
    def state(self) -> ClientState:
        """The state of its registration; SUSPENDED while no server is live."""
        return self._machine.state

    @property
    def address(self) -> Address:
        """The address that its UDP socket is bound to, with the real port."""
        return self.node.address

    @property
    def peers(self) -> Mapping[int, Peer]:
        """The other clients of the cluster that this one watches, by id."""
        return MappingProxyType(self._peers)

    def peer_named(self, name: str) -> Peer | None:
        """Return the peer of this name, or None. Of several return the one that entered last."""
        return named(self._peers, name)

    @property
    def clock(self) -> Clock:
        """The cluster's time."""
        return self._clock

    @property
    def servers(self) -> Mapping[int, Member]:
        """The live servers, by id."""
        return self._machine.servers

    def statistics(self) -> ClientStatistics:
        """Return the figures so far."""
        counters = self._machine.counters
        return ClientStatistics(
            counters=counters.as_dict(),
            node=self.node.statistics(),
            events_dropped=self._registration.feed.dropped,
            undialable=counters[Count.UNDIALABLE],
            requests=self._requests.statistics(),
        )

    def events(self) -> Listener[ClientEvent]:
        """Return an async iterator over the events from now on; it ends with the client.

        ``with client.events() as events:`` closes it, and so does dropping the last reference. A
        reader that falls 1024 events behind misses some; ``statistics`` counts them.
        """
        return self._registration.feed.listen()

    def set_data(self, data: Any) -> None:
        """Change this client's data, and send it to its peers."""
        self._machine.set_data(trio.current_time(), pack(data))
        self._registration.flush()

    def set_groups(self, groups: Iterable[str]) -> None:
        """Change the groups that this client is in, which its peers get as ``peer.groups``.

        The groups given replace those of the last call: ``client.set_groups([*client.groups,
        "fluid"])`` enters one more. Groups in lock step stay as long as they are joined. Raises
        ``SettingsError`` for more than 64 of both, or a name that is not 1 to 255 bytes of
        printable text.
        """
        self.own_groups.choose(groups)

    def set_presence(self, groups: Iterable[str] | None) -> None:
        """Change the groups whose members this client watches; None stands for everybody.

        Those that are in none of them leave ``peers``; see ``open_client``. Raises as
        ``set_groups``.
        """
        self._machine.set_presence(trio.current_time(), groups)
        self._registration.flush()

    def send_command(self, command: int, parameters: Sequence[Parameter] = ()) -> None:
        """Send the servers a message of the application.

        Raises:
            StateError: command and parameters do not have numbers from 0x0100 to 0xffff, or no
                server is live (``state``).
            MessageTooLargeError: a parameter is over 65,535 bytes, or the message over 65,536. The
                message has 22 bytes besides the parameters, 4 more for each parameter, and 36 more
                with a secret.
        """
        self._machine.publish(trio.current_time(), command, parameters)
        self._registration.flush()

    async def wait_for_peer(self, wanted: Wanted) -> Peer:
        """Wait for a peer with this id or name, or the first for which a function returns true.

        ``with trio.fail_after(10):`` around the call bounds the wait. A wait of more than 5 s says
        once in the log ``sphtp.client`` what it waits for, and so does one that is cancelled.

        A peer's data can be anything. If the function fails on a peer's data, that peer does not
        match, and the client calls the function again when the data has changed; the log has the
        last error. An error that no data can cause is raised: a name, or an attribute of ``Peer``,
        that does not exist.

        Raises:
            RefusedError: the servers refuse this client.
            trio.ClosedResourceError: this client was closed, before or meanwhile.
            TypeError: ``wanted`` is neither id nor name nor function.
        """
        return await self._search.wait_for(wanted)

    @block
    async def open_channel(self, peer: Reachable) -> AsyncIterator[Channel[Any]]:
        """Open a channel to a peer, given as ``Peer``, id or name, for the length of the block.

        Leaving the block drains and closes the channel.

        Raises:
            UnreachableError: the servers do not announce the peer within ``connect_timeout``, its
                announced key is invalid, or it does not answer within ``connect_timeout``.
            RefusedError: the peer accepts no further channel, another peer now has its address, or
                its message types differ.
        """
        number, addresses = await self._search.reach(peer)
        async with self.node.services.open(None, addresses, number) as channel:
            yield channel

    @block
    async def publish(
        self,
        *topics: str,
        settings: "StreamSettings | None" = None,
        group: "MulticastGroup | None" = None,
    ) -> "AsyncIterator[Source]":
        """Open a source of one topic or more, as ``Node.open_source`` does, and publish the topics.
        Peers find it by ``peer.topics``, and join it by ``subscribe_to``.

        Raises as ``Node.open_source``, and ``SettingsError`` for more than 64 topics of one client,
        or too long ones.
        """
        async with self.node.open_source(*topics, settings=settings, group=group) as source:
            self._set_topics([*self._topics, *topics])
            try:
                yield source
            finally:
                self._set_topics([topic for topic in self._topics if topic not in topics])

    @block
    async def subscribe(
        self,
        pattern: str,
        *,
        latest: bool = False,
        late_join: bool | int = False,
        settings: "StreamSettings | None" = None,
    ) -> "AsyncIterator[TopicSubscription[Any]]":
        """Subscribe to topics of all peers, present and to come, for the length of the block.

        Args:
            pattern: a topic, of which a level may be ``*``, any level, or ``**``, any number of
                levels: ``"positions/*"``.
            latest: True if only the newest message of each source and topic is wanted. Older ones
                that the program has not read are dropped; ``skipped`` of a message counts them and
                those that are lost.
            late_join, settings: as ``subscribe_to``, of each source.

        Raises ``SettingsError`` if ``pattern`` is none, or ``late_join`` below 0.
        """
        # As in ``NodeStreams``: loaded with the first subscription.
        from sphtp.shell.subscription import Terms
        from sphtp.shell.topics import TopicSubscription

        tasks = list[Callable[[], Awaitable[None]]]()
        subscription = TopicSubscription[Any](
            tasks.append,
            TopicPattern(pattern),
            self._peers,
            self.events,
            partial(self.subscribe_to, numbered=True, settings=settings),
            Terms(late_join=late_join).late_join,
            is_latest=latest,
        )
        async with running(tasks[0]), subscription:
            yield subscription

    @overload
    def subscribe_to(
        self,
        peer: Reachable,
        topic: str,
        *,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: Literal[True],
        settings: "StreamSettings | None" = None,
    ) -> "AbstractAsyncContextManager[Subscription[StreamMessage[Any]]]": ...

    @overload
    def subscribe_to(
        self,
        peer: Reachable,
        topic: str,
        *,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        settings: "StreamSettings | None" = None,
    ) -> "AbstractAsyncContextManager[Subscription[Any]]": ...

    @block
    async def subscribe_to(
        self,
        peer: Reachable,
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
            peer, topic: the peer, its id or its name, and one of its ``topics``.
            late_join: True to get all earlier messages that the source retains, or the number of
                earlier messages to get.
            after: instead of ``late_join``, the number of a message: every later message is
                delivered, or its loss reported.
            session: the ``session`` of the subscription in which that number was read.
            numbered: True to get each message as a ``StreamMessage``, with its number.
            settings: timers and limits of this receiver, instead of ``Config.streams``.

        Raises:
            UnreachableError: the servers do not know the peer, or it does not answer in time.
            RefusedError: the peer has no such topic or accepts no more receivers, or its source
                has another session than ``session``.
            SettingsError: ``late_join`` is below 0, or ``after`` below -1.
        """
        number, addresses = await self._search.reach(peer)
        streams = self.node.streams
        dial = partial(self.node.services.open, streams.service, addresses, number)
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

    @block
    async def join(
        self,
        group: str,
        *,
        size: int = 1,
        on_death: str = "raise",
        state: Callable[[], Any] | None = None,
    ) -> "AsyncIterator[LockstepGroup]":
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
            SettingsError, StateError: an argument is invalid, or this client is in the group, or it
                watches other groups only.
            trio.ClosedResourceError: this client was closed; it ends the block as well.
        """
        from sphtp.shell.group import join_group

        if not self._machine.is_watching(group):
            text = f"this client does not watch the group {group!r} that it is to join"
            raise StateError(f"{text}; set_presence or open_client(presence=...) makes it")
        admissions = self.admissions
        async with join_group(self, self.node, admissions, group, size, on_death, state) as joined:
            yield joined

    async def request(
        self,
        peer: Reachable,
        name: str,
        value: Any = None,
        *,
        errors: Collection[type[RequestError]] = (),
    ) -> Any:
        """Send a request to a peer and return the reply of its handler.

        The deadline of the scope around the call travels with the request, and the handler ends
        with it. If the call is cancelled, the handler is cancelled. A request waits while 1,024 to
        the same peer have no answer. The value and the reply are messages as those of a channel.

        Args:
            peer: the peer, its id, or its name.
            name: the name under which the peer serves it.
            value: what its handler gets.
            errors: subclasses of ``RequestError``. If the handler raises one with the name of one
                of these, this one is raised.

        Raises:
            RequestError: the handler raised it.
            HandlerCrashedError: the handler raised another error, which the peer has in its log.
            RefusedError: ``reason`` is ``"unknown"`` if the peer serves no such name, ``"busy"`` if
                it handles too many, ``"malformed"`` if the value is of no type of it: the request
                was not handled. It is ``"cancelled"`` or ``"ended"`` if the handler was cancelled
                at the peer, by its deadline or otherwise. It is as for ``open_channel`` if the peer
                refuses this client.
            UnreachableError: the peer did not answer when a channel to it was to be opened.
            trio.BrokenResourceError: the peer vanished. It may have handled the request.
            trio.ClosedResourceError: this client was closed.
            RemoteError: the reply is no message of this program.
            SettingsError: the name is not 1 to 255 bytes of printable text.
            MessageTooLargeError, TypeError, OverflowError, WireError: as ``Channel.send``.
        """
        if isinstance(peer, Peer | int):
            peer_id = peer.id if isinstance(peer, Peer) else peer
        else:
            peer_id, _ = await self._search.reach(peer)
        return await self._requests.request(peer_id, name, value, errors)

    async def serve(
        self,
        name: str,
        handler: RequestHandler,
        *,
        limit: int = MOST_HANDLED,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer requests of peers for a name until cancelled, as ``trio.serve_listeners`` does.

        Each request is a task in which ``handler`` is awaited with a ``Request``; what it returns
        is the reply. A ``RequestError`` that it raises is raised at the caller. Any other error is
        written to the log ``sphtp.requests``; the caller gets a ``HandlerCrashedError`` without
        details, and this function goes on. When it is cancelled, so are its handlers, and their
        callers get an error.

        Args:
            name: 1 to 255 bytes of printable text.
            handler: an async function of a ``Request``.
            limit: the most requests of all peers at once; more are refused as ``"busy"``.
            task_status: for ``await nursery.start(client.serve, name, handler)``, which returns
                when requests are answered.

        Raises:
            StateError: the name is served already.
            SettingsError: the name or ``limit`` is out of range.
            trio.ClosedResourceError: this client was closed.
        """
        await self._requests.serve(name, handler, limit, task_status)

    async def accept(self) -> Channel[Any]:
        """Wait for the next channel that a peer opens."""
        return await self.node.accept()

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
        await self.node.serve_channels(
            handler, handler_nursery=handler_nursery, task_status=task_status
        )

    async def _find_addresses(self, peer_id: int) -> Sequence[Address]:
        return (await self._search.reach(peer_id))[1]

    @asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        async with running(self._requests.run):
            yield

    def _set_topics(self, topics: Sequence[str]) -> None:
        """Publish the topics of this client's sources to its peers."""
        self._machine.set_topics(trio.current_time(), topics)
        self._topics = topics
        self._registration.flush()


@block
async def open_client(
    servers: Servers | None = None,
    *,
    name: str = "",
    presence: Iterable[str] | None = None,
    data: Any = None,
    host: str | None = None,
    port: int = 0,
    advertise: Sequence[Address] = (),
    ids: Iterator[int] | None = None,
    config: Config = DEFAULTS,
) -> AsyncIterator[Client]:
    """Register with a cluster for the length of the block; all servers have agreed when it begins.

    Args:
        servers: the address of one server, ``"tcp://host:8764"``, which names the others; or a
            list of several, as text, as ``ServerAddress`` or as pairs of host and port. None takes
            those of the environment variable ``SPHTP_CLIENT_SERVER``, or else looks for announced
            servers on this host, and then on this network.
        name: the client's name for its peers, up to 64 printable characters; it need not be unique.
        presence: the groups whose members this client wants to know; by default it knows everybody.
            It gets no message of others entering or leaving, but by id it can reach them. An empty
            list stands for nobody. All servers have to be of a version that supports this.
        data: the client's data for its peers, up to 4096 bytes as msgpack.
        host, port: where to bind the UDP socket; by default the address that faces the servers.
        advertise: the addresses of that socket for peers, if they differ from the bound one.
        ids: ids to try before random ones; for tests.
        config: the behaviour of this client: its identity in ``security``, the secret of its
            servers in ``cluster``, how long to wait for them in ``timers``. Without ``servers`` a
            part that is not given is that of ``SPHTP_CLIENT_SECRET_FILE``, or of
            ``SPHTP_CLIENT_HEARTBEAT`` and ``SPHTP_CLIENT_EXPIRY``.

    Raises:
        UnreachableError: no server answers; the message has the cause. Raised within a second if no
            program listens and there is no ``timers.start_timeout``, or if a server has another
            secret or certificate. A cause that may pass is a warning in the log ``sphtp.client``
            until ``timers.answer_timeout`` ends. Without ``servers``: the search found no server
            within 3 s or ``timers.start_timeout``, or it found several clusters.
        RefusedError: the servers do not admit this client; ``reason`` is their reason.
        SettingsError, UdpAddressError: an argument is invalid, or its address cannot be bound.
        ModuleNotFoundError: ``config.relay`` is given, and the extra ``nat`` is not installed.
    """
    if servers is None:
        servers, config = await _look_for_servers(config)
    timers, cluster = config.timers or ControlTimers(), config.cluster
    callers = CallersIntroduced(peers := dict[int, Peer]())
    security = _secure(config.security, callers)
    server_wait = ServerWait(timers.answer_timeout, timers.start_timeout)
    discovery = AddressDiscovery(addresses := parse_servers(servers, cluster.tls), server_wait)
    async with open_node(
        host or await discovery.where_to_bind(),
        port,
        config=replace(config, security=security.of_node),
    ) as node:
        hosts, announces = await discovery.candidates_of(node.address, advertise), not advertise
        machine = ClientMachine(
            decisions(config.seed),
            timers,
            secrets=SECRETS,
            servers=addresses,
            candidates=hosts,
            data=b"" if data is None else pack(data),
            ids=ids,
            key=security.identity.public,
            name=name,
            presence=presence,
            limits=config.client_limits or ClientLimits(),
        )
        node.roster.peers = peers
        with open_bus(cluster.secret, cluster.tls, cluster.server_keys) as bus:
            registration = Registration(machine, bus, partial(_note, node, peers))
            search = PeerSearch(peers, machine, registration, config.channel.connect_timeout)
            client = Client(node, machine, registration, security.identity, peers, search, name)
            # Peers may send requests as soon as servers introduce this client.
            async with (
                client,
                _registered(registration, server_wait, cluster.tls),
                running(
                    partial(
                        _traverse_nat, node, machine, registration, hosts, announces, config.relay
                    )
                ),
            ):
                callers.look_up = search.look_up_caller
                yield client


async def _look_for_servers(config: Config) -> tuple[Servers, Config]:
    """Return the servers of the environment, or announced ones, and the config for them."""
    # Loaded only by programs that search.
    from sphtp.shell.discovery import config_of_environment, find_servers, servers_of_environment

    config = config_of_environment(config, os.environ)
    return servers_of_environment(os.environ) or await find_servers(config), config


class _ClientSecurity(NamedTuple):
    """The security of a client's node, which admits only peers that servers introduce."""

    identity: Identity
    of_node: Security


def _secure(security: Security | None, peers: Mapping[int, Peer]) -> _ClientSecurity:
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


async def _traverse_nat(
    node: Node,
    machine: ClientMachine,
    registration: Registration,
    hosts: Sequence[Candidate],
    announces: bool,
    relay: "TurnServer | None",
) -> None:
    """Find ways through NAT, as soon as a server answers STUN, until cancelled."""
    while not machine.stun_servers and relay is None:
        await registration.next_change()
    try:
        driver = node.roster.open_nat()
    except ModuleNotFoundError as error:
        if relay is not None:
            raise
        log.warning("servers help peers behind NAT, and this client cannot use that: %s", error)
        return
    await driver.run(machine, registration, hosts, announces=announces, relay=relay)


def _note(node: Node, peers: dict[int, Peer], event: ClientEvent) -> None:
    """Update the id and the peers from an event."""
    match event:
        case Established(client_id, _):
            node.roster.set_own_id(client_id)
        case PeerEntered(peer) | PeerChanged(peer):
            peers[peer.id] = peer
        case PeerLeft(peer, _):
            peers.pop(peer.id, None)
        case _:
            pass
