"""The exchange of contributions, step by step, among given members.

Theory of operation. This member contributes to its open step, takes the contributions of others,
and completes the step when it has one of each member that it exchanges with. It keeps these
contributions afterwards: a member that dies has sent its last one to some members only, and the
others get it from these. In virtual synchrony such messages are *unstable*: no member knows yet
that all have them. In Isis each message carries acknowledgements of other messages for this
purpose. Here a contribution is an acknowledgement, too: a member that has begun step n has
completed all earlier steps, and needs nothing of them. So a member drops a step, as stable, when
all others are known to have begun a later one. ``_floor`` is the first step that is not stable.

As long as all exchange with all, a member holds at most two steps: no member begins step n + 1
before it has a contribution to step n of each. Members that exchange with neighbours only may
drift apart. They stop at ``WINDOW`` steps ahead of the last one. After each ``PROGRESS_EVERY``
steps they report their step to members to which they send nothing, so that these can drop steps.

A flush stops the exchange for a while. Members that are being removed are ``refused``: this member
accepts nothing more from them, so that its ``report`` of their contributions stays true until the
seats with their ends are installed.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Generic, NamedTuple, TypeVar

from sphtp.core.group.messages import (
    Contribution,
    StepReached,
    contribution_bytes,
    encode_group_message,
)
from sphtp.core.group.seats import (
    Key,
    OnDeath,
    Place,
    Seat,
    Seats,
    StepView,
    vacant_seats,
    view_at,
)
from sphtp.errors import RemoteError

WINDOW: Final = 256
"""The most steps that a member is ahead of another one."""

PROGRESS_EVERY: Final = 64
"""The steps after which a member tells those that it sends nothing else how far it is."""

MOST_DEAD: Final = 4096
"""The most former members that are remembered, so that one that comes back learns of it."""

KEPT: Final = 1
"""The steps that are held before those are looked for that can be dropped."""


class CompleteStep(NamedTuple):
    """A step and its contributions with their heads, in the order of the members."""

    step: int
    seats: Seats
    """The members that contributed, in order; the same tuple as for the step before, if it can be.
    """
    contributions: list[Contribution]
    is_own_kept: bool
    """True if the exchange still holds this member's own contribution."""
    last: Seat | None
    """The member whose contribution came last; None if all others had contributed before."""


class _OpenStep:
    """The step that this member contributes to."""

    __slots__ = ("is_begun", "missing", "neighbours", "payload")

    def __init__(self, payload: Contribution, neighbours: frozenset[Place] | None) -> None:
        self.payload = payload
        # The places of those that it exchanges with; None for all. Places and not members: where a
        # step waits for the return of a dead neighbour, the one that comes has the same place.
        self.neighbours = neighbours
        # A step that is open has not begun while a flush is under way.
        self.is_begun = False
        self.missing: set[Key] = set()

    def includes(self, seat: Seat) -> bool:
        return self.neighbours is None or seat.place in self.neighbours


