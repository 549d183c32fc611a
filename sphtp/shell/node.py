"""A node: one UDP socket, and all channels behind it."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from random import Random, SystemRandom
from typing import Final

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.opening import Transmit
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import SettingsError
from sphtp.shell.bell import Bell
from sphtp.shell.channel import Channel
from sphtp.shell.lifetime import running
from sphtp.shell.receipt import Callback, Receipt
from sphtp.shell.udp import Address, UdpSocket

BATCH: Final = 256
"""Datagrams taken off the socket before others get a turn; a node must not starve its program."""

BURST: Final = 64
"""Datagrams collected for one address before they are sent, which is what one call takes."""


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Datagrams at a node's socket, and those that reached no channel, since it opened."""

    sent: int
    received: int
    send_errors: int
    receive_errors: int
    dropped_on_purpose: int
    send_calls: int
    receive_calls: int
    malformed: int
    unknown: int
    refused_full: int
    refused_wrong_peer: int


@asynccontextmanager
async def open_node(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    peer_id: int = 0,
    settings: ChannelSettings | None = None,
    receive_loss: float = 0.0,
    seed: int | None = None,
) -> AsyncIterator["Node"]:
    """Bind a UDP socket for the length of the block; leaving it aborts the channels still open.

    Leaving takes up to ``linger`` seconds when a peer has closed a channel shortly before.

    Args:
        host, port: where to bind; port 0 takes any that is free.
        peer_id: this node's id in a cluster, 0 when it is in none.
        settings: limits and timers of its channels.
        receive_loss: the share of datagrams to throw away on receipt, for trying out what loss
            does.
        seed: makes random choices, that loss among them, repeatable; for tests.

    Raises:
        UdpAddressError: the address cannot be bound; the message names it.
        SettingsError: ``receive_loss`` is not a share.
    """
    if not 0 <= receive_loss < 1:
        raise SettingsError(f"receive_loss is {receive_loss}; allowed is 0 to less than 1")
    entropy = SystemRandom() if seed is None else Random(seed)
    drop = _losing(receive_loss, seed) if receive_loss else None
    with UdpSocket(host, port, drop) as udp:
        node = Node(udp, Endpoint(entropy, settings or ChannelSettings(), peer_id))
        try:
            async with running(node._run), running(node._run_callbacks):  # noqa: SLF001
                yield node
        finally:
            with trio.CancelScope(shield=True):
                await node._leave()  # noqa: SLF001


