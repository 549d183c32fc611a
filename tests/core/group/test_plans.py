"""Workers die, freeze, leave and join by a seeded plan, and compute what one process computes."""

from functools import partial
from random import Random
from typing import Final

import pytest

from sphtp.core.group.seats import OnDeath
from sphtp.errors import ExcludedError, MemberDiedError
from tests.core.group.simulated import Worker, World, agreed_names, compute_alone
from tests.soaked import soaked

WORKERS: Final = 8
FEWEST: Final = 5
QUICK: Final = 120
"""Steps of a run in the quick suite."""
LONG: Final = 2000
PADDING: Final = bytes(4096)


class Plan:
    """What happens to the workers of a world, from a seed."""

    def __init__(self, world: World, seed: int, every: int) -> None:
        self.world = world
        self.random = Random(f"plan {seed}")
        self.names = 0
        self.troubled: list[Worker] = []
        for _ in range(WORKERS):
            self.join()
        for step in range(5, world.last - 10):
            if self.random.random() < 1 / every:
                world.triggers[step] = [partial(self.happen, self.random.random())]

    def join(self) -> None:
        self.names += 1
        self.world.add(f"worker{self.names}")

    def happen(self, draw: float) -> None:
        """Let one thing happen, if those that are left can agree on it."""
        world = self.world
        healthy = world.healthy
        self.troubled = [it for it in self.troubled if self.is_counted_on(it)]
        who = self.random.choice(healthy) if healthy else None
        if len(healthy) < FEWEST or draw < 0.2:
            if len(world.present) < WORKERS + 2:
                self.join()
        elif who is None or len(self.troubled) > 1 or len(healthy) < len(world.present) - 2:
            pass
        elif draw < 0.35:
            who.leave()
        elif draw < 0.55:
            world.freeze(who, self.random.uniform(0.001, 3.0))
        else:
            self.trouble(who, draw)

    def is_counted_on(self, who: Worker) -> bool:
        """Return true while somebody still takes this one for a member, or it may come back."""
        return who.inbox is not None or any(
            seat.key == who.key and seat.end is None
            for it in self.world.healthy
            for seat in it.machine.seats
        )

    def trouble(self, who: Worker, draw: float) -> None:
        world = self.world
        self.troubled.append(who)
        if draw < 0.65:
            world.freeze(who, self.random.uniform(12.0, 30.0))
        elif draw < 0.75:
            other = self.random.choice([it for it in world.healthy if it is not who])
            world.cut(who, other)
        else:
            if draw < 0.85:
                world.kill(who)
            else:
                world.fail(who)
            if world.on_death is OnDeath.WAIT:
                world.call_later(self.random.uniform(0.5, 20), partial(self.come_back, who.name))

    def come_back(self, name: str) -> None:
        self.world.add(name)


def finish(world: World) -> None:
    """Let all that are left leave, and those that come back meanwhile."""

    def have_left() -> bool:
        for worker in world.present:
            if not worker.is_leaving:
                worker.leave()
        return not world.present

    world.run(have_left)


def check(world: World) -> list[tuple[str, ...]]:
    """Compare all workers with one process; return who was in each step."""
    assert world.errors == []
    names = agreed_names(world.workers)
    fields = compute_alone(names)
    for worker in world.workers:
        if worker.is_leaving and not worker.is_out and worker.began_at is not None:
            assert worker.field == fields[worker.step], worker.name
            died = [(name, end) for name, end in worker.died if end is not None]
            assert all(name not in names[end] for name, end in died if end < len(names)) or (
                world.on_death is OnDeath.WAIT
            )
    return names


def seeds(quick: int, long: int) -> list[object]:
    return [*range(quick), *soaked(range(1000, 1000 + long))]


def size_of(seed: int) -> tuple[int, int]:
    """The steps of a run, and after how many something happens."""
    return (QUICK, 8) if seed < 1000 else (LONG, 25)


# In 45, two that have lost each other both send FLUSH to a newcomer.
@pytest.mark.parametrize("seed", [45, *seeds(1, 200)])
@pytest.mark.parametrize("on_death", [OnDeath.CONTINUE, OnDeath.WAIT])
def test_what_is_left_computes_what_one_process_computes(seed: int, on_death: OnDeath) -> None:
    last, every = size_of(seed)
    world = World(seed, on_death, size=WORKERS, last=last)
    world.padding = PADDING
    Plan(world, seed, every)
    world.run(lambda: bool(world.present) and all(it.step >= last for it in world.present))
    finish(world)
    names = check(world)
    assert len(names) == last
    # No message carries two contributions: each may be as large as messages may be.
    assert world.largest < 2 * len(PADDING)


class UntilTrouble(Plan):
    """A plan in which, late, somebody dies; perhaps two at once."""

    def __init__(self, world: World, seed: int, every: int) -> None:
        super().__init__(world, seed, every)
        step = self.random.randrange(world.last // 2, world.last - 10)
        world.triggers[step] = [self.end]

    def trouble(self, who: Worker, draw: float) -> None:
        """Nobody dies before it is time."""

    def end(self) -> None:
        first, second, *_ = self.random.sample(self.world.healthy, 3)
        if self.random.random() < 0.3:
            self.world.freeze(first, 30.0)
        else:
            self.world.kill(first)
        if self.random.random() < 0.4:
            self.world.kill(second)


@pytest.mark.parametrize("seed", seeds(2, 200))
def test_all_survivors_fail_at_the_same_step_for_the_same_member(seed: int) -> None:
    last, every = size_of(seed)
    world = World(seed, OnDeath.RAISE, size=WORKERS, last=last)
    UntilTrouble(world, seed, every)

    def survivors() -> list[Worker]:
        return [
            it
            for it in world.present
            if it.inbox is None and it.began_at is not None and not it.is_leaving
        ]

    world.run(lambda: any(it.failure for it in survivors()))
    world.run(lambda: all(it.failure for it in survivors()))
    failed = survivors()
    assert len(failed) >= 2
    said = {(it.failure.name, it.failure.step) for it in failed
            if isinstance(it.failure, MemberDiedError)}  # fmt: skip
    ((name, step),) = said
    assert {it.step for it in failed} == {step}
    finish(world)
    names = check(world)
    assert len(names) == step
    (dead,) = [it for it in world.workers if it.name == name]
    # A newcomer that was admitted can die before it begins its first step.
    assert name in names[step - 1] or dead.began_at is None
    assert not any(isinstance(it.failure, ExcludedError) for it in failed)
