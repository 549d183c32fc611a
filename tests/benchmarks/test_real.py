"""Real processes on loopback, for a tenth of a second each."""

import os
import subprocess
import sys
from typing import Any

import pytest
import trio

from sphtp_benchmarks import pair
from sphtp_benchmarks.figures import Sheet
from sphtp_benchmarks.pair import Measurement, MeasurementError, measure, open_half
from sphtp_benchmarks.process_task import ProcessTask, TaskRole
from sphtp_benchmarks.rounds import Plan, run_rounds
from sphtp_client.cluster.process import ChildProcess
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

SHORT: dict[str, Any] = {"seconds": 0.05, "warm_up": 0.0}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("system", ["sphtp", "tcp"])
async def test_messages_arrive_and_are_counted(system):
    figures = await measure(Measurement("64B", system, **SHORT))
    assert figures.messages_per_s is not None
    assert figures.messages_per_s > 100
    assert figures.mb_per_s == pytest.approx(figures.messages_per_s * 64 / 1e6)
    assert figures.cpu_us_per_message is not None
    assert figures.cpu_us_per_message > 0
    assert figures.rtt_p50_us is None


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("system", ["sphtp", "pynng"])
async def test_round_trips_are_timed(system):
    figures = await measure(Measurement("rtt", system, **SHORT))
    assert figures.rtt_p50_us is not None
    assert figures.rtt_p99_us is not None
    assert 1 < figures.rtt_p50_us <= figures.rtt_p99_us


@pytest.mark.usefixtures("forked")
async def test_a_half_that_fails_is_quoted():
    broken = Measurement("64B", "no_such_system", **SHORT)
    with pytest.raises(MeasurementError, match="receive ended: KeyError: 'no_such_system'"):
        await measure(broken)


async def test_a_failure_is_written_down_and_the_other_rounds_go_on(monkeypatch):
    async def late(task):
        raise MeasurementError("not done")

    monkeypatch.setattr("sphtp_benchmarks.rounds.measure", late)
    sheet = Sheet()
    plan = Plan(rounds=2, seconds=0.1, cases=["64B"], systems=["tcp"])
    await run_rounds(plan, sheet, lambda _number, _task: None)
    assert sheet.failures == ["64B tcp, round 1: not done", "64B tcp, round 2: not done"]
    assert sheet.rows() == []


async def test_a_measurement_has_a_deadline_and_leaves_nobody(monkeypatch):
    pids = []

    class Noted(ChildProcess):
        @classmethod
        async def spawn(cls, command, variables=None, **places):
            child = await super().spawn((sys.executable, "-c", "input()"))
            pids.append(child.pid)
            return child

    monkeypatch.setattr(pair, "ChildProcess", Noted)
    with pytest.raises(MeasurementError, match="not done"):
        await measure(Measurement("64B", "tcp", **SHORT), grace=0.1)
    assert len(pids) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_half_ends_with_its_standard_input():
    part = ProcessTask(system="tcp", case="64B", role=TaskRole.RECEIVE, **SHORT)
    async with open_half(part) as half:
        assert (await half.hear("port"))["port"] > 0
        command = [sys.executable, "-m", "sphtp_benchmarks.half", part.written()]
        done = await trio.run_process(
            command, stdin=b"", capture_stdout=True, stderr=subprocess.DEVNULL
        )
    assert done.returncode == 0
