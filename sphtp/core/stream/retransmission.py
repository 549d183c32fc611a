"""Retransmission: from a receiver's NAK to the repair, or to the NCF with the reason for none.

For each datagram that a NAK names, the first rule that applies decides:

1. It is no longer in the transmission window: nothing can repair it. A session message tells the
   trail soon, so that receivers give up early.
2. Its receiver has used up its NAK budget: it is left out, and will be asked for again.
3. It was repaired within the ignore interval: that repair is on its way. NCF: ``IGNORED``.
4. Its repair waits already. NCF: ``RX_DELAY``.
5. Too many repairs wait. NCF: ``SHED``.
6. Its repair is queued. It leaves at once where the retransmit rate limit allows it; else the NCF
   is ``RX_DELAY``, with the time that all repairs before it take at that rate.

Repairs leave the lowest datagram first, because it is the first to leave the window. Their rate is
the setting ``repair_rate``, or less while little new data leaves (``rate_limit``).

In a group a repair for one receiver reaches all of them, which mostly missed the same datagrams.
Without a group each receiver has a queue and a rate of its own, and gets only the datagrams that it
asked for. A copy for every receiver would cost as much as the first transmission did, and all but
one of the copies would be of no use: at 5 % loss eight receivers would get eight times the repairs
that they need, and where these share a path that is full they would keep it full.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Final

from sphtp.core.stream.events import ALL_RECEIVERS, Crybaby, OutgoingBodies, SourceEvent
from sphtp.core.stream.flow_control import SourceReceiver
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.rate_limit import RateLimit
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import SourceCounters
from sphtp.core.stream.transmission_window import SessionMessageSchedule, TransmissionWindow
from sphtp.core.stream.wire import (
    DATA_OVERHEAD,
    MOST_RANGES,
    Ncf,
    NcfReason,
    Window,
    cut,
    encode_data,
    encode_ncf,
)
from sphtp.core.timers import ExpiringDict, earliest
from sphtp.core.token_bucket import Pacer

ALIKE: Final = 64
"""Waits of up to so many milliseconds share an NCF; longer ones share it up to the double."""


class Retransmitter:
    """The answers to NAKs: the repairs for each receiver, or for all of a ``shared`` group.

    Bodies have at most ``size`` bytes. Receivers for which nothing waits cost nothing.
    """

    def __init__(
        self,
        settings: StreamSettings,
        size: int,
        rate_limit: RateLimit,
        window: TransmissionWindow,
        sessions: SessionMessageSchedule,
        counters: SourceCounters,
        events: deque[SourceEvent],
        *,
        shared: bool,
    ) -> None:
        self._settings = settings
        self._size = size
        self._rate_limit = rate_limit
        self._window = window
        self._sessions = sessions
        self._counters = counters
        self._events = events
        self._shared = shared
        self._retransmissions: dict[int, Retransmissions] = {}
        # Receivers for which something waits, and those of them that have not had a turn yet in
        # this round.
        self._busy: dict[int, Retransmissions] = {}
        self._round: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """The number of repairs that wait for their turn."""
        return sum(one.waiting for one in self._busy.values())

    @property
    def ready(self) -> float | None:
        """The time at which the next repair or NCF may leave; None when there is none."""
        ready: float | None = None
        for one in self._busy.values():
            ready = earliest(ready, one.ready)
        return ready

    def handle_nak(
        self, now: float, number: int, receiver: SourceReceiver, spans: Sequence[Span]
    ) -> None:
        """Take a NAK of a receiver with this ``number`` for datagrams that were sent."""
        counters, window = self._counters, self._window
        counters.nak_packets_received += 1
        window.expire(now)
        for first, last in spans:
            counters.naks_received += last - first + 1
            if first < window.trail:
                counters.naks_out_of_window += min(last + 1, window.trail) - first
                self._sessions.handle_out_of_window(now)
            start = max(first, window.trail)
            wanted = last - start + 1
            if wanted <= 0:
                continue
            granted = receiver.nak_budget.take_up_to(now, wanted)
            if granted:
                destination = ALL_RECEIVERS if self._shared else number
                retransmissions = self._retransmissions_to(destination)
                retransmissions.ask(now, start, start + granted - 1)
                if retransmissions.ready is not None:
                    self._busy[destination] = retransmissions
                self._sessions.handle_nak(now)
            if granted < wanted:
                counters.naks_over_budget += wanted - granted
                self._report_crybaby(now, number, receiver)

    def leave(self, receiver: int) -> None:
        """Drop the repairs and NCFs of one receiver."""
        self._retransmissions.pop(receiver, None)
        self._busy.pop(receiver, None)

    def clear(self) -> None:
        """Drop everything that waits."""
        self._retransmissions.clear()
        self._busy.clear()

    def poll(self, now: float, most: int) -> OutgoingBodies | None:
        """Return the bodies that may leave for the next receiver of a round, ``most`` at most.

        None ends the round; the next call begins another one.
        """
        while self._round:
            receiver = self._round.popleft()
            retransmissions = self._busy.get(receiver)
            if retransmissions is None:
                continue
            bodies = retransmissions.poll(now, most)
            if retransmissions.ready is None:
                del self._busy[receiver]
            if bodies:
                return OutgoingBodies(receiver, bodies)
        self._round.extend(self._busy)
        return None

    def _retransmissions_to(self, destination: int) -> "Retransmissions":
        found = self._retransmissions.get(destination)
        if found is None:
            found = self._retransmissions[destination] = Retransmissions(
                self._settings, self._size, self._rate_limit, self._window, self._counters
            )
        return found

    def _report_crybaby(self, now: float, number: int, receiver: SourceReceiver) -> None:
        """Report a receiver that exceeds its NAK budget, once in a generation interval."""
        last = receiver.complained_at
        if last is None or now - last >= self._settings.generation:
            receiver.complained_at = now
            self._counters.crybabies += 1
            self._events.append(Crybaby(number))


class Retransmissions:
    """Repairs and NCFs for one receiver, or for a group."""

    def __init__(
        self,
        settings: StreamSettings,
        size: int,
        rate_limit: RateLimit,
        window: TransmissionWindow,
        counters: SourceCounters,
    ) -> None:
        self.ready: float | None = None
        """The time at which the next repair or NCF may leave; None when there is none."""
        self._window = window
        self._counters = counters
        self._queue = RetransmitQueue(settings.repair_queue)
        self._ignore = settings.ignore
        # What was repaired within the ignore interval.
        self._repaired = ExpiringDict[int, None]()
        self._ncfs = NcfQueue(settings.ignore)
        self._rate_limit = rate_limit
        self._pacer = Pacer.for_datagrams(size, settings.repair_rate)

    @property
    def waiting(self) -> int:
        """The count of datagrams that wait for their turn."""
        return len(self._queue)

    def ask(self, now: float, first: int, last: int) -> None:
        """Queue repairs of these datagrams, all of which are in the window, or an NCF with the
        reason.
        """
        counters, queue, window = self._counters, self._queue, self._window
        self._drop_evicted()
        self._repaired.take_expired(now)
        for sqn in range(first, last + 1):
            ignored_until = self._repaired.due(sqn)
            if ignored_until is not None:
                counters.naks_ignored += 1
                reason, wait = NcfReason.IGNORED, ignored_until - now
            elif sqn in queue:
                counters.naks_rx_delay += 1
                reason, wait = NcfReason.RX_DELAY, self._delay(now, sqn)
            elif queue.is_full:
                counters.naks_shed += 1
                reason, wait = NcfReason.SHED, self._delay(now, sqn)
            else:
                queue.add(sqn, DATA_OVERHEAD + len(window.find(sqn)))
                wait = self._delay(now, sqn)
                if wait <= 0:
                    continue
                counters.naks_rx_delay += 1
                reason = NcfReason.RX_DELAY
            self._ncfs.add(now, sqn, reason, wait)
        if queue or self._ncfs:
            self.ready = now

    def poll(self, now: float, most: int) -> list[bytes]:
        """Take NCFs, and the repairs that the rate allows now: ``most`` at most."""
        self._drop_evicted()
        bodies, queue, span = list[bytes](), self._queue, self._window.span
        while len(bodies) < most and (ncf := self._ncfs.pop(span)) is not None:
            bodies.append(ncf)
        self._counters.ncfs_sent += len(bodies)
        rate = self._rate_limit.repair_rate(now)
        while queue and len(bodies) < most and self._ready_at(now, rate) <= now:
            bodies.append(self._repair(now, queue.pop(), span, rate))
        self.ready = self._ready_at(now, rate) if queue else None
        if self._ncfs:
            self.ready = now
        self._rate_limit.handle_repairs(now, queue.size)
        return bodies

    def _repair(self, now: float, sqn: int, window: Window, rate: float) -> bytes:
        body = encode_data(sqn, window, self._window.find(sqn), repair=True)
        self._pacer.sent(now, len(body), rate)
        self._repaired.take_expired(now)
        self._repaired.put(sqn, None, now + self._ignore)
        self._counters.repairs_sent += 1
        self._counters.repair_bytes_sent += len(body)
        return body

    def _drop_evicted(self) -> None:
        self._counters.repairs_evicted += self._queue.drop_below(self._window.trail)

    def _ready_at(self, now: float, rate: float) -> float:
        """Return when the first repair that waits may leave."""
        size = DATA_OVERHEAD + len(self._window.find(self._queue.first))
        return self._pacer.ready_at(now, size, rate)

    def _delay(self, now: float, sqn: int) -> float:
        """Return how many seconds ``sqn`` and all repairs below it take at the repair rate."""
        rate = self._rate_limit.repair_rate(now)
        return max(self._queue.size_up_to(sqn) - self._pacer.budget(now, rate), 0) / rate


class RetransmitQueue:
    """At most ``limit`` sqns whose repairs wait, the lowest first, each once."""

    __slots__ = ("_limit", "_order", "_sizes", "size")

    def __init__(self, limit: int) -> None:
        self.size = 0
        """Bytes of the datagrams that wait."""
        self._limit = limit
        # Negative, so that the next one stands at the end, where it is cheap to take away.
        self._order: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """True if no more may wait."""
        return len(self._order) >= self._limit

    @property
    def first(self) -> int:
        """The sqn whose turn is next; there must be one."""
        return -self._order[-1]

    def add(self, sqn: int, size: int) -> None:
        """Add a datagram of ``size`` bytes that does not wait yet."""
        insort(self._order, -sqn)
        self._sizes[sqn] = size
        self.size += size

    def size_up_to(self, sqn: int) -> float:
        """Return about how many bytes leave up to ``sqn``, itself included; some must wait."""
        waiting = len(self._order)
        return (waiting - bisect_left(self._order, -sqn)) * self.size / waiting

    def pop(self) -> int:
        """Remove and return the sqn whose turn is next."""
        sqn = -self._order.pop()
        self.size -= self._sizes.pop(sqn)
        return sqn

    def drop_below(self, trail: int) -> int:
        """Drop the sqns that were evicted from the window. Return their number."""
        before = len(self._order)
        while self._order and self.first < trail:
            self.pop()
        return before - len(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, sqn: int) -> bool:
        return sqn in self._sizes


class NcfQueue:
    """NAK confirmations (NCFs) to be sent: at most one for each sqn in ``interval`` seconds.

    Confirmations share an NCF if they have the same reason and similar waits.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        # What was confirmed within the interval.
        self._confirmed = ExpiringDict[int, None]()
        self._pending: dict[tuple[NcfReason, int], tuple[RangeSet, int]] = {}

    def __len__(self) -> int:
        """Return the number of NCFs that wait, at least."""
        return len(self._pending)

    def add(self, now: float, sqn: int, reason: NcfReason, retry_after: float) -> None:
        """Confirm a NAK, unless one for the same sqn was confirmed within the interval."""
        self._confirmed.take_expired(now)
        if sqn in self._confirmed:
            return
        self._confirmed.put(sqn, None, now + self._interval)
        # A NAK that comes too early gets no answer at all. So the wait is rounded up to whole
        # milliseconds, which is what travels, and the latest of those that share the NCF holds.
        wait = ceil(retry_after * 1000)
        kind = reason, max(wait, ALIKE).bit_length()
        sqns, latest = self._pending.get(kind) or (RangeSet(), 0)
        sqns.add(sqn, sqn)
        self._pending[kind] = sqns, max(latest, wait)

    def pop(self, window: Window) -> bytes | None:
        """Remove and return the next NCF; None if there is none."""
        while self._pending:
            kind, (sqns, wait) = self._pending.popitem()
            spans = cut(sqns.within(window.trail, window.lead))
            if len(spans) == MOST_RANGES:
                sqns.discard(sqns.first, spans[-1].last)
                if len(sqns):
                    self._pending[kind] = sqns, wait
            if spans:
                return encode_ncf(Ncf(window, kind[0], wait / 1000, spans))
        return None
