"""A node's turns: what comes off the socket is handed on, time passes, and what is said leaves."""

from collections.abc import Callable
from typing import Final

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.datagrams import Datagrams
from sphtp.core.timers import earliest
from sphtp.shell.bell import Bell
from sphtp.shell.busy_poll import BusyPoll
from sphtp.shell.courtesy import Courtesy
from sphtp.shell.departures import SMALL, Departures
from sphtp.shell.limits import LimitLog
from sphtp.shell.streams.desk import StreamDesk
from sphtp.shell.udp import UdpSocket

BATCH: Final = 256
"""Datagrams taken off the socket before others get a turn; a node must not starve its program."""

BATCH_BYTES: Final = 1024 * 1024
"""Bytes taken off it before acks leave: else one side waits while the other one works."""

MOST_BEHIND: Final = 16
"""Full batches in a row after which timers are looked at whatever the socket still holds."""

MOST_PUT_OFF: Final = 6
"""Answers that leave before it is noted what they are answers to."""


class Traffic:
    """Channels and streams behind one socket; ``report`` is told what connections have news."""

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        desk: StreamDesk,
        limits: LimitLog,
        report: Callable[[Connection], bool],
        welcome: Callable[[], None],
        window: float = 0.0,
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
        self.busy_poll = BusyPoll(self, window)
        # Answers that left before all else, and whether anything was left undone for them.
        self._put_off = 0
        self._is_untidy = False
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
        await self._wait()
        self._bell.answer()
        now = trio.current_time()
        # What lies in the socket still may hold the acks and the signs of life that are overdue;
        # but a flood must not hold up time for ever.
        is_dry = await self._receive(now)
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

    async def _wait(self) -> None:
        if self._goes_on:
            await trio.lowlevel.checkpoint()
            return
        if await self.busy_poll.stay_awake():
            return
        self.tidy()
        with self._bell.listening(self._poll_timeout()):
            await self._udp.wait_readable()

    def has_work(self, now: float) -> bool:
        """Whether a timer is due, or the task was rung for."""
        due = self._poll_timeout()
        return self._bell.has_rung or (due is not None and due <= now)

    def flush(self, now: float) -> bool:
        """Send and report what a turn has time for; false when there is more to send."""
        self._put_off, self._is_untidy = 0, False
        is_done = self._departures.send(now, self.courtesy.turn(now))
        has_streams = self._desk.is_busy or self._desk.is_blocked
        if has_streams and not self._departures.is_blocked:
            self._desk.send(now)
        self._welcome()
        self._tell()
        return is_done

    def touch(self, connection: Connection) -> None:
        """Send at once what a command gave rise to: waking the task first would cost a turn."""
        self._endpoint.touch(connection)
        self.busy_poll.expect()
        may_wait = self.busy_poll.is_polling and self._put_off < MOST_PUT_OFF
        if may_wait and self._sends_first(connection):
            self._put_off += 1
            self._is_untidy = True
        else:
            self.touch_all()

    def touch_all(self) -> None:
        """The same, whoever it was that got a command."""
        if self._is_closed:
            return
        if self._is_blocked or not self.flush(trio.current_time()) or self._is_blocked:
            self._bell.ring()
        self._bell.hurry(self._poll_timeout())

    def _sends_first(self, connection: Connection) -> bool:
        """Send the one small message that a connection has; false when there is more to send."""
        is_sent = self._departures.send_first(trio.current_time(), connection.address)
        return is_sent and not connection.port.wants_to_send

    def tidy(self) -> None:
        """Do what was put off for the sake of answers, and tell who waits."""
        if self._is_untidy:
            self.touch_all()

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

    async def _receive(self, now: float) -> bool:
        """Take a batch off the socket; false when there may be more."""
        received = size = 0
        for row in self._udp.receive_batch(BATCH, BATCH_BYTES):
            self._take(now, row)
            if not received and len(row.data) <= SMALL and self._tell():
                # Who waited for it may answer before all else that there is to do: the first turn
                # of theirs comes before or after ours, and the second one after it.
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            received += row.number
            size += len(row.data)
        return received < BATCH and size < BATCH_BYTES

    def is_waiting(self) -> bool:
        """Whether a datagram lies in the socket."""
        return self._udp.is_readable()

    def fetch(self) -> bool:
        """Take what came first off the socket; false when there is nothing."""
        if not self._udp.is_readable():
            return False
        for row in self._udp.receive_batch(1):
            self._take(trio.current_time(), row)
            self._is_untidy = True
        return True

    def _take(self, now: float, row: Datagrams) -> None:
        if self._desk.is_busy:
            for part in self._desk.take_own_untrusted(now, row):
                self._endpoint.handle_datagrams_untrusted(now, part)
        else:
            self._endpoint.handle_datagrams_untrusted(now, row)

    def _tell(self) -> bool:
        """Tell of connections that have news; true when somebody waited for it."""
        is_awaited = False
        while (connection := self._endpoint.poll_active()) is not None:
            is_awaited |= self._report(connection)
        return is_awaited
