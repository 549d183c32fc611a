"""The cluster's clock: one time for all servers and clients, with a bound on its error.

There is no wall clock here. Each process has a monotonic clock with any start, whose rate is wrong
by ``max_drift`` at most. One server, the *reference*, defines the time of the cluster: seconds
since the first reference, the *founder*, started the clock. Every other process estimates its
*offset*, cluster time less its own clock, from messages.

**The bound.** A process sends a request at its own time ``a``, a server reads the cluster time
``c``, and the answer arrives at ``b`` (F. Cristian, "Probabilistic clock synchronization", 1989).
The server read its clock between ``a`` and ``b``, whatever the delay in each direction. So the
offset was at most ``c - a`` at ``a`` and at least ``c - b`` at ``b``. A heartbeat that carries the
time gives the second bound without a request. If the server's own reading may be wrong by ``e``,
both bounds are wider by ``e``. Two clocks drift apart by ``rate = 2 * max_drift / (1 - max_drift)``
at most, so each bound moves outwards at that rate as it gets older. Every bound ever obtained
holds, so the tightest holds (K. Marzullo and S. Owicki, "Maintaining the time in a distributed
system", 1983). All bounds move at one rate, so the one that is tightest now stays the tightest of
them: two numbers are the intersection of all bounds. The offset lies between them as long as clocks
drift by no more than ``max_drift``; nothing else is assumed. Bounds that exclude each other prove
that a clock did drift by more, or stopped while its machine was suspended. Then all older bounds
are dropped.

**The estimate** may be anywhere between the bounds. The exchange with the shortest round trip gives
the most accurate one, until its age costs more than a longer round trip would (RFC 5905, section
10, does the same with its clock filter). From then on the estimate changes by the difference of
the two clocks' rates, which is measured from older exchanges. If the bounds are far closer than the
round trip, because the answer has waited at a server of many clients, their middle takes the place
of the exchange. A wrong estimate costs accuracy; it cannot break the bound.

**The output** steps forward when an estimate is corrected upwards. When it is corrected downwards,
the output runs at half speed until the estimate has caught up. The output goes back only when this
process passes to another timeline that is more than 2 s behind, because all servers of its own have
ended or are cut off.

**Succession.** The clock must go on when the reference dies. Of the servers that follow the
reference, the one with the lowest id takes over and begins a new *term*. Cluster time is defined to
be continuous at that moment, and to proceed at the rate of the successor's clock from then on. So
every bound that held before holds afterwards, also in a process that has not received the new term
yet. The error of the successor at that moment stays its error for the whole term. The successor
sends its error with each reading, like every server that is not the founder.

A stamp names its term: the *timeline* (drawn by the founder), the generation, the reference, its
predecessor, and the time since which it may have been the reference. The highest generation of a
timeline counts. A process that passes to the direct successor of its term keeps its bounds. It
widens them by the possible drift of the old reference, which may still run on the other side of a
cut network. A process that passes to any other term drops its bounds. There are two timelines when
two clusters become one: then the one with more time on its clock counts, or, if they differ by less
than a second, the one with the smaller number.
"""

from collections import deque
from collections.abc import Collection, Container
from math import ceil, floor, inf, isfinite
from typing import Final, NamedTuple

from sphtp.errors import StateError

NANOSECONDS: Final = 1_000_000_000

MAX_TIME: Final = 1 << 63
"""The most nanoseconds of a reading on the wire: 292 years."""

_MAX_GENERATION: Final = (1 << 32) - 1
"""The highest generation on the wire. At a succession each second, it takes 136 years."""

_ROUNDING: Final = 1e-8
"""Seconds added to each error for rounding to nanoseconds, and for floating point."""

_TOLERANCE: Final = 5e-9
"""Seconds by which rounding alone may make bounds exclude each other."""

_SHORTEST_REST: Final = 0.1
"""The least seconds between two requests. In a process with a bound, they double with each request
without an answer, and halve again with each answer."""

_LONGEST_REST: Final = 16.0
"""The most seconds between two requests: NTP's shortest interval (RFC 5905, MINPOLL)."""

