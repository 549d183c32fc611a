"""A node: one UDP socket, and all channels behind it.

The channels of a node share the socket, the core's ``Endpoint``, the ``Loop`` that moves datagrams
between the two, the streams, and the task that runs callbacks. The node makes a ``Channel`` for
each connection that it dials or that a program or a service accepts. The loop wakes the channel
when the connection changes. The end of the node's block ends all of them. Afterwards the node
lingers: it acknowledges packets that peers repeat because the last ack was lost.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import asdict, dataclass
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, overload

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.control.records import Peer
from sphtp.core.datagrams import Address
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.packing import PLAIN
from sphtp.core.schema import Schema
from sphtp.shell.addresses import local_address_towards, resolve
from sphtp.shell.channel import Channel, ChannelHooks
from sphtp.shell.config import DEFAULTS, SECRETS, Config, decisions
from sphtp.shell.encoding import Encoding, encoding_for
from sphtp.shell.impairment import Impairment, open_socket
from sphtp.shell.instruments import LimitLog, watching
from sphtp.shell.keys import open_key_log
from sphtp.shell.lifetime import ScopedService, block, running
from sphtp.shell.loop import Loop
from sphtp.shell.node_streams import NodeStreams
from sphtp.shell.receipt import CallbackQueue
from sphtp.shell.services import Service, Services
from sphtp.shell.shared_memory import SharedMemory, open_rendezvous
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.shell.channel import ServiceChannel
    from sphtp.shell.nat import NatDriver
    from sphtp.shell.source import Source
    from sphtp.shell.subscription import StreamMessage, Subscription
    from sphtp.shell.udp import MulticastGroup

Handler = Callable[[Channel[Any]], Awaitable[object]]
"""An async function that serves one channel, which is closed when the function returns."""


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Counts of datagrams, handshakes and limits of a node since it opened.

    The counters up to ``receive_calls`` are of datagrams and system calls at the socket.
    ``..._on_purpose`` counts the faults that ``Impairment`` has caused. ``malformed`` and
    ``unknown`` count datagrams without a channel. ``refused_...`` count refused channels;
    ``over_max_channels`` and ``over_backlog`` count those that these settings refused, or ended to
    make room. ``HandshakeCounters`` describes the counters from ``in_the_clear`` to
    ``paths_changed``. ``stream_...`` counts rejected datagrams of streams, and frames of their
    history: ``malformed``, of an ``unknown`` session or receiver, ``forged``, ``replayed``, sealed
    with an ``unknown_key``, or ``foreign``, which means from another address than the source's.
    ``BoundCounters`` describes the counters from ``over_receive_buffer`` on.
    """

    sent: int
    received: int
    send_errors: int
    receive_errors: int
    send_calls: int
    receive_calls: int
    dropped_on_purpose: int
    duplicated_on_purpose: int
    held_back_on_purpose: int
    malformed: int
    unknown: int
    refused_full: int
    over_backlog: int
    over_max_channels: int
    refused_wrong_peer: int
    refused_closed: int
    refused_schema: int
    refused_sealed: int
    refused_version: int
    in_the_clear: int
    forged: int
    replayed: int
    cookies_sent: int
    handshakes: int
    handshakes_over_rate: int
    handshakes_over_limit: int
    strangers: int
    denied: int
    resets_sent: int
    resets_over_rate: int
    resets_taken: int
    resets_forged: int
    paths_tried: int
    paths_changed: int
    stream_malformed: int
    stream_unknown: int
    stream_forged: int
    stream_replayed: int
    stream_unknown_key: int
    stream_foreign: int
    over_receive_buffer: int
    over_receive_buffer_bytes: int
    over_max_message: int
    over_unreliable_buffer: int
    over_node_buffer_bytes: int
    held_by_receive_buffer: int
    held_by_receive_buffer_bytes: int


class NodeRoster:
    """The node's place in a cluster, which its client sets: its id, and the introduced peers."""

    def __init__(self, udp: UdpSocket, endpoint: Endpoint, loop: Loop) -> None:
        self.peers: Mapping[int, Peer] = {}
        """The peers, by id. The texts of errors of a channel have the name of its peer."""
        self.nat: NatDriver | None = None
        """The driver of NAT traversal; None until ``open_nat``."""
        self._udp = udp
        self._endpoint = endpoint
        self._loop = loop

    def open_nat(self) -> "NatDriver":
        """Start NAT traversal: return its driver, which gets STUN messages from now on.

        Raises ``ModuleNotFoundError`` without the extra ``nat``.
        """
        from sphtp.shell.nat import NatDriver

        self.nat = NatDriver(self._udp, self._endpoint, self._loop.flush_soon, lambda: self.peers)
        self._loop.take_stun = self.nat.take_own_untrusted
        return self.nat

    def attempting(self, connection: Connection) -> AbstractContextManager[None]:
        """Search for paths through NAT to the dialled peer, for the length of the block."""
        return nullcontext() if self.nat is None else self.nat.attempting(connection)

    def set_own_id(self, peer_id: int) -> None:
        """Set the node's id, which the servers have acknowledged."""
        self._endpoint.peer_id = peer_id


