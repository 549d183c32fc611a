"""NAK confirmations: why a repair does not come now, said once per sqn and ignore interval.

What NAKs of a moment have in common goes into one NCF: the reason, and about how long to wait.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, NamedTuple

from sphtp.core.stream.events import Crybaby, SourceEvent
from sphtp.core.stream.flow_control import SourceReceiver, SourceReceivers
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.rate_limit import RateLimit
from sphtp.core.stream.session_messages import SessionSchedule
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import SourceCounters
from sphtp.core.stream.transmission_window import TransmissionWindow
from sphtp.core.stream.wire import (
    DATA_OVERHEAD,
    MOST_RANGES,
    Nak,
    Ncf,
    NcfReason,
    StatusMessage,
    Window,
    cut,
    decode_feedback_untrusted,
    encode_data,
    encode_ncf,
)
from sphtp.core.timers import ExpiringDict, earliest
from sphtp.core.token_bucket import Pacer
from sphtp.errors import RemoteError

ALIKE: Final = 64
"""Milliseconds: waits up to that are told as one; of longer ones, those up to the double."""


class NcfQueue:
    """What is still to be confirmed, by reason and order of magnitude of the wait."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        # What was confirmed within the interval.
        self._confirmed = ExpiringDict[int, None]()
        self._pending: dict[tuple[NcfReason, int], tuple[RangeSet, int]] = {}

    @property
    def has_any(self) -> bool:
        """Whether something is to be said."""
        return bool(self._pending)

    def add(self, now: float, sqn: int, reason: NcfReason, retry_after: float) -> None:
        """Confirm a NAK, unless one for the same sqn was confirmed within the interval."""
        self._confirmed.take_expired(now)
        if sqn in self._confirmed:
            return
        self._confirmed.put(sqn, None, now + self._interval)
        # Who asks again too early gets no answer at all: whole milliseconds, which is what travels,
        # and the latest of all that are told as one.
        wait = ceil(retry_after * 1000)
        kind = reason, max(wait, ALIKE).bit_length()
        sqns, latest = self._pending.get(kind) or (RangeSet(), 0)
        sqns.add(sqn, sqn)
        self._pending[kind] = sqns, max(latest, wait)

    def pop(self, window: Window) -> bytes | None:
        """Take the next NCF; None when all is said."""
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

    def clear(self) -> None:
        """Say nothing more."""
        self._pending.clear()


# Repairs that wait for their turn: the oldest datagram first.


