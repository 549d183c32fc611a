"""The loop of a node: receive a batch, handle it, wake readers, send a batch.

Two tasks run it. The first waits for the socket and handles a batch. It wakes the tasks that wait
for messages. Mostly nothing has to leave then, for an ack waits for an answer, or for its timer. If
an ack is due, those tasks have a turn before it leaves, so that it travels with an answer. The
second task sends the rest: corked messages, large transfers, output of timers, and datagrams that
the socket had no room for. There is one way in, ``_receive``, and one way out, ``flush``.

**Corking.** A message that finds the line idle leaves within the call. What follows within
``CORKING`` seconds of it is queued only, and leaves together as soon as the program waits for
anything: the cost of a packet, some 100 us, is then shared by all of them (Nagle's algorithm, RFC
896, with the turn of the event loop in place of the acknowledgement). The interval counts from the
end of the lone send, or the packet's own cost would be taken for the program's pause. It ends when
the program has waited for a message: what it sends then is an answer, which has nothing to wait
for.

**Turns.** A program that sends or reads without ever waiting lets others have a turn when ``TURN``
seconds have gone by since it had its own. At every message a turn would cost as much as ten
messages. The loop, too, sends for ``TURN`` seconds at most, and leaves the rest to the second task.

**Timers.** The second task sleeps until the next timer is due. Most timers are postponed before
they fire, so the loop does not move the wakeup with each packet. It moves the wakeup only if a
timer is set to an earlier time; and when the task wakes, it checks whether a timer is due. The
timer of a connection is set after it was polled. So while the socket has no room, and connections
cannot be polled, the task wakes every ``BLOCKED`` seconds.

**Busy polling.** A task that sleeps is woken late, on a virtual machine some 25 us after the
datagram came, and with cold caches. So where answers come soon, the loop looks for the next one for
a while before it sleeps (the kernel's ``net.core.busy_poll``). It does so only while a task waits
for an answer, and if the last answer came within that time: a single miss ends it.
"""

import math
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.datagrams import Datagrams
from sphtp.shell.instruments import LimitLog
from sphtp.shell.lifetime import running
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    from sphtp.shell.stream_dispatcher import StreamDispatcher

TURN: Final = 0.0005
"""Seconds of sending or reading after which other tasks have a turn."""

CORKING: Final = 0.0001
"""Seconds after a lone send in which messages wait for others to leave with."""

BATCH: Final = 256
BATCH_BYTES: Final = 512 * 1024
"""Datagrams, and bytes, taken off the socket before anything else is done. Acks leave after them:
with much larger batches one side waits while the other one works."""

LITTLE: Final = 1024
"""The bytes of a batch up to which acks always wait for a task that was woken."""

MOST_BEHIND: Final = 16
"""The full batches in a row after which timers are handled even if the socket holds more."""

LOOKS: Final = 256
"""The most looks at the socket in busy polling; it ends also under a clock that stands still."""

SENT_BYTES: Final = 512 * 1024
"""The most bytes that leave in a turn of the loop: half a millisecond's worth at 1 GB/s."""

BLOCKED: Final = 0.01
"""The most seconds between two looks at the timers while the socket has no room."""

LOG_INTERVAL: Final = 0.1
"""Seconds between two looks at the counters of limits."""

yield_core: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)
"""Yields the core to other processes."""


