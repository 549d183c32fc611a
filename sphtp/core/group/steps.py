"""The exchange of contributions, step by step, among given members.

Theory of operation. This member contributes to its open step, takes the contributions of others,
and completes the step when it has one of each member with which it exchanges. It keeps these
contributions afterwards: a member that dies may have sent its last one to some members only, and
the others get it from these. In virtual synchrony such messages are *unstable*: they may not have
reached all members yet. In Isis each message carries acknowledgements of other messages for this
purpose. Here a contribution is an acknowledgement, too: a member that has begun step n has
completed all earlier steps, and needs no contributions to them. So a member drops the contributions
to a step, as stable, when it has evidence that all others have begun a later step. ``_floor`` is
the first step that is not stable.

As long as all members exchange with all, a member holds at most two steps: no member begins step n
+ 1 before it has a contribution to step n of each. Members that exchange with neighbours only may
be at different steps. A member waits when it is ``WINDOW`` steps ahead of the last one. Every
``PROGRESS_EVERY`` steps it reports its step to the members to which it sends nothing, so that these
can drop contributions.

A flush stops the exchange for a while. Members that are being removed are ``refused``: this member
accepts nothing more from them, so that its ``report`` of their contributions stays true until the
seats with their ends are installed.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

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
"""The most steps by which a member may be ahead of another one."""

PROGRESS_EVERY: Final = 64
"""The steps between two reports of a member's progress to members to which it sends nothing else.
"""

MOST_DEAD: Final = 4096
"""The most former members that are remembered, so that one that comes back gets EXCLUDED."""

KEPT: Final = 1
"""The number of held steps above which a member looks for steps that it can drop."""


class GroupStep:
    """A step of this member: first open, then complete with the contributions of all, or failed."""

    __slots__ = (
        "contributions",
        "is_begun",
        "is_own_kept",
        "last",
        "missing",
        "neighbours",
        "payload",
        "seats",
        "step",
    )

    def __init__(
        self, step: int, payload: Contribution, neighbours: frozenset[Place] | None
    ) -> None:
        self.step = step
        self.payload = payload
        # The places of the members with which it exchanges; None for all members. Places, because a
        # newcomer that replaces a dead neighbour has the same place, and another key.
        self.neighbours = neighbours
        self.is_begun = False
        """False while the step is put off: a flush is under way, or a member has to catch up."""
        self.missing: set[Key] = set()
        """The members whose contributions the step lacks."""
        self.seats: Seats = ()
        """Of a complete step: the members that contributed, in order. If all members exchanged with
        all, it is the same object as for the step before, as long as the members stay the same."""
        self.contributions: list[Contribution] = []
        """Of a complete step: their contributions with the heads, in the same order."""
        self.is_own_kept = neighbours is not None
        """True if the exchange may still hold this member's own contribution."""
        self.last: Seat | None = None
        """The member whose contribution completed the step; None if all others had contributed
        before, or a change of the members completed it."""

    def includes(self, seat: Seat) -> bool:
        return self.neighbours is None or seat.place in self.neighbours


