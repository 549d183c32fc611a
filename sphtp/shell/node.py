"""A node: one UDP socket, and all channels behind it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Final

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.channel.gate.endpoint import SealedEndpoint
from sphtp.core.channel.gate.trust import Expectation
from sphtp.core.row import Address
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.bell import Bell
from sphtp.shell.callbacks import Callbacks
from sphtp.shell.channel import Channel
from sphtp.shell.courtesy import Courtesy
from sphtp.shell.departures import Departures
from sphtp.shell.encoding import PLAIN, Encoding
from sphtp.shell.limits import LimitLog
from sphtp.shell.node_statistics import NodeStatistics
from sphtp.shell.udp import UdpSocket

BATCH: Final = 256
"""Datagrams taken off the socket before others get a turn; a node must not starve its program."""

BATCH_BYTES: Final = 512 * 1024
"""Bytes taken off it before acks leave: else one side waits while the other one works."""

MOST_BEHIND: Final = 16
"""Full batches in a row after which timers are looked at whatever the socket still holds."""


class Node:
    """Opens channels to other nodes and accepts theirs. Made by ``open_node``."""

    def __init__(
        self, udp: UdpSocket, endpoint: Endpoint | SealedEndpoint, encoding: Encoding = PLAIN
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._gate = endpoint.gate_counters if isinstance(endpoint, SealedEndpoint) else None
        self._limits = LimitLog(endpoint.counters, self._gate or GateCounters())
        self._encoding = encoding
        self._bell = Bell()
        self._channels: dict[Connection, Channel] = {}
        self._departures = Departures(udp, endpoint)
        self._courtesy = Courtesy()
        # Batches in a row that left something in the socket, and whether the last turn left any
        # work at all.
        self._behind = 0
        self._goes_on = False
        self._callbacks = Callbacks()
        self._arrivals = trio.lowlevel.ParkingLot()
        self._is_closed = False

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
        return NodeStatistics(
            **asdict(self._udp.counters),
            **asdict(self._endpoint.counters),
            **asdict(self._gate or GateCounters()),
        )

    @asynccontextmanager
    async def open_channel(
        self,
        host: str,
        port: int,
        *more: Address,
        wanted: int = 0,
        key: bytes | None = None,
        pin: Callable[[bytes], bool] | None = None,
    ) -> AsyncIterator[Channel]:
        """Open a channel for the length of the block; leaving it drains and closes.

        Args:
            host, port: where the peer listens.
            more: other addresses of it; all are dialled at once, the first to answer is used.
            wanted: its id in the cluster; whoever has another one refuses.
            key: its public key, 32 bytes, if it is known; whoever has another one is refused.
            pin: is asked whether the key of whoever answers is the right one. With neither, any is:
                what is sent is then sealed for whoever that may be.

        Raises:
            UnreachableError: nobody answered within ``connect_timeout``, or no address is one that
                this node's socket can send to.
            RefusedError: the peer is full, leaving, not the one wanted, does not want this one, or
                speaks of messages of other types; ``reason`` says it in a word.
            SettingsError: ``key`` or ``pin`` for a channel in the clear.
            trio.ClosedResourceError: this node was closed.
        """
        candidates = await self._resolve([(host, port), *more])
        self._check_open()
        expectation = Expectation(key, pin) if key or pin else None
        connection = self._dial(candidates, wanted, expectation)
        channel = self._adopt(connection)
        self._bell.ring()
        async with channel:
            await channel._wait_open()  # noqa: SLF001 - a channel opens in here only
            yield channel

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

    def _dial(
        self, candidates: Sequence[Address], wanted: int, expectation: Expectation | None
    ) -> Connection:
        now = trio.current_time()
        if isinstance(self._endpoint, SealedEndpoint):
            return self._endpoint.dial(now, candidates, wanted, expectation)
        if expectation is not None:
            raise SettingsError("nobody proves a key to a node in the clear")
        return self._endpoint.dial(now, candidates, wanted)

    async def _run(self) -> None:
        while True:
            await self._take_turn()

    async def _take_turn(self) -> None:
        if self._goes_on:
            await trio.lowlevel.checkpoint()
        else:
            with self._bell.listening(self._endpoint.poll_timeout()):
                await self._udp.wait_readable()
        self._bell.answer()
        now = trio.current_time()
        # What lies in the socket still may hold the acks and the signs of life that are overdue;
        # but a flood must not hold up time for ever.
        is_dry = self._receive(now)
        self._behind = 0 if is_dry else self._behind + 1
        if self._behind % MOST_BEHIND == 0:
            self._endpoint.handle_timeout(now)
        self._limits.look(now)
        is_done = self._flush(trio.current_time())
        while self._departures.is_blocked:
            await self._udp.wait_writable()
            is_done = self._flush(trio.current_time())
        self._goes_on = not (is_dry and is_done)

    def _receive(self, now: float) -> bool:
        """Take a batch off the socket; false when there may be more."""
        received = size = 0
        for row in self._udp.receive_batch(BATCH, BATCH_BYTES):
            self._endpoint.handle_row_untrusted(now, row)
            received += row.number
            size += len(row.data)
        return received < BATCH and size < BATCH_BYTES

    def _flush(self, now: float) -> bool:
        """Send and report what a turn has time for; false when there is more to send."""
        is_done = self._departures.send(now, self._courtesy.turn(now))
        # Those that nobody accepts stay with the endpoint, which refuses more than its backlog.
        if self._endpoint.has_incoming:
            self._arrivals.unpark_all()
        while (connection := self._endpoint.poll_active()) is not None:
            self._report(connection)
        return is_done

    def _report(self, connection: Connection) -> None:
        channel = self._channels.get(connection)
        if channel is None:
            return
        channel._wake()  # noqa: SLF001
        if connection.closed is not None:
            del self._channels[connection]

    def _adopt(self, connection: Connection) -> Channel:
        touched = partial(self._touch, connection)
        run_soon = self._callbacks.run_soon
        channel = Channel(connection, touched, run_soon, self._courtesy, self._encoding)
        if connection.closed is None:
            self._channels[connection] = channel
        return channel

    def _touch(self, connection: Connection) -> None:
        """Send at once what a command gave rise to: waking the task first would cost a turn."""
        self._endpoint.touch(connection)
        if self._departures.is_blocked or not self._flush(trio.current_time()):
            self._bell.ring()
        self._bell.hurry(self._endpoint.poll_timeout())

    def _close(self) -> None:
        """Tell every peer that is still there, once, and wake whoever waits."""
        self._is_closed = True
        for channel in self._channels.values():
            channel._detach()  # noqa: SLF001
        self._endpoint.close(trio.current_time(), "its node closed")
        self._flush(trio.current_time())
        self._arrivals.unpark_all()

    async def _linger(self) -> None:
        """Answer peers that have closed for as long as they may ask again.

        They would wait for an ack that got lost.
        """
        while self._endpoint.connections:
            await self._take_turn()

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this node is closed")

    async def _resolve(self, addresses: Sequence[Address]) -> list[Address]:
        """Look up what this node can send to; one bad address does not spoil the others."""
        found: dict[Address, None] = {}
        for host, port in addresses:
            with suppress(OSError):
                answers = await trio.socket.getaddrinfo(
                    host, port, family=self._udp.family, type=trio.socket.SOCK_DGRAM
                )
                found |= {(str(answer[4][0]), int(answer[4][1])): None for answer in answers}
        if not found:
            hosts = ", ".join(host for host, _ in addresses)
            raise UnreachableError(f"no address of {hosts} is one that this node can send to")
        return list(found)
