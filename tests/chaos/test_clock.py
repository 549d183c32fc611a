"""Steps of the wall clock, by an hour, forth and back: nobody looks at it."""

import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.chaos import clock
from tests.chaos.process import Line
from tests.chaos.stage import open_stage

pytestmark = pytest.mark.chaos

HOUR = 3600.0
MINUTE = 60.0


@pytest.mark.soak
async def test_a_wall_clock_that_jumps_moves_nobody(tmp_path: Path, seed: int) -> None:
    await step_the_clock(tmp_path, seed)


@pytest.mark.soak
async def test_a_wall_clock_of_python_that_jumps_moves_nobody(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "compiler", lambda: None)
    await step_the_clock(tmp_path, seed)


async def step_the_clock(folder: Path, seed: int) -> None:
    wall = clock.WallClock(folder)
    async with open_stage(seed, expiry=4.0) as stage:
        stage.environment = wall.environment
        servers = [await stage.server(name) for name in ("left", "right")]
        speaker, _ = await stage.speaker_and_listener()
        before = await stage.census()
        for step in (HOUR, -HOUR):
            wall.step(step)
            await stage.flowing(speaker, 100)
            await stage.census()
            assert ahead(speaker.program.of("census")[-1]["wall"]) == pytest.approx(
                step, abs=MINUTE
            )
        newcomer = await stage.peer("newcomer", to=["listener"])
        await stage.flowing(newcomer)
        await stage.converged()
        for server in servers:
            entered = await server.program.heard("client entered", client=newcomer.id)
            assert ahead(stamp_of(entered)) == pytest.approx(-HOUR, abs=MINUTE)
            assert not server.program.of("client left")
            assert not server.program.of("server left")
        assert len(speaker.program.of("speaking")) == 1
        await newcomer.leave()
        await stage.converged()
        await stage.back_to(before)
        await stage.finish()


def ahead(wall: float) -> float:
    """By how much a program believes to be ahead of us."""
    return wall - time.time()


def stamp_of(line: Line) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
