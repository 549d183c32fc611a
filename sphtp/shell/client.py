"""A client, which registers with the servers and opens channels to the peers that they introduce.

A client has two halves. ``Registration`` drives the core's ``ClientMachine`` over the bus, and
keeps an id registered. A ``Node`` has the channels and streams. The node gets two results of the
registration: the acknowledged id, and the peers that servers introduce.
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
    """The numbers of control messages that were dropped, and of other rare events, by name."""
    node: NodeStatistics
    """The statistics of the client's node."""
    events_dropped: int
    """The number of events that listeners missed because they were too far behind."""
    undialable: int
    """The number of times that the bus could not dial an address of a server."""
    requests: RequestStatistics
    """The statistics of requests that this client sent and received."""


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
        """The groups that this client is in: those of ``set_groups``, and those of ``join``."""
        self.admissions: dict[str, GroupAdmission] = {}
        """The groups in lock step that this client has joined or is joining, by name."""
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
        """The id of this client in the cluster: the odd number that the servers acknowledged last.

        After an ``IdLost`` event the property keeps the old id until the servers acknowledge a new
        one.
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
        """The key pair of this client. The servers send its public key to the peers."""
        return self._identity

    @property
    def state(self) -> ClientState:
        """The state of the registration.

        An established client is SUSPENDED while no server is live, and RESUMING until the live
        servers have acknowledged its id again.
        """
        return self._machine.state

    @property
    def address(self) -> Address:
        """The address to which the UDP socket is bound, with the real port."""
        return self.node.address

    @property
    def peers(self) -> Mapping[int, Peer]:
        """The peers by id: the other clients that this one watches, or has looked up."""
        return MappingProxyType(self._peers)

    def peer_named(self, name: str) -> Peer | None:
        """Return the peer of this name, of several the one that entered last, or None."""
        return named(self._peers, name)

    @property
    def clock(self) -> Clock:
        """The clock that shows the cluster's time."""
        return self._clock

    @property
    def servers(self) -> Mapping[int, Member]:
        """The servers from which heartbeats arrive, by id."""
        return self._machine.servers

    def statistics(self) -> ClientStatistics:
        """Return the statistics of this client since its start."""
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

        The end of ``with client.events() as events:`` closes the iterator, and so does dropping its
        last reference. A reader that is 1024 events behind misses further ones, which
        ``statistics().events_dropped`` counts.
        """
        return self._registration.feed.listen()

    def set_data(self, data: Any) -> None:
        """Change this client's data, which its peers get as ``peer.data``.

        Raises ``MessageTooLargeError`` for more than 4096 bytes as msgpack or too deep a nesting,
        and ``TypeError`` or ``OverflowError`` for a value that msgpack cannot carry.
        """
        self._machine.set_data(trio.current_time(), pack(data))
        self._registration.flush()

    def set_groups(self, groups: Iterable[str]) -> None:
        """Change the groups that this client is in, which its peers get as ``peer.groups``.

        The groups given replace those of the last call: ``client.set_groups([*client.groups,
        "fluid"])`` enters one more. Groups in lock step, which ``join`` has entered, are not
        affected. Raises ``SettingsError`` for more than 64 groups of both kinds together, for more
        than 2048 bytes of names, of which each counts one more, or for a name that is not 1 to 255
        bytes of printable text.
        """
        self.own_groups.choose(groups)

    def set_presence(self, groups: Iterable[str] | None) -> None:
        """Change the groups whose members this client watches; None stands for all clients.

        Peers that are in none of these groups leave ``peers``, except those that this client has
        looked up by id; see ``presence`` of ``open_client``. Raises as ``set_groups``, and
        ``trio.ClosedResourceError`` if this client was closed.
        """
        self._machine.set_presence(trio.current_time(), groups)
        self._registration.flush()

    def send_command(self, command: int, parameters: Sequence[Parameter] = ()) -> None:
        """Send a message of the application to all servers.

        Raises:
            StateError: the number of the command or of a parameter is not from 0x0100 to 0xffff, or
                ``state`` is not ESTABLISHED.
            MessageTooLargeError: a parameter is over 65,535 bytes, or the message over 65,536. The
                message has 22 bytes besides the parameters, 4 more for each parameter, and 36 more
                with a secret.
        """
        self._machine.publish(trio.current_time(), command, parameters)
        self._registration.flush()

    async def wait_for_peer(self, wanted: Wanted) -> Peer:
        """Wait for a peer with this id or name, or for one for which a function returns true.

        ``with trio.fail_after(10):`` around the call bounds the wait. A wait of more than 5 s is
        logged once under ``sphtp.client``, with the wanted peer, and so is a cancelled wait.

        A peer's data can be any value. If the function raises an error for a peer, that peer does
        not match, and the client calls the function again after the next change. The log then has
        the last error. The method raises errors that no data can cause: for a name or an attribute
        of ``Peer`` that does not exist, and for a function that does not take one argument.

        Raises:
            RefusedError: the servers refuse this client.
            trio.ClosedResourceError: this client was closed before the call or during it.
            TypeError: ``wanted`` is neither id nor name nor function.
        """
        return await self._search.wait_for(wanted)

    @block
    async def open_channel(self, peer: Reachable) -> AsyncIterator[Channel[Any]]:
        """Open a channel to a peer, given as ``Peer``, id or name, for the length of the block.

        Leaving the block waits until all reliable messages have arrived, and closes the channel.

        Raises:
            UnreachableError: the servers do not introduce the peer within ``connect_timeout``, the
                peer has announced no usable address or key, it does not answer within
                ``connect_timeout``, or this client was closed while it dialled.
            RefusedError: the peer accepts no further channel, does not admit this client, or has
                other message types or another version of the protocol; another peer now has its
                address; or the servers refuse this client.
            trio.ClosedResourceError: this client was closed.
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

        Peers get the topics as ``peer.topics``, and join the source by ``subscribe`` or
        ``subscribe_to``.

        Raises as ``Node.open_source``, and ``SettingsError`` for more than 64 topics of one client,
        or for more than 2048 bytes of topics, of which each counts one more.
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
        """Subscribe to topics of all present and future peers, for the length of the block.

        Args:
            pattern: a topic, such as ``"positions/*"``. Slashes separate its levels. A level ``*``
                stands for any one level, and ``**`` for any number of levels, or none.
            latest: True to get only the newest message of each source and topic. A newer message
                replaces one that the program has not read; ``skipped`` of the newer message counts
                replaced and lost ones.
            late_join, settings: as for ``subscribe_to``; they apply to each source.

        Raises ``SettingsError`` if ``pattern`` is not valid, or ``late_join`` is below 0.
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
                delivered, or its loss is reported.
            session: the ``session`` of the subscription that delivered message ``after``.
            numbered: True to get each message as a ``StreamMessage``, with its number.
            settings: timers and limits of this receiver, instead of ``Config.streams``.

        Raises:
            UnreachableError: the servers do not introduce the peer, or it does not answer in time.
            RefusedError: the peer has no such topic or accepts no more receivers, or its source
                has another session than ``session``. Otherwise as ``open_channel``.
            SettingsError: ``late_join`` is below 0, ``after`` is below -1, both are given, or the
                topic is not valid.
            UdpAddressError: this machine cannot join the multicast group of the source.
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

        In lock step, a member exchanges data with the others at each step before it begins the next
        one. The block begins when this client is a member: from step 0 on, or from a later step on
        which all members agree. Leaving the block waits, up to 5 s, until no other member needs
        this one any more. If an error other than ``GroupError``, or a cancellation, ends the block,
        the other members treat that as a death. The members send their data directly to each other,
        and never through a server.

        Args:
            group: the name of the group, the same for all members.
            size: the number of members for which step 0 waits. Clients that join later are admitted
                without a wait for others.
            on_death: the policy for the death of a member, the same for all members. ``"raise"``:
                the step fails at all members, with ``MemberDiedError``. ``"continue"``: the others
                make the step without that member. ``"wait"``: the step waits for a client of the
                same name, which takes the place of that member.
            state: a function that returns the state of the simulation at the beginning of the
                present step. ``exchange`` calls the function when a client joins later, and that
                client gets the state as ``group.snapshot``.

        Raises:
            RefusedError: the other members have another ``on_death``; or, among neighbours, those
                with ``state`` are past the first step of this client (``reason`` is ``"state"``).
            ExcludedError: the members that admitted this client are gone, the members cannot reach
                each other, or another group of this name was founded at the same time.
            SettingsError: an argument is invalid, or this client would be in too many groups.
            StateError: this client is in the group already, or watches other groups only.
            trio.ClosedResourceError: this client was closed. If that happens inside the block, the
                block ends with this error.
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

        The deadline of the scope around the call travels with the request, and the peer cancels the
        handler when it has passed. If the call is cancelled, the peer cancels the handler. A
        request waits while 1,024 others to the same peer have no reply. The value and the reply are
        messages like those of a channel.

        Args:
            peer: the peer, its id, or its name.
            name: the name under which the peer serves such requests.
            value: the value that the handler gets.
            errors: subclasses of ``RequestError``. If the handler raises an error of a class with
                the same name, that subclass is raised here.

        Raises:
            RequestError: the handler raised it.
            HandlerCrashedError: the handler raised another error, or its result is no value that a
                message carries. The log of the peer has the error.
            RefusedError: the request was not handled if ``reason`` is ``"unknown"`` (the peer
                serves no such name), ``"busy"`` (it handles too many requests), or ``"malformed"``
                (the value has no type of the peer's messages). ``reason`` is ``"cancelled"`` if the
                deadline passed at the peer, and ``"ended"`` if the peer stopped serving the name.
                If the peer refuses the channel, the error is that of ``open_channel``.
            UnreachableError: as ``open_channel``, if no channel for requests to the peer is open.
            trio.BrokenResourceError: the channel ended before the reply, because the peer vanished
                or was closed, or this client was. The peer may have handled the request.
            trio.ClosedResourceError: this client was closed before the request left.
            RemoteError: the reply has no type of this program's messages.
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
        """Serve requests of peers for a name, until cancelled.

        For each request a task awaits ``handler(request)``. Its result is the reply. If it raises a
        ``RequestError``, the call of the peer raises that error. Any other error, and that of a
        result that no message carries, is logged under ``sphtp.requests``: the peer gets a
        ``HandlerCrashedError`` without details, and this method goes on. Cancelling the method
        cancels its handlers, and the peers get a ``RefusedError`` with the reason ``"ended"``.

        Args:
            name: 1 to 255 bytes of printable text.
            handler: an async function that takes a ``Request``.
            limit: the most requests of all peers at once; further ones are refused as ``"busy"``.
                So are those for which the requests of all names would exceed 256 MiB.
            task_status: for ``await nursery.start(client.serve, name, handler)``, which returns
                as soon as the name is served.

        Raises:
            StateError: the name is served already.
            SettingsError: the name or ``limit`` is out of range.
            trio.ClosedResourceError: this client was closed.
        """
        await self._requests.serve(name, handler, limit, task_status)

    async def accept(self) -> Channel[Any]:
        """Wait for the next channel that a peer opens, and return the channel.

        Raises ``trio.ClosedResourceError`` if this client was closed before the call or during it.
        """
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
    """Register with a cluster for the length of the block, which begins when all servers agree.

    Args:
        servers: the address of one server, ``"tcp://host:8764"``, which sends those of the others;
            or a list of several, as text, as ``ServerAddress`` or as pairs of host and port. With
            None, the client takes the servers of the environment variable ``SPHTP_CLIENT_SERVER``.
            Without this variable, it looks for announced servers on this host, and then on this
            network.
        name: the client's name for its peers, up to 64 printable characters; it need not be unique.
        presence: the groups whose members this client watches; by default it watches all clients.
            The servers report no other client to it, but it can reach any client by id. An empty
            list stands for no client. All servers need a version that supports this.
        data: the client's data for its peers, up to 4096 bytes as msgpack.
        host, port: the address to which the UDP socket is bound. By default this is the address
            that faces the servers, or the wildcard address if different ones do.
        advertise: the addresses of that socket for peers, if they differ from the bound one.
        ids: ids to try before random ones; for tests.
        config: the behaviour of this client, such as its identity in ``security``, the secret of
            the servers in ``cluster``, and the time to wait for them in ``timers``. If ``servers``
            and ``cluster`` are not given, ``SPHTP_CLIENT_SECRET_FILE`` names the file of the
            secret. If ``servers`` and ``timers`` are not given, ``SPHTP_CLIENT_HEARTBEAT`` and
            ``SPHTP_CLIENT_EXPIRY`` set these two timers.

    Raises:
        UnreachableError: no server answers; the message has the cause. It is raised within a second
            if no program listens and there is no ``timers.start_timeout``, or if a server has
            another secret or certificate. A cause that may pass is logged as a warning under
            ``sphtp.client``, until the longer of ``timers.answer_timeout`` and
            ``timers.start_timeout`` ends. Without ``servers``: the search found no server within
            3 s or ``timers.start_timeout``, whichever is longer, or it found several clusters.
        RefusedError: the servers do not admit this client; ``reason`` is a word for their reason.
        SettingsError, UdpAddressError: an argument is invalid, or its address cannot be bound.
        MessageTooLargeError, TypeError, OverflowError: as ``Client.set_data``, for ``data``.
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
            # The client is entered first: peers may send requests as soon as servers introduce it.
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
    # Only programs without an address load this module.
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
    """Find paths through NAT until cancelled, once a server answers STUN, or if a relay is set.

    Return without the extra ``nat`` if no relay is set.
    """
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
