"""Members that exchange with some others only: what it costs, and how far they get apart."""

from collections.abc import Container

import pytest

from sphtp.core.group.seats import Key, OnDeath
from sphtp.core.group.steps import PROGRESS_EVERY, WINDOW
from sphtp.errors import RefusedError
from tests.core.group.simulated import START, Worker, World, advance, compute_alone, contribution_of
from tests.soaked import soaked

SIZE = 6
LAST = 2 * PROGRESS_EVERY
NAMES = ("eldest", "one", "other")


def ring(seed: int) -> World:
    world = World(seed, OnDeath.CONTINUE, size=SIZE, last=LAST)
    world.is_ring = True
    for number in range(SIZE):
        world.add(f"worker{number}")
    return world


def test_a_ring_computes_what_one_process_computes_and_costs_the_others_nothing() -> None:
    world = ring(5)
    world.run(lambda: all(it.step >= LAST for it in world.workers))
    # Two messages for a step, and now and then how far it is to the three others; with what it
    # takes to found the group.
    assert world.sent < SIZE * (2 * LAST + 3 * (LAST // PROGRESS_EVERY + 1)) + 20 * SIZE * SIZE
    order = [seat.name for seat in world.workers[0].machine.members]
    fields = dict.fromkeys(order, START)
    for step in range(LAST):
        sent = {name: contribution_of(name, step, fields[name]) for name in order}
        for place, name in enumerate(order):
            near = {name, order[place - 1], order[(place + 1) % SIZE]}
            those = [sent[one] for one in order if one in near]
            fields[name] = advance(fields[name], those)
    assert {it.name: it.field for it in world.workers} == fields


def test_nobody_gets_further_ahead_of_one_that_stands_still_than_the_window() -> None:
    world = World(6, OnDeath.CONTINUE, size=3, last=10 * WINDOW)
    workers = [world.add(name) for name in ("one", "two", "three")]
    for worker in workers:
        worker.pause = 0.0001
    world.is_alone = True
    world.run(lambda: all(it.began_at is not None for it in workers))
    slow, fast, _ = workers
    slow.inbox = []
    held = slow.step
    while world.step():
        assert fast.step <= held + WINDOW + PROGRESS_EVERY
    assert fast.step >= held + WINDOW - PROGRESS_EVERY
    assert fast.machine.steps.opened


class Pair(World):
    """Two that exchange with each other, and others that exchange with nobody."""

    def neighbours(self, worker: Worker) -> list[Key]:
        pair = ("one", "other")
        return [
            seat.key
            for seat in worker.machine.members
            if worker.name in pair and seat.name in pair and seat.key != worker.key
        ]


class Path(World):
    """Members of which each exchanges with the one before it, and with the one behind it."""

    def neighbours(self, worker: Worker) -> list[Key]:
        place = NAMES.index(worker.name)
        near = NAMES[max(place - 1, 0) : place + 2]
        return [
            seat.key
            for seat in worker.machine.members
            if seat.name in near and seat.key != worker.key
        ]


def pair_with_eldest(seed: int, on_death: OnDeath, *, givers: Container[str] = NAMES) -> Pair:
    """``eldest`` gives newcomers the state as long as it can, and is ahead of the two."""
    world = Pair(seed, on_death, size=3, last=2 * WINDOW)
    world.givers = givers
    for number, name in enumerate(NAMES):
        world.add(name, 3 + 2 * number)
    return world


def lose_other(world: Pair) -> tuple[Worker, Worker]:
    """Kill ``other``, and let the eldest get as far ahead as it may.

    Return ``one``, which waits, and the one that takes the place.
    """
    eldest, one, other = world.workers
    for worker in (one, other):
        worker.pause = 0.001
    world.run(lambda: other.step > 5)
    world.kill(other)
    world.run(lambda: eldest.machine.steps.opened is not None)
    return one, world.add("other")


@pytest.mark.parametrize("seed", range(3))
def test_who_takes_the_place_of_a_dead_neighbour_gets_the_state_of_its_own_first_step(
    seed: int,
) -> None:
    """What must hold: a member that is past that step does not give its later state."""
    world = pair_with_eldest(seed, OnDeath.WAIT)
    one, again = lose_other(world)
    world.run(lambda: again.step >= world.last and one.step >= world.last)
    fields = compute_alone([("one", "other")] * world.last)
    assert again.began_at is not None
    assert again.began_field == fields[again.began_at]
    assert one.field == again.field == fields[-1]
    assert world.errors == []


def test_a_newcomer_whose_state_nobody_has_is_told_so() -> None:
    world = pair_with_eldest(1, OnDeath.WAIT, givers=("eldest",))
    _, again = lose_other(world)
    world.run(lambda: again.failure is not None)
    assert isinstance(again.failure, RefusedError)
    assert again.failure.reason == "state"


def test_a_member_that_gets_past_the_step_whose_state_it_owes_passes_the_duty_on() -> None:
    """What must hold: the newcomer does not wait for ever.

    The eldest has begun the newcomer's first step when it hears of it, and its call of ``exchange``
    is cancelled; then the contribution comes that completes the step.
    """
    world = Path(0, OnDeath.WAIT, size=3, last=60)
    eldest, one, other = [world.add(name, 3 + 2 * at) for at, name in enumerate(NAMES)]
    eldest.pause = other.pause = 0.001
    one.pause = 3.0
    world.run(lambda: other.step > 5)
    eldest.gives_state = False
    world.kill(other)
    late: list[Worker] = []
    world.call_later(4.44, lambda: late.append(world.add("other")))
    world.run(lambda: bool(late))
    (again,) = late
    world.run(lambda: all(it.step >= world.last for it in (eldest, one, again)))
    assert world.errors == []


@pytest.mark.parametrize("seed", range(3))
def test_a_member_gives_the_state_before_a_step_that_is_complete_at_once(seed: int) -> None:
    world = pair_with_eldest(seed, OnDeath.CONTINUE)
    eldest, *_ = world.workers
    for worker in world.workers:
        worker.pause = 0.02
    world.run(lambda: eldest.step > 5)
    late = world.add("late")
    world.run(lambda: late.began_at is not None)
    assert late.began_at is not None
    assert late.began_field == compute_alone([("eldest",)] * late.began_at)[-1]


@pytest.mark.parametrize("seed", [1, 5, *soaked(range(100, 140))])
def test_a_newcomer_whose_giver_dies_gets_a_state_or_an_error(seed: int) -> None:
    """What must hold: whoever is ahead of the one that dies does not wait for the newcomers."""
    world = World(seed, OnDeath.CONTINUE, size=4, last=400)
    world.is_alone = True
    workers = [world.add(f"worker{number}") for number in range(4)]
    for worker in workers:
        worker.pause = world.random.uniform(0.002, 0.02)
    world.run(lambda: all(it.step > 5 for it in workers))
    late = [world.add(f"late{number}") for number in range(2)]
    for worker in late:
        worker.pause = 0.01
    oldest = min(workers, key=lambda it: it.id)
    world.call_later(world.random.uniform(0.2, 0.6), lambda: world.kill(oldest))
    world.run(lambda: all(it.step >= 400 for it in world.present))
    assert {it.name for it in world.present} >= {it.name for it in workers if it is not oldest}
    alone = {it.name: compute_alone([(it.name,)] * 401) for it in workers}
    for worker in late:
        if worker.failure is not None:
            assert isinstance(worker.failure, RefusedError)
            assert worker.failure.reason == "state"
        else:
            at = worker.began_at
            assert at is not None
            assert worker.began_field in [fields[at] for fields in alone.values()]
    assert world.errors == []