class StepExchange:
    """The steps of one member: its own contributions, and the contributions of others.

    The membership sets ``seats``, and calls ``refresh`` when they have changed.
    """

    def __init__(self, key: Key, on_death: OnDeath) -> None:
        self.key = key
        self.on_death = on_death
        self._seats: Seats = ()
        self._keys: frozenset[Key] = frozenset()
        self._view: StepView | None = None
        self.step = 0
        """The step that is contributed to next, or being made."""
        self.begun = -1
        """The last step that this member has begun."""
        self.is_placed = False
        """False while the first step of this member may still be put off."""
        self.refused: frozenset[Key] = frozenset()
        """Those whom a flush removes: nothing is taken from them."""
        self.dead: dict[Key, None] = {}
        """Those that the members have agreed to go on without, oldest first."""
        self._open: _OpenStep | None = None
        self._results: deque[CompleteStep] = deque()
        # The contributions of each step that somebody may still need.
        self._held: dict[int, dict[Key, Contribution]] = {}
        # For each member: the last contribution that came from it, the last step that it is known
        # to have begun, and the last one of this member that it was sent something of.
        self._heights: dict[Key, int] = {}
        self._reached: dict[Key, int] = {}
        self._reported: dict[Key, int] = {}

    # What there is

    @property
    def seats(self) -> Seats:
        """The seats of all, in the order of the members."""
        return self._seats

    @seats.setter
    def seats(self, seats: Seats) -> None:
        self._seats = seats
        self._keys = frozenset([seat.key for seat in seats])
        self._view = None

    @property
    def view(self) -> StepView:
        """The view of the present step."""
        view = self._view
        if view is None or not view.first <= self.step < view.end:
            view = self._view = view_at(self._seats, self.step)
        return view

    @property
    def is_open(self) -> bool:
        """True while a step is being made."""
        return self._open is not None

    @property
    def missing(self) -> AbstractSet[Key] | None:
        """The members whose contributions the open step lacks; None if no step is open."""
        return None if self._open is None else self._open.missing

    @property
    def is_put_off(self) -> bool:
        """True if a step is open that has not begun."""
        return self._open is not None and not self._open.is_begun

    @property
    def has_result(self) -> bool:
        """True if ``poll_step`` has a step to return."""
        return bool(self._results)

    def poll_step(self) -> CompleteStep | None:
        """Return a step that is complete; None if there is none."""
        return self._results.popleft() if self._results else None

    def last_from(self, key: Key) -> int:
        """Return the step of the last contribution that came from a member; -1 for none."""
        return self._heights.get(key, -1)

    def own_from(self, start: int) -> list[tuple[int, Contribution]]:
        """Return this member's contributions that are held, from a step on."""
        return [
            (step, self._held[step][self.key])
            for step in sorted(self._held)
            if step >= start and self.key in self._held[step]
        ]

    # The step

    def open(self, payload: Contribution, neighbours: frozenset[Place] | None) -> None:
        """Open a step; ``begin`` sends its contribution."""
        self._open = _OpenStep(payload, neighbours)

    def fail(self) -> None:
        """Give up the open step."""
        self._open = None

    def end(self) -> None:
        """End all steps, and drop all contributions, which may be in memory that others share."""
        self._open = None
        self._held.clear()

    def begin(self) -> list[tuple[Key, Contribution]]:
        """Begin the step that is put off. Return the messages to send, with their receivers.

        The caller has made sure that no flush is under way. A step among neighbours is put off
        until all others are within the window. Call ``refresh`` afterwards.
        """
        opened, step = self._open, self.step
        if opened is None or opened.is_begun:
            return []
        if opened.neighbours is not None and step - self._floor() > WINDOW:
            return []
        opened.is_begun = True
        self.begun = step
        here = self._held.get(step)
        if here is None:
            here = self._held[step] = {}
        here[self.key] = opened.payload
        leaving: list[tuple[Key, Contribution]] = []
        for key, seat in self.view.by_key.items():
            if key == self.key:
                continue
            if opened.neighbours is None or seat.place in opened.neighbours:
                leaving.append((key, opened.payload))
                self._reported[key] = step
            elif step - self._reported.get(key, -1) >= PROGRESS_EVERY:
                leaving.append((key, encode_group_message(StepReached(step))))
                self._reported[key] = step
        return leaving

    def refresh(self) -> bool:
        """Find the contributions that the open step lacks. Return True if it is complete."""
        opened = self._open
        if opened is None or not opened.is_begun:
            return False
        by_key = self.view.by_key
        opened.missing = by_key.keys() - self._held[self.step].keys() - self.dead.keys()
        if opened.neighbours is not None:
            opened.missing = {key for key in opened.missing if opened.includes(by_key[key])}
        return self._complete_if_ready(opened)

    def take_untrusted(self, key: Key, step: int, data: bytes | memoryview) -> bool:
        """Take a contribution. Return True if that completes the open step.

        Raises ``RemoteError`` for a step that no member can have reached.
        """
        if step <= self._heights.get(key, -1) or key in self.refused or key in self.dead:
            return False
        # A first contribution comes when all have installed its sender; but those for a newcomer
        # may come before its own INSTALL.
        if self.is_placed and key not in self._keys:
            return False
        if step > self.step + WINDOW + 1 if self.is_placed else len(self._held) > 2 * WINDOW:
            raise RemoteError(f"a contribution to step {step}, in step {self.step}")
        self._heights[key] = step
        if step > self._reached.get(key, -1):
            self._reached[key] = step
        here = self._held.get(step)
        if here is None:
            here = self._held[step] = {}
        here[key] = data
        opened = self._open
        if opened is None or step != self.step or not opened.is_begun:
            return False
        opened.missing.discard(key)
        return not opened.missing and self._complete_if_ready(opened, key)

    def note_reached(self, key: Key, step: int) -> None:
        """Note that a member has begun a step."""
        if step > self._reached.get(key, -1):
            self._reached[key] = step

    def note_reported(self, key: Key, step: int) -> None:
        """Note that a member was sent a message that shows this member's step."""
        self._reported[key] = step

    def forget_progress(self, key: Key) -> None:
        """Forget the step of a member whose channel has ended."""
        self._reached.pop(key, None)
        self._reported.pop(key, None)

    def _complete_if_ready(self, opened: _OpenStep, last_key: Key | None = None) -> bool:
        if opened.missing or self._waits_for_return(opened):
            return False
        step, view, here = self.step, self.view, self._held[self.step]
        seats, keys = view.members, list(view.by_key)
        if opened.neighbours is not None or not view.by_key.keys() <= here.keys():
            keys = [
                key
                for key, seat in view.by_key.items()
                if key in here and (opened.includes(seat) or key == self.key)
            ]
            seats = tuple([view.by_key[key] for key in keys])
        contributions = [here[key] for key in keys]
        self._open = None
        self.step = step + 1
        is_own_kept = opened.neighbours is not None
        if not is_own_kept:
            # It went to every member, in front of all that this one says later. So whoever lacks it
            # has lost the channel to this member, and gets it from others or not at all.
            del here[self.key]
        last = None if last_key is None else view.by_key.get(last_key)
        self._results.append(CompleteStep(step, seats, contributions, is_own_kept, last))
        if len(self._held) > KEPT:
            # Whoever contributed to this step needs nothing of those before.
            floor = self._floor() if is_own_kept else step
            for old in [step for step in self._held if step < floor]:
                del self._held[old]
        return True

    def _waits_for_return(self, opened: _OpenStep) -> bool:
        """True if the step waits for the return of somebody who died."""
        if self.on_death is not OnDeath.WAIT:
            return False
        return any(
            opened.includes(seat)
            for seat in vacant_seats(self.seats)
            if seat.end is not None and seat.end <= self.step
        )

    def _floor(self) -> int:
        """The first step of which somebody may still need a contribution.

        A seat with an end is left out: a dead member needs nothing, and one that leaves has
        completed its last step before.
        """
        floor = self.step
        for seat in self.seats:
            if seat.key == self.key or seat.key in self.dead or seat.end is not None:
                continue
            floor = min(floor, max(seat.start, self._reached.get(seat.key, -1)))
        return floor

    # A change of the members

    def refuse(self, keys: Iterable[Key]) -> None:
        """Accept nothing more from the members that a flush removes, until ``install``."""
        self.refused |= frozenset(keys)

    def report(
        self, removed: Collection[Key]
    ) -> tuple[tuple[tuple[Key, int], ...], dict[tuple[Key, int], bytes]]:
        """Return the last steps and the contributions of removed members, and of ended seats.

        Other members may lack these contributions.
        """
        heights, held = [], {}
        for seat in self.seats:
            key = seat.key
            if key in removed or seat.end is not None:
                here = [step for step, those in self._held.items() if key in those]
                heights.append((key, max([seat.start - 1, self.last_from(key), *here])))
                held.update(
                    {(key, step): contribution_bytes(step, self._held[step][key]) for step in here}
                )
        return tuple(heights), held

    def start_at(self, step: int) -> None:
        """Set the first step of this member, and drop contributions to earlier steps."""
        self.step, self.begun = step, step - 1
        for old in [old for old in self._held if old < step]:
            del self._held[old]

    def install(self, held: Mapping[tuple[Key, int], bytes]) -> None:
        """End a change, after the seats were set, with the contributions of dead members."""
        for (key, step), data in held.items():
            if step >= self.step:
                self._held.setdefault(step, {}).setdefault(key, data)
        alive = frozenset([seat.key for seat in self.seats if seat.end is None])
        died = [seat.key for seat in self.seats if seat.has_died]
        for key in (*died, *sorted(self.refused - alive)):
            self.dead[key] = None
        while len(self.dead) > MOST_DEAD:
            del self.dead[next(iter(self.dead))]
        # Of one that another coordinator did not remove, this member lacks contributions.
        self.refused &= alive
        for table in (self._heights, self._reached, self._reported):
            for key in table.keys() - self._keys:
                del table[key]


