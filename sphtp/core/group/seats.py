"""Seats: the members of each step, and all conclusions from the seats alone.

Theory of operation. A member has a seat: the steps from ``start`` on and before ``end``. The seats
correspond to a view of virtual synchrony, with one difference. In Isis, the next view replaces a
view between two messages, and each message belongs to the view in which it was sent. Here a step
belongs to the members with a seat in it. So the seats of several steps are known at once, a member
that leaves or enters some steps ahead needs no change of its own, and a decision about a step is
final.

All members have to draw the same conclusions from the same seats. So the conclusions are pure
functions of the seats:

- **The order of members** is that of places. A place is the step and the id of its first member. A
  newcomer comes after all members before it. A newcomer that takes the place of a dead member
  (``OnDeath.WAIT``) keeps that place, because the result of a step depends on the order.
- **The coordinator** is the oldest member, as in Isis: the one with the lowest start and key, of
  those to which there is a channel.
- **The quorum**: the remaining members are more than half of the living, or half with the oldest
  (the primary partition of Isis), or the servers report all the others as gone. The last rule is
  not in Isis. Two members are the most frequent size, and the survivor of two is no majority.
- **The result of a change** (``seats_after``): ends for the dead, starts for the newcomers.

A seat that has ended is kept until all members have begun a later step: until then a member makes a
step with it. The seat of a dead member is kept for longer if the step at its end fails, or waits
for a newcomer of the same name.
"""

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

Key = tuple[int, int]
"""A member: its id in the cluster, and the number that it drew when it joined."""

Place = tuple[int, int]
"""A place in the order of members: step and id of the first who had it."""

Seats = tuple["Seat", ...]


class OnDeath(StrEnum):
    """The policy for the step from which on a member that died is missing."""

    RAISE = "raise"
    """That step fails at every member."""
    CONTINUE = "continue"
    """That step and the later ones are made without it."""
    WAIT = "wait"
    """That step waits for a member of the same name."""


class Seat(NamedTuple):
    """A member, and the steps that it takes part in: from ``start`` on, before ``end``."""

    id: int
    incarnation: int
    """Drawn anew at each join, so that one that comes back is another member."""
    name: str
    start: int
    place: Place
    has_state: bool
    """True if it gives newcomers the state of the simulation."""
    end: int | None = None
    has_left: bool = False
    """True if it announced that it leaves; a member that ended otherwise has died."""

    @property
    def key(self) -> Key:
        """The identity of this member: a client that joins again is another member."""
        return self.id, self.incarnation

    @property
    def has_died(self) -> bool:
        """True if the members have agreed on an end that this one did not announce."""
        return self.end is not None and not self.has_left

    def covers(self, step: int) -> bool:
        """Return true if the member takes part in a step."""
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
    """Return the seats with one whose member leaves."""
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
    """Return true if the group may go on without the members ``removed``: see the module.

    ``departed`` has the ids that the servers report as gone.
    """
    before = sorted((seat.start, seat.key) for seat in living(seats))
    stay = [key for _, key in before if key not in removed]
    if 2 * len(stay) > len(before) or all(key[0] in departed for key in removed):
        return True
    return 2 * len(stay) == len(before) and before[0][1] in stay


def giver_of_state(seats: Seats, lost: Container[Key]) -> Seat | None:
    """Return the member that sends the state to later members; None if none can."""
    givers = [
        (seat.start, seat.key, seat)
        for seat in seats
        if seat.end is None and seat.has_state and seat.key not in lost
    ]
    return min(givers)[2] if givers else None


class StepView(NamedTuple):
    """The members of a step. They are the same for the steps from ``first`` on and before ``end``,
    where a seat starts or ends."""

    first: int
    end: float
    members: Seats
    """The seats of the members, in order."""
    by_key: Mapping[Key, Seat]
    """The same, in the same order."""
    death: Seat | None
    """The seat of the first member that has died by then; None if nobody has."""


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
    """Return the seats of the dead whose places nobody has taken."""
    last = {seat.place: seat for seat in seats}
    return [seat for seat in last.values() if seat.has_died]


def merged(seats: Seats, others: Seats, dead: Container[Key]) -> Seats:
    """Return the seats merged with those that another member has installed, which do not change."""
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

    ``heights`` has the last contribution of each of those removed that anybody has. It may have
    been computed with, so it counts: the dead member ends behind it. ``begun`` is the last step
    that anybody has begun. A newcomer starts two steps behind it: a member may have completed that
    step, and its program have asked for the members of the next one.
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
    """Return the seats with those of newcomers, which start at a step or take a vacant place."""
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

    ``floor`` is the lowest of the steps that the members have begun, and ``needed`` has those whose
    end somebody does not know yet.
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
