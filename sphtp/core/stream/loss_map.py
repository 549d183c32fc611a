"""The loss map: the missing datagrams, and the states of their recovery.

The map keeps missing datagrams as ranges, so that a gap of a billion costs as much as a gap of one.
The table has the states of one range. If a part of a range arrives, or an NCF names a part, the map
splits the range, and each part has its own state. ``nak`` decides when each event happens.
"""

from bisect import bisect_left, bisect_right
from operator import attrgetter

from sphtp.core.fsm import Machine, Name, Row
from sphtp.core.stream.ranges import Span


class GapState(Name):
    """The states of a range."""

    WAIT_FIRST = "missing, perhaps only late; no NAK has named it"
    WAIT_REPAIR = "a NAK has named it"
    SUPPRESSED = "an NCF has announced that no repair comes now"
    DISABLED = "this receiver sends no NAKs; others may"
    FILLED = "arrived"
    LOST = "given up by the receiver"


class GapEvent(Name):
    """The events of a range."""

    ASKED = "its timer has fired, and a NAK with it leaves"
    IGNORED = "NCF: the source repaired it a moment ago"
    RX_DELAY = "NCF: its repair waits for its turn"
    SHED = "NCF: too many repairs wait already"
    NO_RETRY = "NCF: the source will not repair it"
    REPAIRED = "it arrived as a repair"
    LATE = "the original datagram arrived, late"
    BELOW_TRAIL = "the source's transmission window has moved on"
    TOO_OLD = "it has been missing for a generation interval"
    CROWDED = "the loss map is full, and it is the oldest"
    SESSION_OVER = "the session is over"


class GapAction(Name):
    """The actions of a range."""

    ARM = "restart its timer"
    COUNT_RECOVERED = "count it as recovered, with the time and the number of NAKs"
    COUNT_OUT_OF_ORDER = "count it as out of order"
    GIVE_UP = "report that the transport has given it up, with the reason"


S, E, A = GapState, GapEvent, GapAction

GapRow = Row[GapState, GapEvent, GapAction]

MISSING = (S.WAIT_FIRST, S.WAIT_REPAIR, S.SUPPRESSED, S.DISABLED)

ASKING: tuple[GapRow, ...] = (
    Row(S.WAIT_FIRST, E.ASKED, S.WAIT_REPAIR, (A.ARM,), "the datagram did not arrive late"),
    Row(S.WAIT_REPAIR, E.ASKED, S.WAIT_REPAIR, (A.ARM,), "the NAK or the repair was lost"),
    Row(S.SUPPRESSED, E.ASKED, S.WAIT_REPAIR, (A.ARM,), "the wait after the NCF is over"),
)

# A second NCF does not postpone the next NAK. Otherwise the NCFs for other receivers could postpone
# it for ever.
SUPPRESSING: tuple[GapRow, ...] = tuple(
    Row(state, event, S.SUPPRESSED, (A.ARM,), why)
    for state in (S.WAIT_FIRST, S.WAIT_REPAIR)
    for event, why in (
        (E.IGNORED, "wait for the ignore interval; the repair may be in flight"),
        (E.RX_DELAY, "wait until the repair has its turn"),
        (E.SHED, "an immediate request would add to the waiting repairs"),
    )
)

ARRIVING: tuple[GapRow, ...] = tuple(
    Row(state, event, S.FILLED, (action,), why)
    for state in MISSING
    for event, action, why in (
        (E.REPAIRED, A.COUNT_RECOVERED, "the repair may answer another receiver's NAK"),
        (E.LATE, A.COUNT_OUT_OF_ORDER, "the network reordered datagrams"),
    )
)

LOSING: tuple[GapRow, ...] = tuple(
    Row(state, event, S.LOST, (A.GIVE_UP,), why)
    for state in MISSING
    for event, why in (
        (E.NO_RETRY, "the source can no longer repair it"),
        (E.BELOW_TRAIL, "the source no longer has it"),
        (E.TOO_OLD, "later messages have waited for it too long"),
        (E.CROWDED, "memory is limited"),
        (E.SESSION_OVER, "every gap is settled before the end is reported"),
    )
)

