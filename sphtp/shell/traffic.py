"""A node's turns: what comes off the socket is handed on, time passes, and what is said leaves."""

from collections.abc import Callable
from typing import Final

import trio

from sphtp.core.alarms import earliest
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.endpoint import SealedEndpoint
from sphtp.shell.bell import Bell
from sphtp.shell.courtesy import Courtesy
from sphtp.shell.departures import Departures
from sphtp.shell.limits import LimitLog
from sphtp.shell.streams.desk import StreamDesk
from sphtp.shell.udp import UdpSocket

BATCH: Final = 256
"""Datagrams taken off the socket before others get a turn; a node must not starve its program."""

BATCH_BYTES: Final = 512 * 1024
"""Bytes taken off it before acks leave: else one side waits while the other one works."""

MOST_BEHIND: Final = 16
"""Full batches in a row after which timers are looked at whatever the socket still holds."""


class Traffic:
    """Channels and streams behind one socket; ``report`` is told what connections have news."""

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint | SealedEndpoint,
        desk: StreamDesk,
        limits: LimitLog,
        report: Callable[[Connection], None],
        welcome: Callable[[], None],
    ) -> None:
        self.courtesy = Courtesy()
        self._udp = udp
        self._endpoint = endpoint
        self._desk = desk
        self._limits = limits
        self._report = report
        self._welcome = welcome
        self._departures = Departures(udp, endpoint)
        self._bell = Bell()
        # Batches in a row that left something in the socket, and whether the last turn left any
        # work at all.
        self._behind = 0
        self._goes_on = False
        self._is_closed = False

    async def run(self) -> None:
        """Take turn after turn."""
        while True:
            await self.take_turn()

    async def take_turn(self) -> None:
        """Wait for something to do, and do it."""
        if self._goes_on:
            await trio.lowlevel.checkpoint()
        else:
            with self._bell.listening(self._poll_timeout()):
                await self._udp.wait_readable()
        self._bell.answer()
        now = trio.current_time()
        # What lies in the socket still may hold the acks and the signs of life that are overdue;
        # but a flood must not hold up time for ever.
        is_dry = self._receive(now)
        self._behind = 0 if is_dry else self._behind + 1
        if self._behind % MOST_BEHIND == 0:
            self._endpoint.handle_timeout(now)
            self._desk.handle_timeout(now)
        self._limits.look(now)
        is_done = self.flush(trio.current_time())
        while self._is_blocked:
            await self._udp.wait_writable()
            is_done = self.flush(trio.current_time())
        self._goes_on = not (is_dry and is_done)

    def flush(self, now: float) -> bool:
        """Send and report what a turn has time for; false when there is more to send."""
        is_done = self._departures.send(now, self.courtesy.turn(now))
        has_streams = self._desk.is_busy or self._desk.is_blocked
        if has_streams and not self._departures.is_blocked:
            self._desk.send(now)
        self._welcome()
        while (connection := self._endpoint.poll_active()) is not None:
            self._report(connection)
        return is_done

    def touch(self, connection: Connection) -> None:
        """Send at once what a command gave rise to: waking the task first would cost a turn."""
        self._endpoint.touch(connection)
        self.touch_all()

    def touch_all(self) -> None:
        """The same, whoever it was that got a command."""
        if self._is_closed:
            return
        if self._is_blocked or not self.flush(trio.current_time()) or self._is_blocked:
            self._bell.ring()
        self._bell.hurry(self._poll_timeout())

    def close(self) -> None:
        """Send nothing any more: the socket is closing."""
        self._is_closed = True

    def ring(self) -> None:
        """Let a turn be taken soon."""
        self._bell.ring()

    @property
    def _is_blocked(self) -> bool:
        return self._departures.is_blocked or self._desk.is_blocked

    def _poll_timeout(self) -> float | None:
        return earliest(self._endpoint.poll_timeout(), self._desk.poll_timeout())

    def _receive(self, now: float) -> bool:
        """Take a batch off the socket; false when there may be more."""
        received = size = 0
        for row in self._udp.receive_batch(BATCH, BATCH_BYTES):
            if self._desk.is_busy:
                for part in self._desk.take_own_untrusted(now, row):
                    self._endpoint.handle_row_untrusted(now, part)
            else:
                self._endpoint.handle_row_untrusted(now, row)
            received += row.number
            size += len(row.data)
        return received < BATCH and size < BATCH_BYTES
