"""Seats: the members of each step, and the decisions that follow from the seats alone.

Theory of operation. A member has a seat: the steps from ``start`` on and before ``end``. The seats
correspond to a view of virtual synchrony, with one difference. In Isis, the next view replaces a
view between two messages, and each message belongs to the view in which it was sent. Here a step
belongs to the members with a seat in it. So a member has the seats of several steps at once. A
member that leaves or enters some steps ahead needs no change of its own, and a decision about a
step is final.

All members have to make the same decisions from the same seats. So the decisions are pure functions
of the seats:

- **The order of members** is that of places. A place is the step and the id of its first member. A
  newcomer comes after all earlier members. A newcomer that replaces a dead member
  (``OnDeath.WAIT``) gets the place of that member, because the result of a step depends on the
  order.
- **The coordinator** is the oldest member, as in Isis: the one with the lowest start and key, of
  those to which no channel was lost.
- **The quorum**: the remaining members are more than half of the living, or half with the oldest
  (the primary partition of Isis), or the servers report all the others as gone. The last rule is
  not in Isis. Two members are the most frequent size, and the survivor of two is no majority.
- **The result of a change** (``seats_after``): ends for the dead, starts for the newcomers.

A seat that has ended is kept until all members have begun a later step: until then some member may
still make a step with it. The seat of a dead member is kept for longer if the step at its end
fails, or waits for a newcomer of the same name.
"""

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

Key = tuple[int, int]
"""The key of a member: its id in the cluster, and the number that it drew when it joined."""

Place = tuple[int, int]
"""A place in the order of members: the first step and the id of the first member at this place."""

Seats = tuple["Seat", ...]


class OnDeath(StrEnum):
    """The policy for the first step without a member that died."""

    RAISE = "raise"
    """That step fails at every member."""
    CONTINUE = "continue"
    """That step and the later ones go on without the dead member."""
    WAIT = "wait"
    """That step waits for a newcomer of the same name."""


class Seat(NamedTuple):
    """A member, and the steps in which it takes part: from ``start`` on, before ``end``."""

    id: int
    incarnation: int
    """A number drawn at each join, so that a client that joins again is another member."""
    name: str
    start: int
    place: Place
    has_state: bool
    """True if the member gives newcomers the state of the simulation."""
    end: int | None = None
    has_left: bool = False
    """True if the member announced that it leaves; a member with another end has died."""

    @property
    def key(self) -> Key:
        """The identity of this member: a client that joins again is another member."""
        return self.id, self.incarnation

    @property
    def has_died(self) -> bool:
        """True if the members have agreed on an end that this member did not announce."""
        return self.end is not None and not self.has_left

    def covers(self, step: int) -> bool:
        """Return True if the member takes part in a step."""
        return self.start <= step and (self.end is None or step < self.end)


def in_order(seats: Iterable[Seat]) -> Seats:
    """Return seats in the order of members; of equal places, the earlier seat first."""
    return tuple(sorted(seats, key=_rank))


def _rank(seat: Seat) -> tuple[object, ...]:
    return (seat.place, seat.start, seat.end is None, seat.key)


def find_seat(seats: Seats, key: Key) -> Seat | None:
    """Return the seat of a member; None if it has none."""
    return next((seat for seat in seats if seat.key == key), None)


def living(seats: Seats) -> list[Seat]:
    """Return the seats without an end."""
    return [seat for seat in seats if seat.end is None]


def with_end(seats: Seats, key: Key, end: int) -> Seats:
    """Return the seats after the member with this key has left before the step ``end``."""
    return tuple(
        [seat._replace(end=end, has_left=True) if seat.key == key else seat for seat in seats]
    )


def coordinator_of(seats: Seats, lost: Container[Key]) -> Key | None:
    """Return the oldest living member to which no channel was lost; None if there is none."""
    return min(
        [(seat.start, seat.key) for seat in seats if seat.end is None and seat.key not in lost],
        default=(0, None),
    )[1]


def has_quorum(seats: Seats, removed: Collection[Key], departed: Container[int]) -> bool:
    """Return True if the group may go on without the members ``removed``.

    The docstring of the module has the rule. ``departed`` are the ids that the servers report as
    gone.
    """
    before = sorted((seat.start, seat.key) for seat in living(seats))
    stay = [key for _, key in before if key not in removed]
    if 2 * len(stay) > len(before) or all(key[0] in departed for key in removed):
        return True
    return 2 * len(stay) == len(before) and before[0][1] in stay


