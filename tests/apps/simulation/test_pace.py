"""How often progress is told, and what it says of speed."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from sphtp_client.simulation.events import Progress
from sphtp_client.simulation.pace import Pace


class Collector:
    progress_every = 2.0

    def __init__(self) -> None:
        self.said: list[Any] = []

    def say(self, event: Any) -> None:
        self.said.append(event)


async def test_the_first_step_says_nothing_of_speed_and_later_ones_come_now_and_then(
    autojump_clock: object,
) -> None:
    ear = Collector()
    pace = Pace(100, ear)
    await trio.sleep(1.0)
    slab: Any = SimpleNamespace(step=0)
    for slab.step in range(1, 51):
        await pace.on_step(slab)
        await trio.sleep(0.1)
    told = [(event.step, event.steps_per_s) for event in ear.said]
    assert all(isinstance(event, Progress) for event in ear.said)
    assert [step for step, _ in told] == pytest.approx([1, 21, 41], abs=1)
    assert told[0][1] is None
    assert [speed for _, speed in told[1:]] == pytest.approx([10.0, 10.0])