class Node(ScopedService):
    """A UDP socket with its channels: it opens channels to other nodes, and accepts theirs.

    Made by ``open_node``.
    """

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        entropy: Entropy,
        secrets: Secrets,
        settings: ChannelSettings,
        encoding: Encoding = PLAIN,
        stream_settings: "StreamSettings | None" = None,
        rendezvous: socket | None = None,
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._linger_time = settings.linger
        self.array_views = settings.array_views
        """True if arrays that came by shared memory are views of it."""
        self.shared_memory_threshold = settings.shared_memory_threshold
        """The bytes of a message from which its array may be such a view."""
        self._channels: dict[Connection, ChannelHooks] = {}
        self.connections = self._channels.keys()
        """The connections of the channels, those of services included."""
        self._callbacks = CallbackQueue()
        limits = LimitLog(endpoint.counters, endpoint.handshake_counters, endpoint.bounds)
        self.streams = NodeStreams(
            udp,
            entropy,
            secrets,
            encoding,
            limits,
            endpoint.schema,
            stream_settings,
            is_sealed=endpoint.is_sealed,
        )
        self._loop = Loop(
            udp,
            endpoint,
            self.streams.dispatcher,
            limits,
            self._channels,
            self._report,
            settings.busy_poll,
        )
        self.streams.touched = self._loop.flush_now
        self._shared_memory = (
            None
            if rendezvous is None
            else SharedMemory(
                rendezvous, settings, lambda: endpoint.connections, self._loop.report_one
            )
        )
        if self._shared_memory is not None:
            self._loop.take_entries = self._shared_memory.take_entries
        self.services = Services(
            endpoint.serve,
            endpoint.stop_serving,
            self._open,
            endpoint.schema,
            encoding,
            self._loop,
        )
        """The services of the node, such as streams and requests."""
        self.services.add(self.streams.service)
        self.roster = NodeRoster(udp, endpoint, self._loop)
        """The node's place in a cluster, which its client sets."""
        self._arrivals = trio.lowlevel.ParkingLot()
        self._is_closed = False

    def __repr__(self) -> str:
        host, port = self.address
        state = "closed" if self._is_closed else f"with {len(self._channels)} channels"
        return f"<Node {self.peer_id:#010x} at {host}:{port} {state}>"

    @property
    def address(self) -> Address:
        """The address to which the socket is bound, with the real port."""
        return self._udp.address

    @property
    def peer_id(self) -> int:
        """The node's id in the cluster; 0 if it has none."""
        return self._endpoint.peer_id

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the node's open sources."""
        return self.streams.dispatcher.topics

    def statistics(self) -> NodeStatistics:
        """Return the statistics of this node since it opened."""
        dispatcher = self.streams.dispatcher
        return NodeStatistics(
            **asdict(self._udp.counters),
            **asdict(self._endpoint.counters),
            **asdict(self._endpoint.handshake_counters),
            **asdict(dispatcher.counters),
            **{f"stream_{name}": count for name, count in asdict(dispatcher.seals).items()},
            **asdict(self._endpoint.bounds),
        )

    @block
    async def open_channel(
        self,
        host: str,
        port: int,
        *,
        peer_id: int = 0,
        key: bytes | None = None,
    ) -> AsyncIterator[Channel[Any]]:
        """Open a channel for the length of the block.

        Leaving the block waits until all reliable messages have arrived, and closes the channel.

        Args:
            host, port: the address of the peer.
            peer_id: the peer's id in the cluster; a peer with another id refuses. 0 accepts any.
            key: the peer's public key, 32 bytes; a peer with another key is rejected. By default
                every key is accepted that ``Security`` allows, and ``Channel.peer_key`` has it.

        Raises:
            UnreachableError: no peer answered within ``connect_timeout``, the peer was silent for
                as long after an answer, this node's socket can send to no address of ``host``, or
                this node was closed during the call.
            RefusedError: the peer is full or closing, has another id than ``peer_id`` or another
                key than ``key``, does not admit this node, has other types of messages or another
                version of the protocol, or only one of both nodes is sealed; ``reason`` is a word
                for the cause.
            SettingsError: ``key`` is not a public key, or is given for a channel in the clear, or
                ``port`` is out of range.
            trio.ClosedResourceError: this node was closed before the call.
        """
        async with self._open([(host, port)], peer_id, _pin(key)) as channel:
            yield channel

    @block
    async def open_source(
        self,
        *topics: str,
        settings: "StreamSettings | None" = None,
        group: "MulticastGroup | None" = None,
    ) -> "AsyncIterator[Source]":
        """Open a source of one topic or more for the length of the block.

        Leaving the block closes the source: see ``Source.aclose``.

        Args:
            topics: the names to which receivers subscribe. A message belongs to the first topic
                unless the call that sends it names another one.
            settings: timers and limits of this source, instead of ``Config.streams``.
            group: the multicast group to send to; without one, each receiver gets its own copies.

        Raises:
            SettingsError: no topic is given, one is given twice, or a name is not valid.
            StateError: a source of this node has one of the topics already.
            UdpAddressError: this machine does not have the interface of ``group``.
            trio.ClosedResourceError: this node was closed.
        """
        self._check_open()
        async with self.streams.open_source(topics, settings, group) as source:
            yield source

    @overload
    def subscribe(
        self,
        host: str,
        port: int,
        topic: str,
        *,
        key: bytes | None = None,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: Literal[True],
        settings: "StreamSettings | None" = None,
    ) -> "AbstractAsyncContextManager[Subscription[StreamMessage[Any]]]": ...

    @overload
    def subscribe(
        self,
        host: str,
        port: int,
        topic: str,
        *,
        key: bytes | None = None,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        settings: "StreamSettings | None" = None,
    ) -> "AbstractAsyncContextManager[Subscription[Any]]": ...

    @block
    async def subscribe(
        self,
        host: str,
        port: int,
        topic: str,
        *,
        key: bytes | None = None,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        settings: "StreamSettings | None" = None,
    ) -> "AsyncIterator[Subscription[Any]]":
        """Subscribe to a topic of a source at another node for the length of the block.

        Args:
            host, port, key: those of ``open_channel``.
            topic: one of the source's topics.
            late_join, after, session, numbered, settings: those of ``Client.subscribe_to``.

        Raises as ``open_channel`` does, and ``SettingsError`` and ``UdpAddressError`` as
        ``Client.subscribe_to``. Also raises ``RefusedError``: with the reason ``"topic"`` if that
        node has no such topic or accepts no more receivers, with ``"session"`` if its source has
        another session than ``session``, and with ``"schema"`` if its messages have other types
        than those of this node.
        """
        dial = partial(self._open, [(host, port)], 0, _pin(key), self.streams.service.schema)
        async with self.streams.subscribe(
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
        """Wait for the next channel that another node opens, and return the channel.

        Raises ``trio.ClosedResourceError`` if this node was closed before the call or during it.
        """
        await trio.lowlevel.checkpoint()
        self._check_open()
        while (connection := self._endpoint.poll_incoming()) is None:
            await self._arrivals.park()
            self._check_open()
        return self._adopt(connection)

    async def serve_channels(
        self,
        handler: Handler,
        *,
        handler_nursery: trio.Nursery | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> NoReturn:
        """Accept channels for ever, and run ``handler(channel)`` for each in a task of its own.

        A channel is closed when its handler returns. The handlers run in ``handler_nursery``, by
        default in a nursery of this call. An error of a handler cancels the nursery, and by default
        so ends this call with all handlers. To prevent that when a peer vanishes, a handler has to
        catch ``trio.BrokenResourceError``, and to call ``channel.aclose()`` where it does so.
        ``task_status.started()`` is called at once. The method is similar to
        ``trio.serve_listeners``.

        Raises an ``ExceptionGroup`` with the errors of handlers, and with
        ``trio.ClosedResourceError`` if this node was closed before the call or during it.
        """

        async def handle(channel: Channel[Any]) -> None:
            async with channel:
                await handler(channel)

        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                channel = await self.accept()
                (handler_nursery or nursery).start_soon(handle, channel)

    @asynccontextmanager
    async def _open(
        self,
        addresses: Sequence[Address],
        wanted: int,
        pin: PeerPin | None,
        schema: Schema | None = None,
    ) -> AsyncIterator[Channel[Any]]:
        candidates = await resolve(addresses, self._udp.family)
        self._check_open()
        connection = self._dial(candidates, wanted, pin, schema)
        channel = self._adopt(connection)
        wait_open = self._channels[connection].wait_open
        self._loop.flush_now()
        async with channel:
            with self.roster.attempting(connection):
                await wait_open()
            yield channel

    def _dial(
        self,
        candidates: Sequence[Address],
        wanted: int,
        pin: PeerPin | None,
        schema: Schema | None,
    ) -> Connection:
        now = trio.current_time()
        return self._endpoint.dial(now, candidates, wanted, pin, schema=schema)

    def _welcome(self, service: Service | None) -> None:
        """Pass on the channels that other nodes opened: to ``accept``, or to this service."""
        # Channels that the program has not accepted stay with the endpoint, up to ``backlog``.
        if self._endpoint.has_incoming:
            self._arrivals.unpark_all()
        if service is None:
            return
        while (connection := self._endpoint.poll_incoming(service.schema)) is not None:
            service.admit(cast("ServiceChannel", self._adopt(connection)))

    def _report(self, connection: Connection) -> bool:
        """Handle a change of a connection that has no channel yet, or has ended.

        Return True if a task waited for its messages.
        """
        if connection.closed is not None and self._shared_memory is not None:
            self._shared_memory.end(connection)
        channel = self._channels.get(connection)
        if channel is None:
            self._welcome(self.services.of(connection))
            return False
        is_awaited = channel.wake()
        if connection.closed is not None:
            del self._channels[connection]
        return is_awaited

    def _adopt(self, connection: Connection) -> Channel[Any]:
        if (peer := self.roster.peers.get(connection.peer_id)) is not None:
            connection.known_as = peer.name
        channel = self.services.kind_of(connection)(
            connection,
            self._loop,
            self._callbacks.run_soon,
            partial(self._channels.__setitem__, connection),
            self.services.encoding_of(connection),
            None if self._shared_memory is None else self._shared_memory.of(connection),
        )
        if connection.closed is not None:
            del self._channels[connection]
        return channel

    @asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        try:
            async with (
                self._loop.running(),
                running(self._callbacks.run),
                running(self.streams.run),
                running(self._take_segments),
            ):
                yield
        finally:
            self._close()
            with trio.move_on_after(self._linger_time) as scope:
                scope.shield = True
                await self._linger()
            self._loop.close()

    async def _take_segments(self) -> None:
        if self._shared_memory is not None:
            await self._shared_memory.run()

    def _close(self) -> None:
        """Send one CLOSE on each open channel, and wake the waiting tasks."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.detach()
        self.streams.dispatcher.close()
        self._endpoint.close(trio.current_time(), "its node closed")
        self._loop.flush_now()
        if self._shared_memory is not None:
            self._shared_memory.close()
        self._arrivals.unpark_all()

    async def _linger(self) -> None:
        """Acknowledge the packets that peers of closed channels repeat after the loss of an ack."""
        async with self._loop.running():
            while self._endpoint.connections:
                await self._loop.reported.park()

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this node is closed")


def _pin(key: bytes | None) -> PeerPin | None:
    return None if key is None else PeerPin(key)


@block
async def open_node(
    host: str = "127.0.0.1", port: int = 0, *, peer_id: int = 0, config: Config = DEFAULTS
) -> AsyncIterator[Node]:
    """Open a node on a UDP socket, for the length of the block.

    Leaving the block aborts the channels that are still open. It takes up to ``linger`` seconds if
    a peer has closed a channel shortly before.

    Args:
        host, port: the address to bind; port 0 takes any free port.
        peer_id: this node's id in a cluster; 0 if it is in none.
        config: the behaviour of this node. A node does not use ``cluster``, ``timers``, ``relay``
            and the limits of clients and servers.

    Raises:
        UdpAddressError: the address cannot be bound; the message names it.
        SettingsError: the file that ``SPHTPKEYLOGFILE`` names cannot be used, or the datagrams of
            ``config.channel`` are too small for sealed channels.
    """
    schema = Schema(config.messages.describe() if config.messages else ())
    with (
        open_socket(host, port, config.impairment, config.seed) as udp,
        watching(config.instruments, udp.address) as watch,
        open_key_log(os.environ) as key_log,
        # ``impairment`` has to affect all messages, so that none may go by shared memory.
        open_rendezvous(
            is_wanted=config.channel.shared_memory > 0 and config.impairment in (None, Impairment())
        ) as (
            rendezvous,
            name,
        ),
    ):
        endpoint = Endpoint(
            SECRETS,
            config.channel,
            peer_id,
            schema,
            security=config.security,
            port=udp.address[1],
            observer=watch,
            rendezvous=name,
            key_log=key_log,
        )
        async with Node(
            udp,
            endpoint,
            decisions(config.seed),
            SECRETS,
            config.channel,
            encoding_for(config.messages),
            config.streams,
            rendezvous,
        ) as node:
            yield node


@block
async def open_channel(
    host: str, port: int, *, key: bytes | None = None, config: Config = DEFAULTS
) -> AsyncIterator[Channel[Any]]:
    """Open a node, and a channel from it to the node at ``host``, for the length of the block.

    ``host``, ``port`` and ``key`` are those of ``Node.open_channel``; ``config`` is that of
    ``open_node``. Raises as both do.
    """
    here = await local_address_towards(host, port)
    async with (
        open_node(here, config=config) as node,
        node.open_channel(host, port, key=key) as channel,
    ):
        yield channel