_MOST_DOUBLINGS: Final = 8
"""The doublings after which the longest rest is reached."""

_FIRST_REQUESTS: Final = 8
"""The exchanges at the start that are made as often as heartbeats allow (NTP's "iburst")."""

_SLOT: Final = 8.0
"""The seconds of a period. The best exchange of each period is kept, and the rate is measured from
the first and the last of those."""

_SLOTS: Final = 8
"""The periods whose exchanges are kept."""

_SLEW: Final = 0.5
"""The share by which the output runs slower while it is ahead."""

_LARGEST_SLEW: Final = 2.0
"""The most seconds by which a new timeline may be behind without a step of the output."""

_ALIKE: Final = 1.0
"""Seconds within which two timelines count as equally old."""


class Term(NamedTuple):
    """The time during which one server is the reference of one timeline."""

    timeline: int
    """The nonce of the founder, which names the timeline."""
    generation: int
    """1 for the founder's term, one more for each successor's."""
    reference: int
    """The nonce of the server that is the reference."""
    predecessor: int
    """The nonce of the previous reference; 0 in the founder's term."""
    since: int
    """The cluster time, in nanoseconds, before which this term cannot have begun."""


class Stamp(NamedTuple):
    """A server's reading of the cluster time, in nanoseconds, with the term that it follows."""

    term: Term
    time: int
    error: int


class TimeRequest(NamedTuple):
    """A request to one server, by its id, for a stamp. The answer repeats ``origin``."""

    server: int
    origin: int


class Reading(NamedTuple):
    """The cluster time at one moment."""

    time: float
    """Seconds since the cluster's clock began."""
    error: float
    """The most seconds by which ``time`` is wrong; infinite while that has no bound."""


class OffsetBounds:
    """The interval in which the offset lies, in seconds. Both ends move outwards at ``rate``."""

    __slots__ = ("_lower", "_rate", "_upper")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        # Both as they would have been at the time 0 of the local clock.
        self._lower = -inf
        self._upper = inf

    def lower(self, now: float) -> float:
        """Return the least offset that is possible."""
        return self._lower - self._rate * now

    def upper(self, now: float) -> float:
        """Return the greatest offset that is possible."""
        return self._upper + self._rate * now

    def width(self, now: float) -> float:
        """Return the distance between both bounds: below 0 if they exclude each other."""
        return self.upper(now) - self.lower(now)

    def raise_lower(self, then: float, offset: float) -> None:
        """Raise the lower bound: at the time ``then`` the offset was at least ``offset``."""
        self._lower = max(self._lower, offset + self._rate * then)

    def reduce_upper(self, then: float, offset: float) -> None:
        """Reduce the upper bound: at the time ``then`` the offset was at most ``offset``."""
        self._upper = min(self._upper, offset - self._rate * then)

    def from_here(self, now: float, rate: float, widening: float = 0.0) -> "OffsetBounds":
        """Return an interval wider by ``widening`` at both ends, which then move at ``rate``."""
        bounds = OffsetBounds(rate)
        bounds.raise_lower(now, self.lower(now) - widening)
        bounds.reduce_upper(now, self.upper(now) + widening)
        return bounds


class Exchange(NamedTuple):
    """The result of one request: the offset at the time ``at``, and its greatest error."""

    at: float
    offset: float
    error: float