class StepExchange:
    """The steps of one member: its own contributions, and the contributions of others.

    ``GroupMachine`` sets ``seats``, and calls ``refresh`` when they have changed.
    """

    def __init__(self, key: Key, on_death: OnDeath) -> None:
        self.key = key
        self.on_death = on_death
        self._seats: Seats = ()
        self._keys: frozenset[Key] = frozenset()
        self.view: StepView = view_at((), 0)
        """The view of the present step."""
        self.step = 0
        """The number of the open step, or of the next one if no step is open."""
        self.begun = -1
        """The last step that this member has begun; before its first step, the step before that."""
        self.is_placed = False
        """False while a change may still move the first step of this member."""
        self.refused: frozenset[Key] = frozenset()
        """The members that a flush removes: this member accepts nothing from them."""
        self.dead: dict[Key, None] = {}
        """The former members that the others have agreed to remove, oldest first."""
        self.opened: GroupStep | None = None
        """The open step, whose contribution ``begin`` sends; None between two steps."""
        self.results: deque[GroupStep] = deque()
        """The complete steps that the application has not taken, oldest first."""
        # By step: the contributions that a member may still need.
        self._held: dict[int, dict[Key, Contribution]] = {}
        # For each member: the step of its last contribution, the last step that its messages show
        # it to have begun, and the last step of this member that a message has shown to it.
        self._heights: dict[Key, int] = {}
        self._reached: dict[Key, int] = {}
        self._reported: dict[Key, int] = {}

    # Getters

    @property
    def seats(self) -> Seats:
        """The seats of all members, in order."""
        return self._seats

    @seats.setter
    def seats(self, seats: Seats) -> None:
        self._seats = seats
        self._keys = frozenset([seat.key for seat in seats])
        self.view = view_at(seats, self.step)

    def last_from(self, key: Key) -> int:
        """Return the step of the last contribution of a member; -1 if it sent none."""
        return self._heights.get(key, -1)

    def own_from(self, start: int) -> list[tuple[int, Contribution]]:
        """Return this member's held contributions to the steps from ``start`` on."""
        return [
            (step, self._held[step][self.key])
            for step in sorted(self._held)
            if step >= start and self.key in self._held[step]
        ]

    # The step

    def fail(self) -> None:
        """Drop the open step, which fails."""
        self.opened = None

    def end(self) -> None:
        """End the open step, and drop all contributions, which may be in shared memory."""
        self.opened = None
        self._held.clear()

    def begin(self) -> Mapping[Key, Contribution]:
        """Begin the open step, and complete it if nothing is missing.

        Return the messages to send, by receiver. The caller makes sure that no flush is under way.
        A step among neighbours stays put off until all others are within the window.
        """
        opened, step = self.opened, self.step
        if opened is None or opened.is_begun:
            return {}
        if opened.neighbours is not None and step - self._floor() > WINDOW:
            return {}
        opened.is_begun = True
        self.begun = step
        here = self._held.get(step)
        if here is None:
            here = self._held[step] = {}
        here[self.key] = opened.payload
        leaving = dict.fromkeys(self.view.by_key, opened.payload)
        leaving.pop(self.key, None)
        if opened.neighbours is not None:
            self._leave_out_others(leaving, opened)
            self._reported.update(dict.fromkeys(leaving, step))
        else:
            self._reported = dict.fromkeys(leaving, step)
        self.refresh()
        return leaving

    def _leave_out_others(self, leaving: dict[Key, Contribution], opened: GroupStep) -> None:
        """Remove the members that are no neighbours; those that need a report get one instead."""
        for key in tuple(leaving):
            if opened.includes(self.view.by_key[key]):
                continue
            if self.step - self._reported.get(key, -1) >= PROGRESS_EVERY:
                leaving[key] = encode_group_message(StepReached(self.step))
            else:
                del leaving[key]

    def refresh(self) -> None:
        """Find the members whose contributions the open step lacks; complete it if none does."""
        opened = self.opened
        if opened is None or not opened.is_begun:
            return
        by_key = self.view.by_key
        opened.missing = by_key.keys() - self._held[self.step].keys()
        if self.dead:
            opened.missing -= self.dead.keys()
        if opened.neighbours is not None:
            opened.missing = {key for key in opened.missing if opened.includes(by_key[key])}
        if not opened.missing:
            self._complete(opened)

    def take_untrusted(self, key: Key, step: int, data: bytes | memoryview) -> None:
        """Take a contribution, and complete the open step if it was the last one.

        Raises ``RemoteError`` for a step that no member can have reached.
        """
        if step <= self._heights.get(key, -1) or key in self.refused or key in self.dead:
            return
        # The first contribution of a newcomer comes after all members have installed it. But a
        # newcomer may get contributions of members before its own INSTALL.
        if self.is_placed and key not in self._keys:
            return
        if step > self.step + WINDOW + 1 if self.is_placed else len(self._held) > 2 * WINDOW:
            raise RemoteError(f"a contribution to step {step}, in step {self.step}")
        self._heights[key] = step
        if step > self._reached.get(key, -1):
            self._reached[key] = step
        here = self._held.get(step)
        if here is None:
            here = self._held[step] = {}
        here[key] = data
        opened = self.opened
        if opened is None or step != self.step or not opened.is_begun:
            return
        opened.missing.discard(key)
        if not opened.missing:
            self._complete(opened, key)

    def note_reached(self, key: Key, step: int) -> None:
        """Record that a member has begun a step."""
        if step > self._reached.get(key, -1):
            self._reached[key] = step

    def note_reported(self, key: Key, step: int) -> None:
        """Record that a message has shown this member's step to another member."""
        self._reported[key] = step

    def forget_progress(self, key: Key) -> None:
        """Forget the step of a member whose channel has ended."""
        self._reached.pop(key, None)
        self._reported.pop(key, None)

    def _complete(self, opened: GroupStep, last_key: Key | None = None) -> None:
        """Complete a step without missing contributions, unless it waits for a newcomer."""
        if self.on_death is OnDeath.WAIT and self._waits_for_return(opened):
            return
        step, view, here = self.step, self.view, self._held[self.step]
        seats: Seats = view.members
        keys: Iterable[Key] = view.by_key
        if opened.neighbours is not None or not view.by_key.keys() <= here.keys():
            keys = [
                key
                for key, seat in view.by_key.items()
                if key in here and (opened.includes(seat) or key == self.key)
            ]
            seats = tuple([view.by_key[key] for key in keys])
        opened.seats, opened.contributions = seats, list(map(here.__getitem__, keys))
        self.opened = None
        self.step = step + 1
        if self.step >= view.end:
            self.view = view_at(self._seats, self.step)
        if not opened.is_own_kept:
            # It was sent to every member before all later messages of this one. A member that lacks
            # it has lost the channel to this member, and gets it from others or not at all.
            del here[self.key]
            if len(view.by_key) <= 2:
                # No third member can lack the contribution of the other one. So its memory is free
                # before the next step, which then finds it in the caches of the processor.
                del self._held[step]
        if last_key is not None:
            opened.last = view.by_key.get(last_key)
        self.results.append(opened)
        if len(self._held) > KEPT:
            # A member that contributed to this step needs no contributions to earlier ones.
            floor = self._floor() if opened.is_own_kept else step
            for old in [step for step in self._held if step < floor]:
                del self._held[old]

    def _waits_for_return(self, opened: GroupStep) -> bool:
        """Return True if the step waits for a newcomer in the place of a dead member."""
        return any(
            opened.includes(seat)
            for seat in vacant_seats(self.seats)
            if seat.end is not None and seat.end <= self.step
        )

    def _floor(self) -> int:
        """Return the first step to which a member may still need a contribution.

        Seats with an end do not count: a dead member needs none, and a member that leaves has
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
        """Accept nothing more from these members, which a flush removes, until ``install``."""
        self.refused |= frozenset(keys)

    def report(
        self, removed: Collection[Key]
    ) -> tuple[tuple[tuple[Key, int], ...], dict[tuple[Key, int], bytes]]:
        """Return the last steps, and the held contributions, of removed members and ended seats.

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
        self.view = view_at(self._seats, step)
        for old in [old for old in self._held if old < step]:
            del self._held[old]

    def install(self, held: Mapping[tuple[Key, int], bytes]) -> None:
        """End a change, after ``seats`` was set; ``held`` are contributions of ended members."""
        for (key, step), data in held.items():
            if step >= self.step:
                self._held.setdefault(step, {}).setdefault(key, data)
        alive = frozenset([seat.key for seat in self.seats if seat.end is None])
        died = [seat.key for seat in self.seats if seat.has_died]
        for key in (*died, *sorted(self.refused - alive)):
            self.dead[key] = None
        while len(self.dead) > MOST_DEAD:
            del self.dead[next(iter(self.dead))]
        # A refused member may live on, if another coordinator did not remove it. This member lacks
        # contributions of it, and goes on refusing it.
        self.refused &= alive
        for table in (self._heights, self._reached, self._reported):
            for key in table.keys() - self._keys:
                del table[key]


