"""The loop of a node: receive a batch, handle it, wake readers, send a batch.

Two tasks run the loop. The first task waits for the socket, handles a batch, and wakes the tasks
that wait for messages. Mostly nothing has to leave then, because an ack waits for a message of the
program, or for its timer. If an ack is due after a small batch, or while a reply is expected, the
woken tasks have a turn before it leaves, so that it travels with their messages. The second task
sends the rest: corked messages, large transfers, output of timers, and datagrams for which the
socket had no room. There is one way in, ``_receive``, and one way out, ``flush``, except for STUN
messages (see ``nat``).

**Corking.** If nothing has left within the last ``CORKING`` seconds, a message leaves within the
call. Otherwise it is corked: it leaves together with other messages as soon as the program waits
for anything. So they share the cost of a packet, some 100 us (Nagle's algorithm, RFC 896, with the
turn of the event loop in place of the acknowledgement). The interval begins at the end of a send,
because otherwise the cost of the packet itself would count as a pause of the program; and again
when a program that never waits has let other tasks have a turn. It also ends when the program has
waited for a message: the next message is probably a reply, and need not wait.

**Turns.** A program that sends or reads without ever waiting lets other tasks have a turn after
``TURN`` seconds. A turn at every message would cost as much as ten messages. The loop, too, stops
sending after ``TURN`` seconds or ``SENT_BYTES``, and leaves the rest to the second task.

**Timers.** The second task sleeps until the next timer is due. Most timers are postponed before
they fire, so the loop does not move the wakeup with each packet. It moves the wakeup only if a
timer is set to an earlier time. When the task wakes, it checks whether a timer is due. The timer of
a connection is set after the connection was polled. So while the socket has no room, and
connections cannot be polled, the task wakes every ``BLOCKED`` seconds.

**Busy polling.** A sleeping task is woken late, on a virtual machine some 25 us after the datagram
arrived, and with cold caches; then Trio needs two turns until the reader goes on. So where replies
arrive soon, a task that waits for one polls for up to ``busy_poll`` seconds before it sleeps (the
kernel's ``net.core.busy_poll``): see ``Readers``. It reads the ring of shared memory, and the
socket, whose datagrams it handles in its own turn.
"""

import math
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
    from sphtp.shell.channel import ChannelHooks
    from sphtp.shell.stream_dispatcher import StreamDispatcher

TURN: Final = 0.0005
"""Seconds of sending or reading after which other tasks have a turn."""

CORKING: Final = 0.0001
"""Seconds after a send in which further messages are corked."""

BATCH: Final = 256
BATCH_BYTES: Final = 512 * 1024
"""The datagrams, and the bytes, after which a batch that is read from the socket ends. Acks leave
after a batch: with much larger ones, one side would wait while the other one works."""

LITTLE: Final = 1024
"""The bytes of a single row of datagrams up to which its ack waits for the turn of the woken tasks,
even if no reply is expected."""

MOST_BEHIND: Final = 16
"""The full batches in a row after which timers are handled even if the socket holds more."""

LOOKS: Final = 1024
"""The most looks of a task that polls, so that polling ends even if the clock stands still."""

LOOKS_IN_TURN: Final = 8
"""The looks of a task that polls, some 5 us each, after which other tasks have a turn. A turn costs
as much as three looks."""

SENT_BYTES: Final = 512 * 1024
"""The bytes after which a turn of the loop ends: at 1 GB/s, they take half a millisecond."""

BLOCKED: Final = 0.01
"""The most seconds between two checks of the timers while the socket has no room."""

LOG_INTERVAL: Final = 0.1
"""Seconds from the arrival of a batch to a check of the counters of limits."""

yield_core: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)
"""Yields the core to other processes."""