class RetransmitQueue:
    """At most ``limit`` sqns, each once."""

    __slots__ = ("_limit", "_order", "_sizes", "size")

    def __init__(self, limit: int) -> None:
        self.size = 0
        """Bytes of the datagrams that wait."""
        self._limit = limit
        # Negative, so that whose turn is next stands at the end, where it is cheap to take away.
        self._order: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether nothing more may wait."""
        return len(self._order) >= self._limit

    @property
    def first(self) -> int:
        """The sqn whose turn is next; there must be one."""
        return -self._order[-1]

    def add(self, sqn: int, size: int) -> None:
        """Let a datagram wait that does not yet."""
        insort(self._order, -sqn)
        self._sizes[sqn] = size
        self.size += size

    def size_up_to(self, sqn: int) -> float:
        """About how many bytes will have left when it was the turn of ``sqn``; some must wait."""
        waiting = len(self._order)
        return (waiting - bisect_left(self._order, -sqn)) * self.size / waiting

    def pop(self) -> int:
        """Take the one whose turn is next."""
        sqn = -self._order.pop()
        self.size -= self._sizes.pop(sqn)
        return sqn

    def drop_below(self, trail: int) -> int:
        """Take out those that were evicted; return how many."""
        before = len(self._order)
        while self._order and self.first < trail:
            self.pop()
        return before - len(self._order)

    def clear(self) -> None:
        """Take all out."""
        self._order.clear()
        self._sizes.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, sqn: int) -> bool:
        return sqn in self._sizes


# Repairs: what a source does about each number that a receiver, or a group of them, is missing.
#
# A repair leaves at once if the repair rate allows, else it waits for its turn, the oldest
# datagram first. For an ignore interval after it NAKs for the same datagram are ignored: they
# were on their way already. Why a repair does not come now is said in an NCF, with when to ask
# again.


class Retransmissions:
    """Repairs from a window, as fast as ``pulse`` has it; datagrams have at most ``size`` bytes."""

    def __init__(
        self,
        settings: StreamSettings,
        size: int,
        pulse: RateLimit,
        window: TransmissionWindow,
        counters: SourceCounters,
    ) -> None:
        self.ready: float | None = None
        """When the next repair or NCF may leave; None when there is none."""
        self._window = window
        self._counters = counters
        self._queue = RetransmitQueue(settings.repair_queue)
        self._ignore = settings.ignore
        # What was repaired within that interval.
        self._repaired = ExpiringDict[int, None]()
        self._confirmations = NcfQueue(settings.ignore)
        self._pulse = pulse
        self._pacer = Pacer.for_datagrams(size, settings.repair_rate)

    @property
    def waiting(self) -> int:
        """How many datagrams wait for their turn."""
        return len(self._queue)

    def ask(self, now: float, span: Span) -> None:
        """Take it that a receiver misses these, all of which are in the window."""
        self._drop_evicted()
        self._repaired.take_expired(now)
        for sqn in range(span.first, span.last + 1):
            self._ask(now, sqn)
        if self._queue or self._confirmations.has_any:
            self.ready = now

    def poll(self, now: float, most: int) -> list[bytes]:
        """Take NCFs, and repairs that may leave now: ``most`` at most."""
        self._drop_evicted()
        bodies, span, rate = self._confirm(most), self._window.span, self._pulse.repair_rate(now)
        while self._queue and len(bodies) < most and self._ready_at(now, rate) <= now:
            bodies.append(self._repair(now, self._queue.pop(), span, rate))
        self.ready = self._ready_at(now, rate) if self._queue else None
        if self._confirmations.has_any:
            self.ready = now
        self._pulse.handle_repairs(now, self._queue.size)
        return bodies

    def _ask(self, now: float, sqn: int) -> None:
        counters = self._counters
        ignored_until = self._repaired.due(sqn)
        if ignored_until is not None:
            counters.naks_ignored += 1
            self._confirmations.add(now, sqn, NcfReason.IGNORED, ignored_until - now)
        elif sqn in self._queue:
            counters.naks_rx_delay += 1
            self._confirmations.add(now, sqn, NcfReason.RX_DELAY, self._delay(now, sqn))
        elif self._queue.is_full:
            counters.naks_shed += 1
            self._confirmations.add(now, sqn, NcfReason.SHED, self._delay(now, sqn))
        else:
            self._queue.add(sqn, DATA_OVERHEAD + len(self._window.find(sqn)))
            if (delay := self._delay(now, sqn)) > 0:
                counters.naks_rx_delay += 1
                self._confirmations.add(now, sqn, NcfReason.RX_DELAY, delay)

    def _confirm(self, most: int) -> list[bytes]:
        ncfs, span = list[bytes](), self._window.span
        while len(ncfs) < most and (ncf := self._confirmations.pop(span)) is not None:
            ncfs.append(ncf)
        self._counters.ncfs_sent += len(ncfs)
        return ncfs

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
        """When the first that waits may leave."""
        size = DATA_OVERHEAD + len(self._window.find(self._queue.first))
        return self._pacer.ready_at(now, size, rate)

    def _delay(self, now: float, sqn: int) -> float:
        """How long it takes until all that waits, and is as old or older, has left, in seconds."""
        rate = self._pulse.repair_rate(now)
        return max(self._queue.size_up_to(sqn) - self._pacer.budget(now, rate), 0) / rate


# Who gets which repair: on a group everybody gets all, else each receiver what it asked for.
#
# On a group a repair for one reaches all, who mostly missed the same. A copy for each receiver
# costs as much as it did the first time, and all but one of them are of no use: at 5 % loss eight
# receivers would get eight times the repairs that they need, and where their copies share a path
# that is full, these would keep it full.


ALL_RECEIVERS: Final = 0
"""Stands for all receivers; none has that number."""


class OutgoingBodies(NamedTuple):
    """Bodies that leave together for one receiver, or for ``ALL_RECEIVERS``."""

    receiver: int
    bodies: list[bytes]


class Retransmitter:
    """Repairs for each receiver, or one for all if they are ``shared``, as ``make`` makes them.

    Receivers that wait for nothing cost nothing: they are not looked at.
    """

    def __init__(self, make: Callable[[], Retransmissions], *, shared: bool) -> None:
        self._make = make
        self._shared = shared
        self._repairs: dict[int, Retransmissions] = {}
        # Those for whom something waits, and who of them has not had a turn in this round.
        self._busy: dict[int, Retransmissions] = {}
        self._round: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """How many repairs wait for their turn."""
        return sum(repairs.waiting for repairs in self._busy.values())

    @property
    def ready(self) -> float | None:
        """When the next repair or NCF may leave; None when there is none."""
        ready: float | None = None
        for repairs in self._busy.values():
            ready = earliest(ready, repairs.ready)
        return ready

    def ask(self, now: float, receiver: int, span: Span) -> None:
        """Take it that a receiver misses these, all of which are in the window."""
        receiver = ALL_RECEIVERS if self._shared else receiver
        repairs = self._repairs.get(receiver)
        if repairs is None:
            repairs = self._repairs[receiver] = self._make()
        repairs.ask(now, span)
        if repairs.ready is not None:
            self._busy[receiver] = repairs

    def leave(self, receiver: int) -> None:
        """Repair nothing more for a receiver alone."""
        self._repairs.pop(receiver, None)
        self._busy.pop(receiver, None)

    def clear(self) -> None:
        """Repair nothing more."""
        self._repairs.clear()
        self._busy.clear()

    def poll(self, now: float, most: int) -> OutgoingBodies | None:
        """Take what may leave for the next receiver of a round, ``most`` bodies at most.

        None when the round is over; the next call begins another one.
        """
        while self._round:
            receiver = self._round.popleft()
            repairs = self._busy.get(receiver)
            if repairs is None:
                continue
            bodies = repairs.poll(now, most)
            if repairs.ready is None:
                del self._busy[receiver]
            if bodies:
                return OutgoingBodies(receiver, bodies)
        self._round.extend(self._busy)
        return None


# Hearing NAKs: what of one is listened to, and what follows from the rest.
#
# What was never sent is invalid. What is no longer in the window is not answered, but the
# window's trail is told again, at most once per ignore interval, so that receivers give up early.
# What goes over its receiver's budget is left out, the newest first: it will be asked for again.


class NakHandler:
    """Turns NAKs of receivers into repairs of a window."""

    def __init__(
        self,
        settings: StreamSettings,
        window: TransmissionWindow,
        audience: SourceReceivers,
        desk: Retransmitter,
        sessions: SessionSchedule,
        counters: SourceCounters,
        events: deque[SourceEvent],
    ) -> None:
        self._report_interval = settings.generation
        self._window = window
        self._audience = audience
        self._desk = desk
        self._sessions = sessions
        self._counters = counters
        self._events = events

    def handle_feedback_untrusted(
        self, now: float, receiver: int, body: bytes
    ) -> StatusMessage | None:
        """Take what a receiver says; return it if it is a STATUS."""
        counters = self._counters
        listener = self._audience.find(receiver)
        if listener is None:
            counters.feedback_foreign += 1
            return None
        try:
            said = self._read_untrusted(body)
        except RemoteError:
            counters.feedback_invalid += 1
            return None
        if isinstance(said, StatusMessage):
            return said
        self._hear_nak(now, receiver, listener, said.spans)
        return None

    def _hear_nak(
        self, now: float, receiver: int, listener: SourceReceiver, spans: Sequence[Span]
    ) -> None:
        counters = self._counters
        counters.nak_packets_received += 1
        self._window.expire(now)
        for span in spans:
            counters.naks_received += span.size
            self._hear(now, receiver, listener, span)

    def _read_untrusted(self, body: bytes) -> Nak | StatusMessage:
        lead = self._window.lead
        said = decode_feedback_untrusted(body, lead)
        last = said.lead if isinstance(said, StatusMessage) else said.spans[-1].last
        if last > lead:
            raise RemoteError(f"datagram {last} was not sent; the lead is {lead}")
        return said

    def _hear(self, now: float, receiver: int, listener: SourceReceiver, span: Span) -> None:
        trail = self._window.trail
        inside = Span(max(span.first, trail), span.last)
        if span.first < trail:
            self._counters.naks_out_of_window += min(span.last + 1, trail) - span.first
            self._sessions.handle_out_of_window(now)
        if inside.size <= 0:
            return
        granted = listener.budget.take_up_to(now, inside.size)
        if granted:
            self._desk.ask(now, receiver, Span(inside.first, inside.first + granted - 1))
            self._sessions.handle_nak(now)
        if granted < inside.size:
            self._counters.naks_over_budget += inside.size - granted
            self._complain(now, receiver, listener)

    def _complain(self, now: float, receiver: int, listener: SourceReceiver) -> None:
        if listener.report(now, self._report_interval):
            self._counters.crybabies += 1
            self._events.append(Crybaby(receiver))
