"""Retransmission: the source replies to a NAK with repairs, or with an NCF and its reason.

For each datagram that a NAK names, the first rule that applies decides:

1. The datagram is no longer in the transmission window: nothing can repair it. The source soon
   announces the trail of the window in a session message, so that receivers give up early.
2. The receiver has used up its NAK budget: the source ignores the request, and the receiver has to
   repeat it.
3. The source repaired the datagram within the ignore interval: that repair is on its way. NCF:
   ``IGNORED``.
4. The repair waits already. NCF: ``RX_DELAY``.
5. Too many repairs wait. NCF: ``SHED``.
6. The source queues the repair. It leaves at once if the retransmit rate limit allows that; else
   the NCF is ``RX_DELAY``, with the time that all repairs up to this one take at that rate.

For one receiver, or for a group, a datagram is in at most one NCF per ignore interval.

The repair of the lowest datagram leaves first, because this datagram is the first to leave the
window. The rate of repairs is the setting ``repair_rate``, or less while little new data leaves
(``rate_limit``).

In a multicast group, a repair reaches all receivers, which mostly missed the same datagrams. By
unicast, each receiver has a queue, ignore intervals and a rate of its own, and gets only the
datagrams that it requested. A copy for every receiver would cost as much as the first transmission
did, and all but one of the copies would be of no use. At 5 % loss, eight receivers would get eight
times the repairs that they need. If they share a path that is full, these repairs would keep it
full.
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
"""Waits of less than twice this number of milliseconds share an NCF. Longer waits share one if they
are between the same powers of two.
"""


class Retransmitter:
    """The repairs and NCFs for each receiver, or for all receivers of a ``shared`` group.

    Bodies have at most ``size`` bytes. A poll visits only receivers for which a body waits.
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
        # Receivers for which a repair or an NCF waits, and those without a turn in this round yet.
        self._busy: dict[int, Retransmissions] = {}
        self._round: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Number of repairs that wait for their turn."""
        return sum(one.waiting for one in self._busy.values())

    @property
    def ready(self) -> float | None:
        """The time at which the next repair or NCF may leave; None if none waits."""
        ready: float | None = None
        for one in self._busy.values():
            ready = earliest(ready, one.ready)
        return ready

    def handle_nak(
        self, now: float, number: int, receiver: SourceReceiver, spans: Sequence[Span]
    ) -> None:
        """Take a NAK of the receiver ``number`` for datagrams that the source has sent."""
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
        """Drop all repairs and NCFs that wait."""
        self._retransmissions.clear()
        self._busy.clear()

    def poll(self, now: float, most: int) -> OutgoingBodies | None:
        """Return the bodies that may leave for the next receiver of the round, ``most`` at most.

        Return None at the end of the round; the next call begins another round.
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
    """The repairs and NCFs for one receiver, or for a group."""

    def __init__(
        self,
        settings: StreamSettings,
        size: int,
        rate_limit: RateLimit,
        window: TransmissionWindow,
        counters: SourceCounters,
    ) -> None:
        self.ready: float | None = None
        """The time at which the next repair or NCF may leave; None if none waits."""
        self._window = window
        self._counters = counters
        self._queue = RetransmitQueue(settings.repair_queue)
        self._ignore = settings.ignore
        # The datagrams repaired within the ignore interval.
        self._repaired = ExpiringDict[int, None]()
        self._ncfs = NcfQueue(settings.ignore)
        self._rate_limit = rate_limit
        self._pacer = Pacer.for_datagrams(size, settings.repair_rate)

    @property
    def waiting(self) -> int:
        """Number of repairs that wait for their turn."""
        return len(self._queue)

    def ask(self, now: float, first: int, last: int) -> None:
        """Queue a repair, an NCF or both for each of these datagrams, which are all in the window.

        A datagram that an NCF named within the ignore interval gets no further NCF.
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
        """Remove and return NCFs, and the repairs that the rate allows now, ``most`` at most."""
        self._drop_evicted()
        bodies, queue, span = list[bytes](), self._queue, self._window.span
        # An NCF is short, and spares the source a further NAK: no rate limits it.
        while len(bodies) < most and (ncf := self._ncfs.pop(span)) is not None:
            bodies.append(ncf)
        self._counters.ncfs_sent += len(bodies)
        rate = self._rate_limit.repair_rate(now)
        while queue and len(bodies) < most and self._ready_at(now, rate) <= now:
            bodies.append(self._repair(now, queue.pop(), span, rate))
        self.ready = self._ready_at(now, rate) if queue else None
        if self._ncfs:
            self.ready = now
        self._rate_limit.handle_waiting_repairs(now, queue.size)
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
        """Return the time at which the first waiting repair may leave."""
        size = DATA_OVERHEAD + len(self._window.find(self._queue.first))
        return self._pacer.ready_at(now, size, rate)

    def _delay(self, now: float, sqn: int) -> float:
        """Return the seconds until the repairs up to ``sqn`` have left, at the repair rate."""
        rate = self._rate_limit.repair_rate(now)
        return max(self._queue.size_up_to(sqn) - self._pacer.budget(now, rate), 0) / rate


class RetransmitQueue:
    """The sequence numbers whose repairs wait, at most ``limit``, the lowest first."""

    __slots__ = ("_limit", "_order", "_sizes", "size")

    def __init__(self, limit: int) -> None:
        self.size = 0
        """Bytes of the waiting repairs."""
        self._limit = limit
        # Negated, so that the lowest number is at the end, where removal is cheap.
        self._order: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """True if no further repair may wait."""
        return len(self._order) >= self._limit

    @property
    def first(self) -> int:
        """The sqn whose repair leaves next. The queue must not be empty."""
        return -self._order[-1]

    def add(self, sqn: int, size: int) -> None:
        """Add the repair of ``sqn``, which has ``size`` bytes and does not wait yet."""
        insort(self._order, -sqn)
        self._sizes[sqn] = size
        self.size += size

    def size_up_to(self, sqn: int) -> float:
        """Return about how many bytes the repairs up to ``sqn`` have.

        The queue must not be empty.
        """
        waiting = len(self._order)
        return (waiting - bisect_left(self._order, -sqn)) * self.size / waiting

    def pop(self) -> int:
        """Remove and return the sqn whose repair leaves next."""
        sqn = -self._order.pop()
        self.size -= self._sizes.pop(sqn)
        return sqn

    def drop_below(self, trail: int) -> int:
        """Drop the sqns below ``trail``, which the window has evicted. Return their count."""
        before = len(self._order)
        while self._order and self.first < trail:
            self.pop()
        return before - len(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, sqn: int) -> bool:
        return sqn in self._sizes


class NcfQueue:
    """The NAK confirmations (NCFs) that wait: each sqn is in at most one per ``interval`` seconds.

    Sequence numbers share an NCF if they have the same reason and similar waits.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        # The sqns confirmed within the interval.
        self._confirmed = ExpiringDict[int, None]()
        self._pending: dict[tuple[NcfReason, int], tuple[RangeSet, int]] = {}

    def __len__(self) -> int:
        """Return the number of groups of sqns that wait; a group takes one NCF or several."""
        return len(self._pending)

    def add(self, now: float, sqn: int, reason: NcfReason, retry_after: float) -> None:
        """Add ``sqn`` to an NCF, unless another NCF named it within the interval."""
        self._confirmed.take_expired(now)
        if sqn in self._confirmed:
            return
        self._confirmed.put(sqn, None, now + self._interval)
        # A NAK that comes too early gets no reply at all. So the wait is rounded up to whole
        # milliseconds, the unit in an NCF, and the longest wait in an NCF holds for all of it.
        wait = ceil(retry_after * 1000)
        kind = reason, max(wait, ALIKE).bit_length()
        sqns, latest = self._pending.get(kind) or (RangeSet(), 0)
        sqns.add(sqn, sqn)
        self._pending[kind] = sqns, max(latest, wait)

    def pop(self, window: Window) -> bytes | None:
        """Remove and return the body of the next NCF; None if none waits."""
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