class Loop:
    """Moves datagrams between the socket of a node and its channels and streams.

    ``report`` is called with each connection that may have changed. It wakes the tasks that wait,
    and returns True if one waited for messages that came. ``busy_poll`` is the number of seconds
    for which the loop polls for an answer before it sleeps.
    """

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        streams: "StreamDispatcher",
        limits: LimitLog,
        report: Callable[[Connection], bool],
        busy_poll: float = 0.0,
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._streams = streams
        self._limits = limits
        self._report = report
        self._is_closed = False
        # Connections whose messages are held back, and what queues these; when something last left.
        self._corked: deque[tuple[Connection, Callable[[], None]]] = deque()
        self._sent_at = -math.inf
        # When the program had a turn last.
        self._turn_began = -math.inf
        # Datagrams that the socket had no room for, and whether there are any, or of streams.
        self._unsent: deque[Datagrams] = deque()
        self._is_blocked = False
        # The task that sends: whether there is something to do for it, where it sleeps, and until
        # when.
        self._is_asked = False
        self._asleep = trio.lowlevel.ParkingLot()
        self._sleep = trio.CancelScope()
        self._wake_at = math.inf
        # Whether the last batch emptied the socket, and leaves nothing to send at once; batches in
        # a row that did not empty it.
        self._is_dry = self._is_quiet = True
        self._behind = 0
        # When to look at the counters of limits.
        self._log_at = math.inf
        # Unparked whenever connections have been reported.
        self.reported = trio.lowlevel.ParkingLot()
        # Takes messages that came by shared memory, and returns whose they are.
        self.take_entries: Callable[[], list[Connection]] | None = None
        # Takes STUN messages out of what has come, and returns the rest.
        self.take_stun: Callable[[float, Sequence[Datagrams]], Sequence[Datagrams]] | None = None
        # How many times a task that waited for messages has gone on.
        self._resumed = 0
        # Busy polling: how many wait for messages, whether something was sent since one was read,
        # and whether the last one that was waited for came in time.
        self._window = busy_poll
        self._waiting = 0
        self._expects_answer = False
        self._answers_are_quick = False

    # Tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run beside the block; an error ends the block."""
        async with running(self._receive_forever), running(self._send_forever):
            yield

    def close(self) -> None:
        """Stop sending: the socket is closing."""
        self._is_closed = True

    async def _receive_forever(self) -> None:
        while True:
            if not self._is_dry:
                await trio.lowlevel.checkpoint()
            elif not (self._is_answer_near and await self._poll_busily()):
                await self._udp.wait_readable()
            is_awaited = self._receive()
            if self._is_quiet:
                continue
            if is_awaited:
                await self._let_readers_go_first()
            if not self.flush():
                self._ask()

    async def _send_forever(self) -> None:
        is_done = True
        while True:
            self._wake_at = self._due()
            with trio.CancelScope(deadline=self._wake_at) as self._sleep:
                if self._is_blocked:
                    await self._udp.wait_writable()
                elif is_done and not self._is_asked:
                    await self._asleep.park()
                else:
                    await trio.lowlevel.checkpoint()
            is_time = self._wake_at <= trio.current_time()
            if is_time and (self._is_blocked or self._due() <= trio.current_time()):
                await self._handle_timers()
            elif is_done and not self._is_asked:
                # The timer has moved away, or what was asked for has left with something else.
                continue
            is_done = self.flush()

    def _ask(self) -> None:
        """Wake the sending task."""
        if not self._is_asked:
            self._is_asked = True
            self._asleep.unpark()

    async def _handle_timers(self) -> None:
        # What lies in the socket may hold the acks and signs of life that are overdue, should this
        # process have stood still; but a flood must not hold up time for ever. The time is that at
        # which the socket was read: a reader whose turn comes first may stand still, too.
        now = trio.current_time()
        if self._receive():
            await self._let_readers_go_first()
        if 0 < self._behind < MOST_BEHIND:
            return
        self._behind = 0
        if self._is_blocked:
            for connection, _ in self._corked:
                self._endpoint.touch(connection)
        self._endpoint.handle_timeout(now, is_blocked=self._is_blocked)
        if self._streams.is_busy:
            self._streams.handle_timeout(now)
        if now >= self._log_at:
            self._limits.look(now)
            self._log_at = math.inf

    def _due(self) -> float:
        """Return the time at which the next timer is due."""
        self._endpoint.poll_timeout()
        due = min(self._endpoint.idle_until, self._log_at)
        if self._streams.is_busy and (next_due := self._streams.poll_timeout()) is not None:
            due = min(due, next_due)
        if self._is_blocked:
            # What waits for the socket is set no timer until it was polled.
            due = min(due, trio.current_time() + BLOCKED)
        return due

    # In

    @property
    def _is_answer_near(self) -> bool:
        return self._answers_are_quick and self._expects_answer and self._waiting > 0

    async def _poll_busily(self) -> bool:
        """Poll the socket for a while. Return False if nothing came."""
        until = perf_counter() + self._window
        for _ in range(LOOKS):
            await trio.lowlevel.checkpoint()
            if self._udp.is_readable():
                return True
            if not self._is_answer_near:
                return False
            yield_core()
            if perf_counter() > until:
                break
        self._answers_are_quick = False
        return False

    def _receive(self) -> bool:
        """Receive a batch from the socket, handle it, and report the changes.

        Return True if a reader was waiting and acks can wait: an answer is expected, or the batch
        was small.
        """
        now = trio.current_time()
        rows, streams = self._udp.receive_batch(BATCH, BATCH_BYTES), self._streams
        if self.take_stun is not None:
            rows = self.take_stun(now, rows)
        if streams.is_busy:
            rows = [part for row in rows for part in streams.take_own_untrusted(now, row)]
        if self.take_entries is not None:
            # They were sent before what is in these packets: see ``core.channel.shared_memory``.
            for connection in self.take_entries():
                self._endpoint.active[connection] = None
        self._endpoint.handle_rows_untrusted(now, rows)
        self._is_dry = self._udp.is_drained
        self._behind = 0 if self._is_dry else self._behind + 1
        if self._log_at == math.inf:
            self._log_at = now + LOG_INTERVAL
        self._is_quiet = self._endpoint.poll_idle(now) and not self._unsent and not streams.is_busy
        if self._is_quiet:
            self._wake_by(min(self._endpoint.idle_until, self._log_at))
        return self._report_all() and (
            self._expects_answer or sum([len(row.data) for row in rows]) <= LITTLE
        )

    def report_one(self, connection: Connection) -> None:
        """Report a connection for which messages came by shared memory."""
        self._endpoint.active[connection] = None
        self._report_all()

    async def _let_readers_go_first(self) -> None:
        """Let woken readers run before acks leave, so that acks travel with an answer.

        Tasks that are ready run in any order: their first turn comes before ours or after it.
        """
        resumed = self._resumed
        await trio.lowlevel.checkpoint()
        if self._resumed == resumed:
            await trio.lowlevel.checkpoint()

    async def wait_for_messages(self, asleep: trio.lowlevel.ParkingLot) -> None:
        """Sleep until ``asleep`` is unparked."""
        began = perf_counter()
        self._waiting += 1
        try:
            await asleep.park()
        finally:
            self._waiting -= 1
            self._resumed += 1
            self._turn_began = perf_counter()
        self._answers_are_quick = self._turn_began - began < self._window
        self._expects_answer = False
        self._sent_at = -math.inf

    # Out

    @property
    def is_turn_over(self) -> bool:
        """True if the program has sent or read for so long that other tasks should have a turn."""
        return perf_counter() - self._turn_began > TURN

    async def give_way(self) -> None:
        """Give other tasks a turn. Cannot be cancelled."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._turn_began = self._sent_at = perf_counter()

    def cork(self, connection: Connection, push: Callable[[], None]) -> None:
        """Schedule corked messages to leave, at once if the line is idle.

        ``push`` queues them in the core. It is called before the core is asked for datagrams.
        """
        self._expects_answer = True
        is_idle = (
            not self._corked and not self._is_asked and perf_counter() - self._sent_at > CORKING
        )
        self._corked.append((connection, push))
        if not is_idle or not self.flush():
            self._ask()
        if is_idle:
            # Also where window or pacer let nothing leave: or each message would ask them anew.
            self._sent_at = perf_counter()

    def hold(self, connection: Connection, push: Callable[[], None]) -> None:
        """Keep corked messages back until the next ``flush_now`` or ``flush_soon``."""
        self._expects_answer = True
        self._corked.append((connection, push))

    def ask(self) -> None:
        """Send what is held at the next schedule point: for what the loop itself calls."""
        self._ask()

    def flush_soon(self, connection: Connection) -> None:
        """Send a connection's datagrams at the next schedule point."""
        self._endpoint.touch(connection)
        self._ask()

    def flush_now(self, connection: Connection | None = None) -> None:
        """Send datagrams at once, and leave the excess to the sending task."""
        if connection is not None:
            self._endpoint.touch(connection)
        if not self.flush():
            self._ask()

    def flush(self) -> bool:
        """Send for the length of a turn, and report the changes. Return False if there is more."""
        self._is_asked = False
        if self._is_closed:
            return True
        now = trio.current_time()
        is_done = self._send(now)
        due, streams = min(self._endpoint.idle_until, self._log_at), self._streams
        if streams.is_busy:
            is_done &= streams.send(now)
            if (next_due := streams.poll_timeout()) is not None:
                due = min(due, next_due)
        self._is_blocked = bool(self._unsent) or streams.is_blocked
        self._report_all()
        self._wake_by(due)
        return is_done

    def _wake_by(self, due: float) -> None:
        """Have the task that sends wake at this time, if it meant to wake later."""
        if due < self._wake_at:
            self._wake_at = self._sleep.deadline = due

    def _send(self, now: float) -> bool:
        """Send everything, or as much as a turn allows. Return False if something is left."""
        udp, endpoint, unsent, corked = self._udp, self._endpoint, self._unsent, self._corked
        left, until = SENT_BYTES, perf_counter() + TURN
        while unsent or left > 0:
            if not unsent:
                if corked:
                    connection, push = corked.popleft()
                    push()
                    endpoint.touch(connection)
                row = endpoint.poll_transmit(now, left)
                if row is not None:
                    unsent.append(row)
                    left -= len(row.data)
            is_empty = not unsent
            has_room = is_empty or udp.send(unsent)
            ended = perf_counter()
            if not is_empty:
                self._sent_at = ended
            while udp.too_large:
                (address, size), _ = udp.too_large.popitem()
                endpoint.handle_too_large(now, address, size)
            if not has_room:
                return False
            if not corked and endpoint.poll_idle(now):
                return True
            if ended > until:
                return False
        return False

    # Who waits

    def _report_all(self) -> bool:
        """Report the connections that changed. Return True if a task waited for messages."""
        is_awaited = False
        active = self._endpoint.active
        while active:
            is_awaited |= self._report(active.popitem()[0])
        if self.reported:
            self.reported.unpark_all()
        return is_awaited
