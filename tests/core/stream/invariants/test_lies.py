"""What nobody sent, or not now, or not so: nothing is raised, and nothing else is told (13)."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphtp.testing.network import Faults
from tests.core.stream.invariants.play import Judge, play
from tests.core.stream.invariants.schedule import (
    DELAY,
    Fate,
    Lie,
    Partition,
    Restart,
    Schedule,
    Step,
    Tell,
    draw_schedule,
    schedules,
)
from tests.core.stream.invariants.telling import EndsOnce
from tests.core.stream.invariants.test_invariants import JUDGES
from tests.profiles import brisk
from tests.soaked import soaked

some = settings(max_examples=max(brisk.max_examples // 8, 1))
FINE: Final = Faults(delay=DELAY)
IN_ANY_CASE: Final[tuple[type[Judge], ...]] = (EndsOnce,)


def without_faults(schedule: Schedule, steps: Sequence[Step]) -> Schedule:
    """The same on a network that loses nothing, with these steps and an honest end."""
    return replace(schedule, down=FINE, up=FINE, steps=tuple(steps), fate=Fate.CLOSE)


@some
@given(schedules, st.lists(st.tuples(st.integers(0, 40), st.sampled_from(Lie)), max_size=30))
def test_lies_change_nothing_that_is_told(schedule: Schedule, lies: list[tuple[int, Lie]]) -> None:
    honest = [step for step in schedule.steps if not isinstance(step, Tell | Partition | Restart)]
    dirty: list[Step] = list(honest)
    for place, lie in lies:
        dirty.insert(min(place, len(dirty)), Tell(lie))
    told, told_among_lies = (
        [one.payloads for one in play(without_faults(schedule, steps), JUDGES).subscribers]
        for steps in (honest, dirty)
    )
    assert told == told_among_lies


@pytest.mark.parametrize("batch", [range(4), *soaked([range(4, 1010)])], ids=len)
def test_flipped_bits_in_the_clear_end_no_stream_twice_and_raise_nothing(batch: range) -> None:
    """Unsealed, they are believed: what is told is another matter."""
    for seed in batch:
        schedule = replace(draw_schedule(Random(seed)), seed=seed, is_fair=False)
        flips = replace(
            schedule,
            down=replace(schedule.down, corrupt=0.2),
            up=replace(schedule.up, corrupt=0.2),
        )
        play(flips, IN_ANY_CASE)