class Loop:
    """The event loop of a node: it moves datagrams between the socket, the channels and streams.

    ``channels`` has the hooks of the channels that have not ended. The loop wakes a channel when
    its connection may have changed. It calls ``report`` with a connection that has no channel, or
    has ended. ``report`` returns True if a task waited for messages that have arrived.
    ``busy_poll`` is the most seconds for which a task polls for a reply before it sleeps.
    """

    def __init__(
        self,
        udp: UdpSocket,
        endpoint: Endpoint,
        streams: "StreamDispatcher",
        limits: LimitLog,
        channels: "Mapping[Connection, ChannelHooks]",
        report: Callable[[Connection], bool],
        busy_poll: float = 0.0,
    ) -> None:
        self._udp = udp
        self._endpoint = endpoint
        self._streams = streams
        self._limits = limits
        self._channels = channels
        self._report = report
        self._is_closed = False
        # Connections with corked messages, each with the function that queues these; and the time
        # of the last send.
        self._corked: deque[tuple[Connection, Callable[[], bool]]] = deque()
        self._sent_at = -math.inf
        # The time at which the program last had a turn.
        self._turn_began = -math.inf
        # Datagrams for which the socket had no room; and True if there are any, or any of streams.
        self._unsent: deque[Datagrams] = deque()
        self._is_blocked = False
        # The sending task: True if it has work, where it sleeps, and until which time. A timer that
        # is set earlier than that moves the time; one that is postponed does not.
        self._is_asked = False
        self._asleep = trio.lowlevel.ParkingLot()
        self._sleep = trio.CancelScope()
        self._wake_at = math.inf
        # True if the last batch emptied the socket, and if nothing has to leave at once; and the
        # number of batches in a row that did not empty the socket.
        self._is_dry = self._is_quiet = True
        self._behind = 0
        # The time of the next check of the counters of limits.
        self._log_at = math.inf
        # Unparked whenever connections have been reported.
        self.reported = trio.lowlevel.ParkingLot()
        # Takes messages that came by shared memory, and returns their connections.
        self.take_entries: Callable[[], list[Connection]] | None = None
        # Removes STUN messages from the received rows, and returns the rest.
        self.take_stun: Callable[[float, Sequence[Datagrams]], Sequence[Datagrams]] | None = None
        # The number of times that a task that slept until a message came has gone on.
        self._resumed = 0
        self.busy_poll = busy_poll
        # The number of tasks that poll.
        self.pollers = 0
        # True if a message was corked since a task last waited for one.
        self._expects_answer = False

    # Tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loop beside the block; an error of the loop ends the block."""
        async with running(self._receive_forever), running(self._send_forever):
            yield

    def close(self) -> None:
        """Stop sending: the socket is closing."""
        self._is_closed = True

    async def _receive_forever(self) -> None:
        while True:
            if not self._is_dry:
                await trio.lowlevel.checkpoint()
            else:
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
                # The timer was postponed, or the output has left with other datagrams.
                continue
            is_done = self.flush()

    def _ask(self) -> None:
        """Wake the sending task."""
        if not self._is_asked:
            self._is_asked = True
            self._asleep.unpark()

    async def _handle_timers(self) -> None:
        # If this process was suspended, overdue acks and other packets may wait in the socket. So
        # they are read first, except in a flood, which must not postpone the timers for ever. The
        # timers use the time before the socket was read: a woken reader may be suspended, too.
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
            # Connections that wait for the socket have no timer until they are polled.
            due = min(due, trio.current_time() + BLOCKED)
        return due

    # In

    def look(self) -> bool:
        """Handle a batch in the turn of a task that polls.

        Return False if nothing has arrived, or the loop is closed.
        """
        if self._is_closed or not self._udp.is_readable():
            return False
        self._receive()
        if not self._is_quiet:
            self._ask()
        return True

    def _receive(self) -> bool:
        """Receive a batch from the socket, handle it, and report the changes.

        Return True if a reader was waiting and acks can wait for its turn: a reply is expected, or
        a single row with few bytes arrived.
        """
        now = trio.current_time()
        rows, streams = self._udp.receive_batch(BATCH, BATCH_BYTES), self._streams
        if self.take_stun is not None:
            rows = self.take_stun(now, rows)
        if streams.is_busy:
            rows = [part for row in rows for part in streams.take_own_untrusted(now, row)]
        if self.take_entries is not None:
            # The peer sent these before the packets: see ``core.channel.shared_memory``.
            for connection in self.take_entries():
                self._endpoint.active[connection] = None
        self._endpoint.handle_rows_untrusted(now, rows)
        self._is_dry = self._udp.is_drained
        self._behind = 0 if self._is_dry else self._behind + 1
        if self._log_at == math.inf:
            self._log_at = now + LOG_INTERVAL
        self._is_quiet = self._endpoint.poll_idle(now) and not self._unsent and not streams.is_busy
        if self._is_quiet:
            due = min(self._endpoint.idle_until, self._log_at)
            if due < self._wake_at:
                self._wake_at = self._sleep.deadline = due
        is_little = len(rows) == 1 and len(rows[0].data) <= LITTLE
        return self._report_all() and (self._expects_answer or is_little)

    def report_one(self, connection: Connection) -> None:
        """Report a connection for which messages came by shared memory."""
        self._endpoint.active[connection] = None
        self._report_all()

    async def _let_readers_go_first(self) -> None:
        """Let woken readers run before acks leave, so that acks travel with their messages.

        Trio runs ready tasks in any order: their first turn comes before or after that of the loop.
        """
        resumed = self._resumed
        await trio.lowlevel.checkpoint()
        if self._resumed == resumed:
            await trio.lowlevel.checkpoint()

    def resume(self, *, has_slept: bool) -> None:
        """Note that a task that waited for messages goes on: its reply may leave at once."""
        self._expects_answer = False
        self._sent_at = -math.inf
        if has_slept:
            self._resumed += 1
            self._turn_began = perf_counter()

    # Out

    @property
    def is_turn_over(self) -> bool:
        """True if the program has sent or read for so long that other tasks should have a turn."""
        return perf_counter() - self._turn_began > TURN

    async def give_way(self) -> None:
        """Give other tasks a turn. Cannot be cancelled."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._turn_began = self._sent_at = perf_counter()

    def cork(self, connection: Connection, push: Callable[[], bool]) -> None:
        """Schedule corked messages to leave, at once if nothing has left for ``CORKING`` seconds.

        ``push`` queues the messages in the core. It returns False if it has queued none: all have
        left by shared memory, or the connection has ended. The loop calls it before it polls the
        core for datagrams.
        """
        self._expects_answer = True
        is_idle = (
            not self._corked and not self._is_asked and perf_counter() - self._sent_at > CORKING
        )
        self._corked.append((connection, push))
        if not is_idle or not self.flush():
            self._ask()
        if is_idle:
            # Also if window or pacer let nothing leave: otherwise each message would poll again.
            self._sent_at = perf_counter()

    def hold(self, connection: Connection, push: Callable[[], bool]) -> None:
        """Keep corked messages until the loop sends next, as after ``ask`` or ``flush_now``."""
        self._expects_answer = True
        self._corked.append((connection, push))

    def ask(self) -> None:
        """Send held messages at the next schedule point; for functions that the loop calls."""
        self._ask()

    def flush_soon(self, connection: Connection) -> None:
        """Send a connection's datagrams at the next schedule point."""
        self._endpoint.touch(connection)
        self._ask()

    def flush_asked(self) -> None:
        """Send at once if the sending task has been woken for it."""
        if self._is_asked and not self.flush():
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
        if due < self._wake_at:
            self._wake_at = self._sleep.deadline = due
        return is_done

    def _send(self, now: float) -> bool:
        """Send as much as a turn and the socket allow. Return False if something may be left."""
        udp, endpoint, unsent, corked = self._udp, self._endpoint, self._unsent, self._corked
        left, until = SENT_BYTES, perf_counter() + TURN
        while unsent or left > 0:
            if not unsent:
                if corked:
                    connection, push = corked.popleft()
                    if push():
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

    # Reports

    def _report_all(self) -> bool:
        """Report the connections that changed. Return True if a task waited for messages."""
        is_awaited = False
        active, channels = self._endpoint.active, self._channels
        while active:
            connection, _ = active.popitem()
            channel = channels.get(connection) if connection.closed is None else None
            is_awaited |= self._report(connection) if channel is None else channel.wake()
        if self.reported:
            self.reported.unpark_all()
        return is_awaited


