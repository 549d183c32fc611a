"""Members that exchange with some others only: what it costs, and how far they get apart."""

from sphtp.core.group.seats import OnDeath
from sphtp.core.group.steps import PROGRESS_EVERY, WINDOW
from tests.core.group.simulated import START, World, advance, contribution_of

SIZE = 6
LAST = 2 * PROGRESS_EVERY


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