# The statistics of steps: their times, and the waiting for others in each of them.
#
# A step ends when the last contribution is there, so a member waits for one other at a time: for
# the one whose contribution came last. The time from this member's own contribution to the end of
# the step counts for that one alone. So the times by member add up to all the time that was
# waited, and the member with the most is the one to look at.


Member = TypeVar("Member", bound=Hashable)

MUCH_WAITED: Final = 0.1
"""The share of the time of all from which waiting for one member is worth a sentence."""

ALL_WAITED: Final = 0.6
"""The same where one member alone was asked."""

UNFAIR: Final = 1.5
"""The multiple of an equal share of all waiting from which one member is the slow one."""


def find_slowest(waited: Mapping[str, float], time: float, asked: int) -> str | None:
    """Return the member for which the others wait much of the time, or None.

    ``waited`` has the seconds for which other members waited for each member. ``time`` is the sum
    of the seconds for which these other members were observed.
    """
    member, most = max(waited.items(), key=lambda it: it[1], default=("", 0.0))
    # One alone cannot tell whether another would say the same of it.
    if most <= 0 or most < (MUCH_WAITED if asked > 1 else ALL_WAITED) * time:
        return None
    # Where all wait for each other alike, each has its share, and nobody is slow.
    fair = min(UNFAIR / len(waited), 1.0) * sum(waited.values())
    return None if most < fair else member


BOUNDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the buckets in seconds: a step on one machine takes 50 us or more, and one
that takes over 10 s waits for a program that has stopped."""


class TimeHistogram:
    """Counts of times in buckets. ``counts`` ends with one for times above all ``BOUNDS``."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class StepStatistics(Generic[Member]):
    """The times of the steps of one member.

    ``steps`` are the times from the end of one step to the end of the next, computing included.
    ``exchanges`` are the times from this member's contribution to the end of the step, and
    ``waits`` the same by the member whose contribution came last, without the steps at which this
    member was the last one.
    """

    def __init__(self) -> None:
        self.steps = TimeHistogram()
        self.exchanges = TimeHistogram()
        self.waits: dict[Member, TimeHistogram] = {}
        self._ended_at: float | None = None

    def add(self, began: float, ended: float, last: Member | None) -> None:
        """Count a step: when this member contributed, and when the contribution of ``last`` came.

        ``last`` is None if all others had contributed before.
        """
        self.exchanges.add(ended - began)
        if last is not None:
            waits = self.waits.get(last)
            if waits is None:
                waits = self.waits[last] = TimeHistogram()
            waits.add(ended - began)
        if self._ended_at is not None:
            self.steps.add(ended - self._ended_at)
        self._ended_at = ended

    def keep_only(self, members: Collection[Member]) -> None:
        """Forget all other members, which have left or died."""
        for gone in self.waits.keys() - set(members):
            del self.waits[gone]