class Node:
    """Opens channels to other nodes and accepts theirs. Made by ``open_node``."""

    def __init__(self, udp: UdpSocket, endpoint: Endpoint) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._bell = Bell()
        self._channels: dict[Connection, Channel] = {}
        # Datagrams on their way to one address, and the first one for another.
        self._destination: Address = ("", 0)
        self._unsent: list[bytes] = []
        self._ahead: Transmit | None = None
        self._callbacks: deque[tuple[Callback, Receipt]] = deque()
        self._called = trio.Event()
        self._arrivals = trio.lowlevel.ParkingLot()

    @property
    def address(self) -> Address:
        """Where it is bound, with the real port."""
        return self._udp.address

    @property
    def peer_id(self) -> int:
        """Its id in the cluster, 0 when it has none."""
        return self._endpoint.peer_id

    @peer_id.setter
    def peer_id(self, value: int) -> None:
        self._endpoint.peer_id = value

    def statistics(self) -> NodeStatistics:
        """Return the figures so far."""
        return NodeStatistics(**asdict(self._udp.counters), **asdict(self._endpoint.counters))

    @asynccontextmanager
    async def open_channel(
        self, host: str, port: int, *more: Address, wanted: int = 0
    ) -> AsyncIterator[Channel]:
        """Open a channel for the length of the block; leaving it drains and closes.

        Args:
            host, port: where the peer listens.
            more: other addresses of it; all are dialled at once, the first to answer is used.
            wanted: its id in the cluster; whoever has another one refuses.

        Raises:
            UnreachableError: nobody answered within ``connect_timeout``.
            RefusedError: the peer is full, or not the one wanted.
        """
        candidates = await self._resolve([(host, port), *more])
        connection = self._endpoint.dial(trio.current_time(), candidates, wanted)
        channel = self._adopt(connection)
        self._bell.ring()
        async with channel:
            await channel._wait_open()  # noqa: SLF001 - a channel opens in here only
            yield channel

    async def accept(self) -> Channel:
        """Wait for the next channel that another node opens."""
        await trio.lowlevel.checkpoint()
        while (connection := self._endpoint.poll_incoming()) is None:
            await self._arrivals.park()
        return self._adopt(connection)

    async def incoming(self) -> AsyncIterator[Channel]:
        """Iterate over the channels that other nodes open."""
        while True:
            yield await self.accept()

    async def _run(self) -> None:
        while True:
            await self._take_turn()

    async def _take_turn(self) -> None:
        readable = False
        with self._bell.listening(self._endpoint.poll_timeout()):
            await self._udp.wait_readable()
            readable = True
        self._bell.answer()
        if readable:
            self._receive(trio.current_time())
        self._endpoint.handle_timeout(trio.current_time())
        while not self._flush(trio.current_time()):
            await self._udp.wait_writable()

    def _receive(self, now: float) -> None:
        for address, datagram in self._udp.receive_batch(BATCH):
            self._endpoint.handle_datagram_untrusted(now, address, datagram)

    def _flush(self, now: float) -> bool:
        """Send and report all there is; false when the socket has no room for the rest."""
        while self._unsent or self._gather(now):
            sent = self._udp.send_many(self._destination, self._unsent)
            del self._unsent[:sent]
            if self._unsent:
                break
        # Those that nobody accepts stay with the endpoint, which refuses more than its backlog.
        if self._endpoint.has_incoming:
            self._arrivals.unpark_all()
        while (connection := self._endpoint.poll_active()) is not None:
            self._report(connection)
        return not self._unsent

    def _gather(self, now: float) -> bool:
        """Collect the datagrams that leave for one address next; false when there are none."""
        transmit = self._ahead or self._endpoint.poll_transmit(now)
        self._ahead = None
        if transmit is None:
            return False
        self._destination = transmit.address
        while transmit is not None and transmit.address == self._destination:
            self._unsent.append(transmit.datagram)
            if len(self._unsent) == BURST:
                return True
            transmit = self._endpoint.poll_transmit(now)
        self._ahead = transmit
        return True

    def _report(self, connection: Connection) -> None:
        channel = self._channels.get(connection)
        if channel is None:
            return
        channel._wake()  # noqa: SLF001
        if connection.closed is not None:
            del self._channels[connection]

    def _adopt(self, connection: Connection) -> Channel:
        channel = Channel(connection, lambda: self._touch(connection), self._run_soon)
        self._channels[connection] = channel
        return channel

    def _run_soon(self, callback: Callback, receipt: Receipt) -> None:
        self._callbacks.append((callback, receipt))
        self._called.set()

    async def _run_callbacks(self) -> None:
        """User code runs here, so that a slow callback holds up no packet."""
        while True:
            await self._called.wait()
            self._called = trio.Event()
            while self._callbacks:
                callback, receipt = self._callbacks.popleft()
                callback(receipt)
                await trio.lowlevel.checkpoint()

    def _touch(self, connection: Connection) -> None:
        """Send at once what a command gave rise to: waking the task first would cost a turn."""
        self._endpoint.touch(connection)
        if self._unsent or not self._flush(trio.current_time()):
            self._bell.ring()
        self._bell.hurry(self._endpoint.poll_timeout())

    async def _leave(self) -> None:
        """Tell every peer that is still there, once, and wake whoever waits.

        Peers that have closed are answered for as long as they may ask again: they would wait for
        an ack that got lost, and take this side for vanished.
        """
        now = trio.current_time()
        for connection in self._endpoint.connections:
            if connection.state is not State.LINGERING:
                connection.abort(now, "its node closed")
            self._touch(connection)
        while self._endpoint.connections:
            await self._take_turn()

    async def _resolve(self, addresses: Sequence[Address]) -> list[Address]:
        found: dict[Address, None] = {}
        for host, port in addresses:
            answers = await trio.socket.getaddrinfo(
                host, port, family=self._udp.family, type=trio.socket.SOCK_DGRAM
            )
            found |= {(str(answer[4][0]), int(answer[4][1])): None for answer in answers}
        return list(found)


def _losing(share: float, seed: int | None) -> Callable[[], bool]:
    random = Random(seed)
    return lambda: random.random() < share
