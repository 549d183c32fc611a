"""`sphtp watch` as a user runs it: beside a cluster of real processes, on a bad network."""

import json
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

from sphtp_client.cluster.process import split_lines
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import Slab, borders
from sphtp_client.simulation.state import state_sha256
from tests.apps.cluster.running import ENDLESS, QUICK, Run, cluster, is_alive
from tests.interpreters import ForkedProcess

SLABS = 2
BAD = ("--loss", "0.1", "--duplicate", "0.05", "--reorder", "0.1")


class Eye:
    """A running `sphtp watch --json`."""

    def __init__(self, process: ForkedProcess) -> None:
        self.said: list[dict[str, Any]] = []
        self._process = process
        self._lines = split_lines(process.stdout)

    async def end(self) -> int:
        async for line in self._lines:
            self.said.append(json.loads(line))
        return await self._process.wait()

    def all(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.said if one["event"] == event]

    async def aclose(self) -> None:
        self._process.terminate()
        await self._process.wait()
        await self._lines.aclose()
        await self._process.aclose()


@asynccontextmanager
async def watching(run: Run, *options: str) -> AsyncIterator[Eye]:
    """Watch a cluster with the command that it tells."""
    shown = next(line for line in run.lines if line.startswith("to watch it: "))
    _, *arguments = shlex.split(shown.removeprefix("to watch it: "))
    # Each with heartbeats as frequent as that cluster expects them.
    eye = Eye(ForkedProcess.of_module("sphtp", [*arguments, *QUICK, "--json", *options]))
    try:
        yield eye
    finally:
        with trio.CancelScope(shield=True):
            await eye.aclose()


@pytest.mark.slow
@pytest.mark.soak
async def test_a_watched_run_is_verified_and_seen_to_its_end(gas_file):
    steps = 200
    options = ("--servers", "1", "--clients", str(SLABS), "--steps", str(steps), "--verify")
    async with cluster(gas_file, *options, *BAD) as run:
        await run.line("to watch it")
        async with watching(run, *BAD) as eye:
            assert await eye.end() == 0
        assert await run.end() == 0
    assert run.lines[-1].startswith("verified: bit-identical")
    assert_seen(eye, states_of(gas_file, steps))
    assert eye.all("whole")[-1]["step"] == steps
    assert [ended["step"] for ended in eye.all("ended")] == [steps] * SLABS
    assert (eye.said[-1]["outcome"], eye.said[-1]["losses"]) == ("finished", 0)


@pytest.mark.slow
async def test_who_comes_late_sees_the_present_at_once_and_a_signal_ends_everything(gas_file):
    options = ("--servers", "1", "--clients", str(SLABS), "--steps", ENDLESS)
    async with cluster(gas_file, *options, *BAD) as run:
        await run.line("to watch it")
        await run.all_running(SLABS)
        async with watching(run, "--steps", "10") as eye:
            assert await eye.end() == 0
        async with watching(run, "--once") as late:
            assert await late.end() == 0
        run.process.send_signal(signal.SIGINT)
        assert await run.end() == 128 + signal.SIGINT
    assert len(run.pids()) == 1 + SLABS
    assert not any(is_alive(pid) for pid in run.pids().values())
    seen = [one["step"] for one in (*eye.all("state"), *late.all("state"))]
    reference = states_of(gas_file, max(seen))
    for each in (eye, late):
        assert_seen(each, reference)
        assert each.said[-1]["outcome"] == "seen"
    # Each slab by itself: slabs choose their frames by their own clocks, so the newest frame of one
    # may be of an earlier step than the newest of another.
    for slab in range(SLABS):
        past = max(state["step"] for state in eye.all("state") if state["slab"] == slab)
        newest = [state["step"] for state in late.all("state") if state["slab"] == slab]
        assert newest, slab
        assert min(newest) >= past, slab


def states_of(path, steps):
    """Return the digest of each slab, and of the whole, after each step of one process."""
    scenario = load_scenario(path)
    slab, cuts = Slab(scenario), borders(scenario, SLABS)
    inner = np.array(cuts[1:-1])
    found = []
    for step in range(steps + 1):
        if step:
            slab.drift()
            slab.kick()
        spheres = slab.spheres
        owner = np.searchsorted(inner, spheres.x[:, 0], side="right")
        parts = [state_sha256(spheres.take(owner == n)) for n in range(SLABS)]
        found.append([*parts, state_sha256(spheres)])
    return found


def assert_seen(eye, reference):
    """Hold what was seen against the simulation."""
    for state in eye.all("state"):
        assert state["sha256"] == reference[state["step"]][state["slab"]], state
    for whole in eye.all("whole"):
        assert whole["state_sha256"] == reference[whole["step"]][-1], whole
    for slab in range(SLABS):
        steps = [state["step"] for state in eye.all("state") if state["slab"] == slab]
        assert steps == sorted(set(steps))