GAP = Machine(
    "Missing range",
    S.WAIT_FIRST,
    (*ASKING, *SUPPRESSING, *ARRIVING, *LOSING),
    events=GapEvent,
    entries=frozenset({S.DISABLED}),
    final=frozenset({S.FILLED, S.LOST}),
    refused={
        S.SUPPRESSED: frozenset({E.IGNORED, E.RX_DELAY, E.SHED}),
        S.DISABLED: frozenset({E.ASKED, E.IGNORED, E.RX_DELAY, E.SHED}),
        S.FILLED: frozenset(GapEvent),
        S.LOST: frozenset(GapEvent),
    },
)


class Gap:
    """A range of missing datagrams with the same state and history.

    ``since`` is the time of its detection, ``naks`` the number of NAKs that have named it, and
    ``due`` the time at which its timer fires, or fired. Times are in seconds.
    """

    __slots__ = ("due", "first", "last", "naks", "since", "state")

    def __init__(self, first: int, last: int, since: float, state: GapState) -> None:
        self.first = first
        self.last = last
        self.since = since
        self.state = state
        self.naks = 0
        self.due = since

    @property
    def span(self) -> Span:
        """The sequence numbers of the missing datagrams."""
        return Span(self.first, self.last)

    @property
    def size(self) -> int:
        """Count of the missing datagrams."""
        return self.last - self.first + 1

    def cut(self, at: int) -> "Gap":
        """Keep the numbers below ``at``. Return the rest as a gap without a timer."""
        rest = Gap(at, self.last, self.since, self.state)
        rest.naks, rest.due = self.naks, self.due
        self.last = at - 1
        return rest


class LossMap:
    """The gaps of a receiver, in the order of their numbers and of their detection."""

    __slots__ = ("_firsts", "_gaps")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._gaps: list[Gap] = []

    def __len__(self) -> int:
        """Return the number of gaps."""
        return len(self._gaps)

    @property
    def total(self) -> int:
        """Count of the missing datagrams."""
        return sum(map(attrgetter("size"), self._gaps))

    @property
    def oldest(self) -> Gap:
        """The lowest gap, which was detected first. The map must not be empty."""
        return self._gaps[0]

    def add(self, gap: Gap) -> None:
        """Add a gap above all others."""
        self._firsts.append(gap.first)
        self._gaps.append(gap)

    def find(self, number: int) -> Gap | None:
        """Return the gap that contains ``number``; None if it is not missing."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or number > self._gaps[place].last:
            return None
        return self._gaps[place]

    def touches(self, first: int, last: int) -> bool:
        """Return True if any number from ``first`` to ``last`` is missing."""
        place = bisect_right(self._firsts, last) - 1
        return place >= 0 and first <= last and self._gaps[place].last >= first

    def within(self, first: int, last: int) -> list[Gap]:
        """Return the gaps whose first number is from ``first`` to ``last``."""
        return self._gaps[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def take_below(self, number: int) -> list[Gap]:
        """Remove and return the gaps that begin below ``number``."""
        return self.take_oldest(bisect_left(self._firsts, number))

    def take_old(self, now: float, age: float) -> list[Gap]:
        """Remove and return the gaps that were detected ``age`` seconds ago, or earlier."""
        # The same sum as in the timer, so that a gap is old enough when its timer fires.
        return self.take_oldest(bisect_right(self._gaps, now, key=lambda gap: gap.since + age))

    def take_oldest(self, number: int) -> list[Gap]:
        """Remove and return this number of the oldest gaps."""
        taken = self._gaps[:number]
        del self._firsts[:number], self._gaps[:number]
        return taken

    def split(self, gap: Gap, at: int) -> Gap:
        """Cut a gap in two; return the upper one, which begins with ``at``."""
        rest = gap.cut(at)
        place = bisect_left(self._firsts, at)
        self._firsts.insert(place, at)
        self._gaps.insert(place, rest)
        return rest

    def remove(self, gap: Gap) -> None:
        """Remove a gap of this map."""
        place = bisect_left(self._firsts, gap.first)
        del self._firsts[place], self._gaps[place]