class Readers:
    """The tasks that wait for messages of a channel, or for the step of a group.

    A task polls before it sleeps if something was sent since the last wait, and if that wait took
    less than ``busy_poll`` seconds: a single longer one ends it. Each vain look yields the core to
    other processes, such as the one that has to reply. Other tasks of this process have a turn
    after ``LOOKS_IN_TURN`` looks, or after each look if one of them polls, too.
    """

    __slots__ = ("_are_replies_quick", "_asleep", "_began", "_loop", "_sent")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._asleep = trio.lowlevel.ParkingLot()
        self._are_replies_quick = False
        # The time of the last call of ``poll``, and its ``sent``.
        self._began = 0.0
        self._sent = 0

    def __bool__(self) -> bool:
        """Return True if a task sleeps."""
        return bool(self._asleep)

    def wake(self) -> bool:
        """Wake the sleeping tasks; return True if there were any."""
        return bool(self._asleep.unpark_all())

    async def poll(self, has_arrived: Callable[[], bool], sent: int) -> bool:
        """Poll until ``has_arrived`` returns true. Return False if the task has to sleep.

        ``sent`` is a number that changes whenever a task sends something. No checkpoint follows
        the last call of ``has_arrived``, so that no message arrives between it and ``sleep``.
        """
        began = self._began = perf_counter()
        has_sent, self._sent = sent != self._sent, sent
        if not (has_sent and self._are_replies_quick):
            return False
        loop = self._loop
        loop.pollers += 1
        try:
            # Otherwise a reply might find messages of this turn still corked.
            loop.flush_asked()
            for look in range(LOOKS):
                if look and (loop.pollers > 1 or not look % LOOKS_IN_TURN):
                    await trio.lowlevel.checkpoint()
                # Shared memory costs less to look at than the socket.
                if has_arrived() or (loop.look() and has_arrived()):
                    loop.resume(has_slept=False)
                    return True
                yield_core()
                if perf_counter() - began > loop.busy_poll:
                    break
        finally:
            loop.pollers -= 1
        self._are_replies_quick = False
        return False

    async def sleep(self) -> None:
        """Sleep until ``wake``, after ``poll`` was in vain."""
        try:
            await self._asleep.park()
        finally:
            self._loop.resume(has_slept=True)
        self._are_replies_quick = perf_counter() - self._began < self._loop.busy_poll