def giver_of_state(seats: Seats, excluded: Container[Key], *, before: int) -> Key | None:
    """Return the oldest member that gives the state to newcomers that start at ``before``.

    Return None if there is none but ``excluded`` ones.
    """
    givers = [
        (seat.start, seat.key)
        for seat in seats
        if seat.end is None and seat.has_state and seat.start < before and seat.key not in excluded
    ]
    return min(givers)[1] if givers else None


class StepView(NamedTuple):
    """The members of the steps from ``first`` on and before ``end``, at which a seat changes."""

    first: int
    end: float
    members: Seats
    """The seats of the members, in order."""
    by_key: Mapping[Key, Seat]
    """The same seats by key, in the same order."""
    death: Seat | None
    """The seat of the first member that died before these steps; None if no member did."""


def view_at(seats: Seats, step: int) -> StepView:
    """Return the view of a step, and of all later ones up to the next start or end of a seat."""
    members = tuple([seat for seat in seats if seat.covers(step)])
    died = [
        (seat.end, seat.place, seat)
        for seat in seats
        if seat.end is not None and seat.end <= step and not seat.has_left
    ]
    changes = [at for seat in seats for at in (seat.start, seat.end) if at is not None]
    return StepView(
        step,
        min([at for at in changes if at > step], default=math.inf),
        members,
        {seat.key: seat for seat in members},
        min(died)[2] if died else None,
    )


def vacant_seats(seats: Seats) -> list[Seat]:
    """Return the seats of dead members whose places no newcomer has taken."""
    last = {seat.place: seat for seat in seats}
    return [seat for seat in last.values() if seat.has_died]


def merged(seats: Seats, others: Seats, dead: Container[Key]) -> Seats:
    """Return the seats merged with ``others``, which another member has installed.

    An end that either member has installed stays. Members of ``others`` that are ``dead`` here are
    left out.
    """
    known = {seat.key: seat for seat in seats}
    for seat in others:
        mine = known.get(seat.key)
        if mine is None:
            if seat.key not in dead:
                known[seat.key] = seat
        elif mine.end is None and seat.end is not None:
            known[seat.key] = mine._replace(end=seat.end, has_left=seat.has_left)
    return in_order(known.values())


def seats_after(
    seats: Seats,
    removed: Container[Key],
    heights: Mapping[Key, int],
    newcomers: Sequence[Seat],
    begun: int,
    on_death: OnDeath,
) -> Seats:
    """Return the seats after a change, as the coordinator decides them.

    ``heights`` has the step of the last contribution of each removed member that any member has. A
    program may have computed with this contribution, so the seat of the dead member ends after it.
    ``begun`` is the last step that any member has begun. A newcomer starts two steps later: a
    member may have completed that step, and its program may have read the members of the next one.
    """
    seats = tuple(
        [
            seat._replace(end=max(heights.get(seat.key, -1), seat.start - 1) + 1)
            if seat.key in removed and seat.end is None
            else seat
            for seat in seats
        ]
    )
    return with_newcomers(seats, newcomers, begun + 2, on_death)


def with_newcomers(seats: Seats, newcomers: Sequence[Seat], start: int, on_death: OnDeath) -> Seats:
    """Return the seats with those of newcomers, which start at ``start`` or take a vacant place."""
    vacant = vacant_seats(seats) if on_death is OnDeath.WAIT else []
    placed = []
    for newcomer in newcomers:
        seat = newcomer._replace(start=start, place=(start, newcomer.id))
        for old in vacant:
            if old.name == newcomer.name and old.end is not None:
                seat = seat._replace(start=old.end, place=old.place)
                vacant.remove(old)
                break
        placed.append(seat)
    return in_order((*seats, *placed))


def without_ended(seats: Seats, floor: int, needed: Container[Key], on_death: OnDeath) -> Seats:
    """Return the seats without those that no member needs any more.

    ``floor`` is the lowest of the steps that the members have begun. ``needed`` are the members
    whose end some member has not installed yet.
    """
    match on_death:
        case OnDeath.RAISE:
            # The step at the end of any of these fails, also at a member that gets there last.
            kept = {seat.key for seat in seats if seat.has_died}
        case OnDeath.WAIT:
            kept = {seat.key for seat in vacant_seats(seats)}
        case OnDeath.CONTINUE:
            kept = set()
    return tuple(
        [
            seat
            for seat in seats
            if seat.end is None or seat.end > floor or seat.key in needed or seat.key in kept
        ]
    )