class OffsetEstimate:
    """The likely offset, in seconds: that of the best exchange, and the drift since at the measured
    rate.
    """

    __slots__ = ("_best", "_doubt", "_drift", "_rate", "_slot_from", "_slots")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._drift = 0.0
        self._doubt = rate
        self._best: Exchange | None = None
        self._slots: deque[Exchange] = deque(maxlen=_SLOTS)
        self._slot_from = -inf

    @property
    def drift(self) -> float:
        """The seconds by which the offset grows per second."""
        return self._drift

    def at(self, now: float) -> float | None:
        """Return the offset at the time ``now``; None before the first exchange."""
        best = self._best
        return None if best is None else best.offset + self._drift * (now - best.at)

    def add(self, exchange: Exchange) -> None:
        """Update the estimate with the result of an exchange."""
        if exchange.at - self._slot_from >= _SLOT:
            self._slots.append(exchange)
            self._slot_from = exchange.at
        elif exchange.error < self._slots[-1].error:
            self._slots[-1] = exchange
        self._measure_drift()
        best = self._best
        if best is None or exchange.error <= best.error + self._doubt * (exchange.at - best.at):
            self._best = exchange

    def _measure_drift(self) -> None:
        first, last = self._slots[0], self._slots[-1]
        if last.at <= first.at:
            return
        span = last.at - first.at
        self._doubt = min((first.error + last.error) / span, self._rate)
        # Without a measurement the best estimate of the drift is 0, plus or minus ``rate``. It and
        # the measurement are weighted by their variances, so that a poor measurement changes
        # little.
        known = 1 / (1 + ((first.error + last.error) / span / self._rate) ** 2)
        slope = (last.offset - first.offset) / span
        self._drift = max(-self._rate, min(slope * known, self._rate))


