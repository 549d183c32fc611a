"""Workers in lock step: what is compared, how steps are counted, and real processes on loopback."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sphtp_benchmarks import pair
from sphtp_benchmarks.catalog import System
from sphtp_benchmarks.command import bench
from sphtp_benchmarks.figures import Figures, Sheet
from sphtp_benchmarks.lockstep import steps as steps_module
from sphtp_benchmarks.lockstep.catalog import CASES, LOCKSTEP, SYSTEMS
from sphtp_benchmarks.lockstep.steps import OutOfStepError, Steps, meet
from sphtp_benchmarks.pair import Measurement, MeasurementError, measure
from sphtp_benchmarks.process_task import ProcessTask, TaskRole
from sphtp_benchmarks.text import table_of
from tests.deadline import within_20_seconds

SHORT: dict[str, Any] = {"seconds": 0.05, "warm_up": 0.0, "catalog": LOCKSTEP.name}


def part_of(number: int, case: str = "2x4kB") -> ProcessTask:
    return ProcessTask(system="sphtp", case=case, role=TaskRole.WORK, number=number, **SHORT)


def test_what_is_promised_is_among_the_ratios() -> None:
    sheet = Sheet(LOCKSTEP)
    sheet.note("4x4kB", "sphtp", Figures(steps_per_s=700.0, cpu_us_per_step=8.0))
    sheet.note("4x4kB", "tcp", Figures(steps_per_s=1000.0, cpu_us_per_step=4.0))
    sheet.note("4x4kB", "clear", Figures(steps_per_s=770.0))
    ratios = sheet.ratios()
    assert ratios["4x4kB/tcp"] == 0.7
    assert ratios["clear/4x4kB"] == 1.1
    names = {f"{case}/{theirs}" for case in CASES for theirs in ("tcp", "zmq", "zenoh", "mpi")}
    assert names <= ratios.keys()
    assert table_of("4x4kB", sheet) == [
        ["system", "steps/s", "CPU per step", "ours/theirs"],
        ["sphtp", "700", "8.00 us", ""],
        ["clear", "770", "", ""],
        ["tcp", "1,000", "4.00 us", "0.70"],
    ]


def test_figures_are_those_of_all_workers_together() -> None:
    said = [
        {"steps": 60.0, "measured": 50.0, "seconds": 0.5, "cpu": 0.001},
        {"steps": 60.0, "measured": 40.0, "seconds": 0.4, "cpu": 0.002},
    ]
    figures = Figures.of_steps(said, size=1000)
    assert (figures.steps_per_s, figures.mb_per_s) == (100.0, 0.2)
    assert figures.cpu_us_per_step == pytest.approx(20.0 + 50.0)


def test_workers_end_with_the_step_that_the_first_one_calls_the_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(0, 0.001)
    monkeypatch.setattr(steps_module, "perf_counter", lambda: next(ticks))
    first, second = Steps(part_of(0)), Steps(part_of(1))
    theirs, taken = iter(second), 0
    for array in first:
        taken += 1
        answer = next(theirs)
        assert answer is not array
        first.take(answer)
        second.take(array)
    assert next(theirs, None) is None
    for worker in (first, second):
        worker.done()
        said = json.loads(capsys.readouterr().out)
        assert said["steps"] == said["measured"] == taken
        assert said["seconds"] >= SHORT["seconds"]


def test_an_array_of_another_step_or_shape_is_not_counted() -> None:
    worker = Steps(part_of(1))
    array = next(iter(worker)).copy()
    with pytest.raises(OutOfStepError):
        worker.take(array[:-1])
    array[0] = 1
    with pytest.raises(OutOfStepError):
        worker.take(array)


def test_the_same_array_is_not_filled_twice_in_a_row() -> None:
    worker, seen = Steps(part_of(1)), list[np.ndarray[Any, Any]]()
    for array in worker:
        assert array.nbytes == CASES["2x4kB"].size
        assert not seen or array is not seen[-1]
        seen.append(array)
        if len(seen) == 3:
            break
    assert seen[0] is seen[2]


def test_a_worker_dials_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "told", lambda: [[1, 2, 3], [12, 13], [23], []])
    assert [meet(part_of(number, "4x4kB"), []) for number in range(4)] == [
        [],
        [1],
        [2, 12],
        [3, 13, 23],
    ]


def test_a_system_without_its_launcher_is_absent() -> None:
    there = System("x", "", "trio", "trio", launcher=("python", "-n"))
    assert there.installed
    without = System("x", "", "trio", "trio", launcher=("no-such-launcher",))
    assert not without.installed
    assert without.absence.startswith("no-such-launcher is not installed;")


@within_20_seconds
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("system", ["sphtp", "group"])
async def test_workers_keep_step(system: str) -> None:
    figures = await measure(Measurement("2x4kB", system, **SHORT))
    assert (figures.steps_per_s or 0) > 1
    assert (figures.cpu_us_per_step or 0) > 1
    assert figures.mb_per_s == pytest.approx((figures.steps_per_s or 0) * 2 * 4000 / 1e6)


async def test_workers_that_are_not_in_step_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        def __init__(self, number: int) -> None:
            self.said: dict[str, Any] = {"ports": {"ports": []}, "steps": {"steps": 3.0 + number}}

        async def hear(self, word: str) -> Any:
            return self.said[word]

        async def tell(self, what: Any) -> None:
            pass

    @asynccontextmanager
    async def open_half(part: ProcessTask) -> AsyncIterator[Half]:
        yield Half(part.number)

    monkeypatch.setattr(pair, "open_half", open_half)
    with pytest.raises(MeasurementError, match="not in step"):
        await measure(Measurement("2x4kB", "tcp", **SHORT))


def test_the_verb_prints_a_document_and_leaves_the_clear_out(tmp_path) -> None:
    page = tmp_path / "page.md"
    short = "lockstep --rounds 1 --seconds 0.05 --case 2x400kB --system tcp --json --markdown"
    result = CliRunner().invoke(bench, [*short.split(), str(page)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(row["case"], row["system"]) for row in document["results"]] == [("2x400kB", "tcp")]
    assert document["ratios"]["2x400kB/tcp"] is None
    assert page.read_text().startswith("# Benchmarks of workers in lock step\n")
    assert set(SYSTEMS) >= {"sphtp", "clear", "tcp", "zmq", "zenoh", "mpi"}
