"""A node: one UDP socket, and all channels behind it.

A node puts together what its channels share: the socket, the core's ``Endpoint``, the ``Loop`` that
moves datagrams between the two, the streams, and the task that runs callbacks. It makes a
``Channel`` for each connection that it dials or that a program accepts, and hands on what the loop
reports. Its block ends all of them; then it stays a while, for peers whose last ack got lost.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import SEALED, PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.packing import PLAIN
from sphtp.core.schema import Schema
from sphtp.core.stream.membership import STREAMS
from sphtp.shell.addresses import local_address_towards, resolve
from sphtp.shell.channel import Channel, ChannelHooks
from sphtp.shell.encoding import Encoding, encoding_for
from sphtp.shell.impairment import UNIMPAIRED, Impairment, open_socket
from sphtp.shell.instruments import watching
from sphtp.shell.lifetime import ScopedService, block, running
from sphtp.shell.limits import LimitLog
from sphtp.shell.loop import Loop
from sphtp.shell.node_streams import NodeStreams
from sphtp.shell.randomness import SECRETS, decisions
from sphtp.shell.receipt import CallbackQueue
from sphtp.shell.services import Service, Services
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec
    from sphtp.core.stream.settings import StreamSettings
    from sphtp.shell.multicast import Group
    from sphtp.shell.source import Source
    from sphtp.shell.subscription import Stream, Terms


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Datagrams at a node's socket, and those that reached no channel, since it opened.

    What was done to those ``received`` on purpose follows from ``Impairment``. From
    ``in_the_clear`` on it is what was not let in by a sealed node: see ``HandshakeCounters``. Those
    of ``stream_...`` belong to streams: ``malformed``, of an ``unknown`` session or receiver, and
    what no source or subscription here let in, for it was ``forged``, ``replayed``, sealed with an
    ``unknown_key``, or ``foreign``: from elsewhere than the source. From ``over_receive_buffer`` on
    it is what bounds of its channels held back: see ``BoundCounters``.
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


class Node(ScopedService):
    """Opens channels to other nodes and accepts theirs. Made by ``open_node``."""

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        entropy: Entropy,
        secrets: Secrets,
        settings: ChannelSettings,
        encoding: Encoding = PLAIN,
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._encoding = encoding
        self._linger_time = settings.linger
        self._channels: dict[Connection, ChannelHooks] = {}
        self._callbacks = CallbackQueue()
        limits = LimitLog(endpoint.counters, endpoint.handshake_counters, endpoint.bounds)
        self._streams = NodeStreams(
            udp, entropy, secrets, encoding, limits, is_sealed=endpoint.is_sealed
        )
        self._loop = Loop(
            udp, endpoint, self._streams.dispatcher, limits, self._report, settings.busy_poll
        )
        self._streams.touched = self._loop.flush_now
        self.services = Services(endpoint.serve, self._open, self._loop)
        """The protocols of the library itself, of which streams are one."""
        self.services.add(Service(STREAMS, self._streams.admit))
        self._arrivals = trio.lowlevel.ParkingLot()
        self._is_closed = False

    def __repr__(self) -> str:
        host, port = self.address
        state = "closed" if self._is_closed else f"with {len(self._channels)} channels"
        return f"<Node {self.peer_id:#010x} at {host}:{port} {state}>"

    @property
    def address(self) -> Address:
        """The address to which it is bound, with the real port."""
        return self._udp.address

    @property
    def peer_id(self) -> int:
        """Its id in the cluster, 0 when it has none."""
        return self._endpoint.peer_id

    @peer_id.setter
    def peer_id(self, value: int) -> None:
        self._endpoint.peer_id = value

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its sources."""
        return self._streams.dispatcher.topics

    def statistics(self) -> NodeStatistics:
        """Return the figures so far."""
        dispatcher = self._streams.dispatcher
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
        *more: Address,
        wanted: int = 0,
        key: bytes | None = None,
    ) -> AsyncIterator[Channel]:
        """Open a channel for the length of the block; leaving it drains and closes.

        Args:
            host, port: where the peer listens.
            more: other addresses of it; all are dialled at once, the first to answer is used.
            wanted: its id in the cluster; whoever has another one refuses.
            key: its public key, 32 bytes; a peer with another one is refused. By default any key
                is taken, and what is sent is sealed for the peer that has it: see
                ``Channel.peer_key``.

        Raises:
            UnreachableError: nobody answered within ``connect_timeout``, a peer that did was then
                silent for as long, or no address is one that this node's socket can send to.
            RefusedError: the peer is full, leaving, not the one wanted, does not want this one, or
                speaks of messages of other types; ``reason`` says it in a word.
            SettingsError: ``key`` is no public key, or is given for a channel in the clear.
            trio.ClosedResourceError: this node was closed.
        """
        dialling = self._open([(host, port), *more], wanted, _pin(key))
        async with dialling as channel:
            yield channel

    @block
    async def open_source(
        self, *topics: str, settings: "StreamSettings | None" = None, group: "Group | None" = None
    ) -> "AsyncIterator[Source]":
        """Open a source of one topic or more for the length of the block; leaving it lingers.

        Args:
            topics: what others subscribe to by these names; messages are of the first one unless
                they say otherwise.
            settings: timers and limits, by default those of one network.
            group: sends by multicast; without, each receiver gets its own copies.

        Raises:
            SettingsError, StateError: no topic, or one that this node has already.
            UdpAddressError: the group's interface is not of this machine.
        """
        self._check_open()
        async with self._streams.open_source(topics, settings, group) as source:
            yield source

    @block
    async def subscribe(
        self,
        host: str,
        port: int,
        *more: Address,
        topic: str,
        wanted: int = 0,
        key: bytes | None = None,
        terms: "Terms | None" = None,
    ) -> "AsyncIterator[Stream]":
        """Subscribe to a topic of a source at another node for the length of the block.

        ``terms`` say what is wanted of it; the others are those of ``open_channel``.

        Raises as ``open_channel`` does, and ``RefusedError`` with the reason ``"topic"`` when that
        node has no such topic, or all receivers that it may have, and ``"session"`` when its source
        is not the one whose session ``terms`` name.
        """
        dial = partial(self._open, [(host, port), *more], wanted, _pin(key), STREAMS)
        async with self._streams.subscribe(dial, topic, terms) as stream:
            yield stream

    async def accept(self) -> Channel:
        """Wait for the next channel that another node opens.

        Raises ``trio.ClosedResourceError`` when this node is closed, before or meanwhile.
        """
        await trio.lowlevel.checkpoint()
        self._check_open()
        while (connection := self._endpoint.poll_incoming()) is None:
            await self._arrivals.park()
            self._check_open()
        return self._adopt(connection)

    async def incoming(self) -> AsyncIterator[Channel]:
        """Iterate over the channels that other nodes open, until this node is closed."""
        while True:
            try:
                channel = await self.accept()
            except trio.ClosedResourceError:
                return
            yield channel

    @asynccontextmanager
    async def _open(
        self,
        addresses: Sequence[Address],
        wanted: int,
        pin: PeerPin | None,
        schema: Schema | None = None,
    ) -> AsyncIterator[Channel]:
        candidates = await resolve(addresses, self._udp.family)
        self._check_open()
        connection = self._dial(candidates, wanted, pin, schema)
        channel = self._adopt(connection)
        wait_open = self._channels[connection].wait_open
        self._loop.flush_now()
        async with channel:
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

    def _welcome(self) -> None:
        """Take in the channels that other nodes opened."""
        # Those that nobody accepts stay with the endpoint, which refuses more than its backlog.
        if self._endpoint.has_incoming:
            self._arrivals.unpark_all()
        for service in self.services:
            while (connection := self._endpoint.poll_incoming(service.schema)) is not None:
                service.admit(self._adopt(connection))

    def _report(self, connection: Connection) -> bool:
        """Handle a connection that changed. Return true if a task waited for messages of it."""
        channel = self._channels.get(connection)
        if channel is None:
            self._welcome()
            return False
        is_awaited = channel.wake()
        if connection.closed is not None:
            del self._channels[connection]
        return is_awaited

    def _adopt(self, connection: Connection) -> Channel:
        channel = Channel(
            connection,
            self._loop,
            self._callbacks.run_soon,
            partial(self._channels.__setitem__, connection),
            self.services.encoding_of(connection, self._encoding),
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
                running(self._streams.run),
            ):
                yield
        finally:
            self._close()
            with trio.move_on_after(self._linger_time) as scope:
                scope.shield = True
                await self._linger()
            self._loop.close()

    def _close(self) -> None:
        """Send every live peer a CLOSE, once, and wake the tasks that wait."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.detach()
        self._streams.dispatcher.close()
        self._endpoint.close(trio.current_time(), "its node closed")
        self._loop.flush_now()
        self._arrivals.unpark_all()

    async def _linger(self) -> None:
        """Answer closed peers for as long as they may ask again.

        Otherwise they would wait for an ack that got lost.
        """
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
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    peer_id: int = 0,
    settings: ChannelSettings | None = None,
    messages: "MessageCodec | None" = None,
    security: Security | None = SEALED,
    impairment: Impairment = UNIMPAIRED,
    seed: int | None = None,
    instruments: Sequence[Instrument] = (),
) -> AsyncIterator[Node]:
    """Bind a UDP socket for the length of the block; leaving it aborts the channels still open.

    Leaving takes up to ``linger`` seconds when a peer has closed a channel shortly before.

    Args:
        host, port: where to bind; port 0 takes any that is free.
        peer_id: this node's id in a cluster, 0 when it is in none.
        settings: limits and timers of its channels.
        messages: the types that all its channels carry, of ``sphtp.messages``; both sides of a
            channel need the same. By default anything that msgpack carries.
        security: who it is and whom it lets in; None sends in the clear, to nodes that do so, too.
        impairment: what goes wrong with datagrams on receipt, to try out a bad network.
        seed: makes random choices, those of ``impairment`` among them, repeatable; for tests. No
            key, token or nonce follows from it.
        instruments: are told what happens in it and its channels.

    Raises:
        UdpAddressError: the address cannot be bound; the message names it.
    """
    settings = settings or ChannelSettings()
    schema = Schema(messages.describe() if messages else ())
    with (
        open_socket(host, port, impairment, seed) as udp,
        watching(instruments, udp.address) as watch,
    ):
        endpoint = Endpoint(
            SECRETS,
            settings,
            peer_id,
            schema,
            security=security,
            port=udp.address[1],
            observer=watch,
        )
        encoding = encoding_for(messages)
        async with Node(udp, endpoint, decisions(seed), SECRETS, settings, encoding) as node:
            yield node


@block
async def open_channel(
    host: str,
    port: int,
    *,
    settings: ChannelSettings | None = None,
    messages: "MessageCodec | None" = None,
    key: bytes | None = None,
    security: Security | None = SEALED,
    instruments: Sequence[Instrument] = (),
) -> AsyncIterator[Channel]:
    """Open a channel to the node at ``host``, from a node of its own, for the length of the block.

    ``key``, the public key of the node that has to answer, is that of ``Node.open_channel``; the
    others are those of ``open_node``. Raises as both do.
    """
    here = await local_address_towards(host, port)
    async with (
        open_node(
            here,
            settings=settings,
            messages=messages,
            security=security,
            instruments=instruments,
        ) as node,
        node.open_channel(host, port, key=key) as channel,
    ):
        yield channel