class ClusterClock:
    """The clock of one process: it estimates the cluster time from stamps and answers of servers.

    ``living``, where a method takes it, are the ids of the servers whose heartbeats arrive. A
    process that ``serves`` stamps does not leave its timeline merely because no other server
    follows it. Times are in seconds of the process's monotonic clock.
    """

    def __init__(self, max_drift: float, *, serves: bool = False) -> None:
        self._rate = 2 * max_drift / (1 - max_drift)
        self._serves = serves
        self._term: Term | None = None
        self._is_reference = False
        # The nonce of this process's own timeline, and the local time at which it began.
        self._founded: tuple[int, float] | None = None
        self._bounds = OffsetBounds(self._rate)
        self._estimate = OffsetEstimate(self._rate)
        self._ahead = 0.0
        self._ahead_from = 0.0
        self._latest = -inf
        self._stamps: dict[int, Stamp] = {}
        self._asked: tuple[TimeRequest, float] | None = None
        self._has_left = False
        self._ask_from = -inf
        self._answered = 0
        self._unanswered = 0
        self.contradictions = 0
        """The number of times that all bounds were dropped because a later one excluded them."""

    @property
    def term(self) -> Term | None:
        """The term that this process follows or leads; None before the first one."""
        return self._term

    @property
    def is_reference(self) -> bool:
        """True if this process defines the time of the cluster."""
        return self._is_reference

    def is_synchronized(self, now: float) -> bool:
        """Return True if the error of the cluster time has a bound, so that it is not infinite."""
        return isfinite(self._bounds.width(now))

    def read(self, now: float) -> Reading:
        """Return the cluster time.

        Raises ``StateError`` before the first stamp of a server, except at the reference.
        """
        if self._term is None:
            raise StateError("no server has sent the time of the cluster yet")
        lower, upper = self._bounds.lower(now), self._bounds.upper(now)
        time = now + self._within(now, lower, upper)
        time += max(0.0, self._ahead - _SLEW * (now - self._ahead_from))
        # The last bit of a float may go back where the sum does not.
        time = self._latest = max(time, self._latest)
        return Reading(time, max(now + upper - time, time - now - lower, 0.0) + _ROUNDING)

    def stamp(self, now: float) -> Stamp | None:
        """Return the reading to send to others; None if its error has no bound.

        None, too, if the reading is too large for the wire. Only a server that sent a false time
        leads to such a reading, and others would drop the whole heartbeat that carries it.
        """
        if self._term is None:
            return None
        reading = self.read(now)
        if not isfinite(reading.error):
            return None
        time, error = floor(reading.time * NANOSECONDS), ceil(reading.error * NANOSECONDS)
        return Stamp(self._term, time, error) if max(time, error) <= MAX_TIME else None

    # Following

    def handle_stamp(self, now: float, server: int, stamp: Stamp, living: Collection[int]) -> None:
        """Handle a stamp in a server's heartbeat.

        The cluster time is now at least the stamp's, less the error of the stamp.
        """
        for gone in self._stamps.keys() - living:
            del self._stamps[gone]
        self._stamps[server] = stamp
        before = self._term and (self._term, self.read(now).time)
        if not self._follow(now, stamp):
            return
        self._bound(now, stamp)
        if self._bounds.width(now) < -_TOLERANCE:
            self.contradictions += 1
            self._begin_again()
            self._bound(now, stamp)
        self._settle(now, before)

    def poll_request(self, now: float, living: Container[int]) -> TimeRequest | None:
        """Return the request to send with a heartbeat, or None if none is due.

        It goes to the server with the least error. After each request without an answer, the next
        one goes to the following server, and each answer takes back one such step.
        """
        if now < self._ask_from or self._is_reference:
            return None
        servers = sorted(
            (stamp.error, server)
            for server, stamp in self._stamps.items()
            if server in living and stamp.term == self._term
        )
        if not servers:
            return None
        if self._asked is not None:
            self._unanswered = min(self._unanswered + 1, _MOST_DOUBLINGS)
        # If a server cannot answer all requests, processes with a bound send fewer, so that the
        # others get answers.
        doublings = self._unanswered if self.is_synchronized(now) else 0
        self._ask_from = now + min(_SHORTEST_REST * 2**doublings, _LONGEST_REST)
        _, server = servers[self._unanswered % len(servers)]
        request = TimeRequest(server, floor(now * NANOSECONDS) % MAX_TIME)
        self._asked, self._has_left = (request, now), False
        return request

    def handle_departure(self, now: float) -> None:
        """Record that the last request leaves only now, which makes its round trip shorter."""
        if self._asked is not None and not self._has_left:
            self._asked, self._has_left = (self._asked[0], now), True

    def handle_answer(self, now: float, server: int, origin: int, stamp: Stamp) -> None:
        """Handle the answer to the last request, and ignore any other answer."""
        if self._asked is None or self._asked[0] != (server, origin):
            return
        asked, self._asked = self._asked[1], None
        self._unanswered = max(0, self._unanswered - 1)
        before = self._term and (self._term, self.read(now).time)
        if not self._follow(now, stamp):
            return
        self._bound(now, stamp, asked)
        if self._bounds.width(now) < -_TOLERANCE:
            self.contradictions += 1
            self._begin_again()
            self._bound(now, stamp, asked)
        middle, error = (asked + now) / 2, stamp.error / NANOSECONDS + (now - asked) / 2
        exchange = Exchange(middle, stamp.time / NANOSECONDS - middle, error)
        width = max(self._bounds.width(now), 0.0)
        if 2 * width < error:
            # The answer has waited at the server, or the way was slow: heartbeats say more.
            exchange = Exchange(now, self._bounds.lower(now) + width / 2, width / 2)
        self._estimate.add(exchange)
        self._answered += 1
        if self._answered >= _FIRST_REQUESTS:
            # The next request leaves when the bounds' age has cost as much accuracy as the round
            # trip of this exchange. An answer that has waited shows that the server has many
            # clients, so the next request waits longer, too.
            self._ask_from = max(self._ask_from, now + min(error / self._rate, _LONGEST_REST))
        self._settle(now, before)

    # Being the reference

    def take_charge(
        self, now: float, server: int, nonce: int, present: Container[int], living: Container[int]
    ) -> bool:
        """Become the reference if there is none and this server is the next one.

        ``present`` are the nonces of this server, and of all members of the views of the servers
        whose heartbeats arrive. Return True if this server became the reference.
        """
        term = self._term
        if term is not None and (self._is_reference or term.reference in present):
            return False
        before = term and (term, self.read(now).time)
        others = [(each, stamp.term) for each, stamp in self._stamps.items() if each in living]
        if term is None or not self.is_synchronized(now):
            if others:
                return False
            # A founder whose timeline gave way to another one continues it, so that one term never
            # has two times: others may still follow it.
            if self._founded is None or self._founded[0] != nonce:
                self._founded = nonce, now
            founded_at = self._founded[1]
            term, self._bounds = Term(nonce, 1, nonce, 0, 0), OffsetBounds(0.0)
            self._bounds.raise_lower(now, -founded_at)
            self._bounds.reduce_upper(now, -founded_at)
        elif any(each < server and followed == term for each, followed in others):
            return False
        elif term.generation >= _MAX_GENERATION:
            # Only a false stamp leads to this. There is no successor, and all errors grow.
            return False
        else:
            since = max(0, floor((now + self._bounds.lower(now)) * NANOSECONDS))
            term = Term(term.timeline, term.generation + 1, nonce, term.reference, since)
            self._bounds = self._bounds.from_here(now, rate=0.0)
        # This process's clock defines the cluster time now, so that the offset stays the same.
        offset = self._offset(now)
        self._estimate = OffsetEstimate(self._rate)
        self._estimate.add(Exchange(now, offset, 0.0))
        self._term, self._is_reference, self._asked = term, True, None
        self._settle(now, before)
        return True

    # Inside

    def _offset(self, now: float) -> float:
        return self._within(now, self._bounds.lower(now), self._bounds.upper(now))

    def _within(self, now: float, lower: float, upper: float) -> float:
        guess = self._estimate.at(now)
        return lower if guess is None else max(lower, min(guess, upper))

    def _bound(self, now: float, stamp: Stamp, asked: float | None = None) -> None:
        time, error = stamp.time / NANOSECONDS, stamp.error / NANOSECONDS
        self._bounds.raise_lower(now, time - error - now)
        if asked is not None:
            self._bounds.reduce_upper(asked, time + error - asked)

    def _follow(self, now: float, stamp: Stamp) -> bool:
        """Pass to the term of a stamp if that outranks the present one.

        Return False if the stamp is of a term that this process does not follow, or if this process
        is the reference of the term.
        """
        old, term = self._term, stamp.term
        if term == old:
            return not self._is_reference
        if old is not None and not self._outranks(now, stamp, old):
            return False
        self._term = term
        is_next = old is not None and (term.timeline, term.generation, term.predecessor) == (
            old.timeline,
            old.generation + 1,
            old.reference,
        )
        if is_next and self.is_synchronized(now):
            # The time for which both references may have run, each at its own rate.
            both = max(0.0, now + self._bounds.upper(now) - term.since / NANOSECONDS)
            offset = self._offset(now)
            self._bounds = self._bounds.from_here(now, self._rate, self._rate * both)
            self._estimate = OffsetEstimate(self._rate)
            self._estimate.add(Exchange(now, offset, self._bounds.width(now) / 2))
            self._ask_from = -inf
        else:
            self._begin_again()
        self._is_reference = False
        return True

    def _outranks(self, now: float, stamp: Stamp, old: Term) -> bool:
        new = stamp.term
        if new.timeline == old.timeline:
            return (new.generation, -new.reference) > (old.generation, -old.reference)
        if not (self._serves and self.is_synchronized(now)) and all(
            each.term.timeline != old.timeline for each in self._stamps.values()
        ):
            return True
        lead = stamp.time / NANOSECONDS - self.read(now).time
        return new.timeline < old.timeline if abs(lead) < _ALIKE else lead > 0

    def _begin_again(self) -> None:
        """Drop all bounds and the estimate, and send requests as often as at the start."""
        self._bounds, self._estimate = OffsetBounds(self._rate), OffsetEstimate(self._rate)
        self._ask_from, self._answered = -inf, 0

    def _settle(self, now: float, before: tuple[Term, float] | None) -> None:
        """Continue from the output ``before`` a change, so that the output does not go back, except
        to a timeline that is too far behind.
        """
        ahead = 0.0
        if before is not None and self._term is not None:
            ahead = max(0.0, before[1] - now - self._offset(now))
            if before[0].timeline != self._term.timeline and ahead > _LARGEST_SLEW:
                ahead, self._latest = 0.0, -inf
        self._ahead, self._ahead_from = ahead, now