# The statistics of steps: their times, and the times of waiting for other members.
#
# A step ends with its last contribution. The time from this member's own contribution to the end of
# the step counts as waiting for the member whose contribution came last. So the times by member add
# up to the whole time of waiting, and the member with the most time is probably the slow one.


Member = TypeVar("Member", bound=Hashable)

MUCH_WAITED: Final = 0.1
"""The share of the observed time from which on the waiting for one member is reported."""

ALL_WAITED: Final = 0.6
"""The same share if only one other member was observed."""

UNFAIR: Final = 1.5
"""The multiple of an equal share of all waiting from which on a member counts as slow."""


def find_slowest(waited: Mapping[str, float], time: float, asked: int) -> str | None:
    """Return the member for which the others wait much of the time, or None.

    ``waited`` has the seconds for which other members waited for each member. ``time`` is the sum
    of the seconds for which these other members were observed, and ``asked`` is their number.
    """
    member, most = max(waited.items(), key=lambda it: it[1], default=("", 0.0))
    # The times of one member alone do not show for how long others wait for that member.
    if most <= 0 or most < (MUCH_WAITED if asked > 1 else ALL_WAITED) * time:
        return None
    # If all members wait for each other equally, each has an equal share, and none is slow.
    fair = min(UNFAIR / len(waited), 1.0) * sum(waited.values())
    return None if most < fair else member


BOUNDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the buckets, in seconds. A step on one machine takes 50 us or more; a step
of more than 10 s waits for a program that has stopped."""


class TimeHistogram:
    """Counts of times in buckets. The last of ``counts`` is for times above all ``BOUNDS``."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0


class StepStatistics(Generic[Member]):
    """The times of the steps of one member, in seconds.

    ``steps`` are the times from the end of one step to the end of the next, including the
    computation. ``exchanges`` are the times from this member's contribution to the end of the step.
    ``waits`` are the same times by the member whose contribution came last, without the steps in
    which this member was the last one.
    """

    def __init__(self) -> None:
        self.steps = TimeHistogram()
        self.exchanges = TimeHistogram()
        self.waits: dict[Member, TimeHistogram] = {}
        self._ended_at: float | None = None

    def add(self, began: float, ended: float, last: Member | None) -> None:
        """Count a step, from this member's contribution at ``began`` to its end at ``ended``.

        ``last`` is the member whose contribution came last; None if all others had contributed
        before ``began``.
        """
        time = ended - began
        bucket = bisect_left(BOUNDS, time)
        self.exchanges.counts[bucket] += 1
        self.exchanges.total += time
        if last is not None:
            waits = self.waits.get(last)
            if waits is None:
                waits = self.waits[last] = TimeHistogram()
            waits.counts[bucket] += 1
            waits.total += time
        if self._ended_at is not None:
            time = ended - self._ended_at
            self.steps.counts[bisect_left(BOUNDS, time)] += 1
            self.steps.total += time
        self._ended_at = ended

    def keep_only(self, members: Collection[Member]) -> None:
        """Drop the times of all other members, which have left or died."""
        for gone in self.waits.keys() - set(members):
            del self.waits[gone]
