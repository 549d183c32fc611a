"""The verb that measures idle channels, with few of them, in real processes."""

import json

import pytest
from click.testing import CliRunner

from sphtp_benchmarks.command import bench
from sphtp_benchmarks.company import measure as module
from sphtp_benchmarks.company.measure import Company, measure
from sphtp_benchmarks.company.task import CompanySide, CompanyTask
from sphtp_benchmarks.pair import MeasurementError
from tests.deadline import within_20_seconds

TASK = CompanyTask(side=CompanySide.HOST, channels=10, seconds=0.02, interval=0.05)


def test_a_task_survives_its_writing():
    assert CompanyTask.read(TASK.written()) == TASK


@within_20_seconds
@pytest.mark.usefixtures("forked")
async def test_memory_and_rates_are_measured():
    steps: list[str] = []
    found = await measure(TASK, 1, steps.append)
    assert steps == ["round 1/1", "memory, traced"]
    assert found.channels == 10
    assert 5_000 < found.traced_bytes < 32_000
    assert found.alone_per_s > 1000
    assert found.kept == pytest.approx(found.beside_per_s / found.alone_per_s)
    assert 0 <= found.idle_cpu < 1


@within_20_seconds
@pytest.mark.usefixtures("forked")
async def test_a_process_that_fails_is_quoted(monkeypatch):
    monkeypatch.setattr(module, "MODULE", "sphtp_benchmarks.company.nobody")
    with pytest.raises(MeasurementError, match=r"guest ended: .*nobody"):
        await measure(TASK, 1, lambda _: None)


@pytest.fixture
def _measured(monkeypatch):
    async def fake(task, rounds, starting):
        starting(f"round {rounds}/{rounds}")
        said = {"bytes": 20_480.0, "alone": 1000.0, "beside": 900.0, "idle": 0.06}
        return Company.of(task.channels, [said] * rounds, {"bytes": 10_240.0})

    monkeypatch.setattr("sphtp_benchmarks.company.command.measure", fake)


@pytest.mark.usefixtures("_measured")
def test_the_verb_prints_a_document():
    result = CliRunner().invoke(bench, ["company", "--channels", "7", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["results"] == {
        "channels": 7,
        "resident_bytes": 20_480.0,
        "traced_bytes": 10_240.0,
        "alone_per_s": 1000.0,
        "beside_per_s": 900.0,
        "kept": 0.9,
        "idle_cpu": 0.06,
    }
    assert document["conditions"]["rounds"] == 3
    assert not result.stderr


@pytest.mark.usefixtures("_measured")
def test_the_verb_prints_what_it_found():
    result = CliRunner().invoke(bench, ["company"])
    assert "memory of each: 20.0 KiB resident, 10.0 KiB traced" in result.stdout
    assert "90 % of it" in result.stdout
    assert "round 3/3" in result.stderr


def test_the_verb_says_why_there_is_nothing(monkeypatch):
    async def fail(*_):
        raise MeasurementError("host ended: without a word")

    monkeypatch.setattr("sphtp_benchmarks.company.command.measure", fail)
    result = CliRunner().invoke(bench, ["company"])
    assert result.exit_code == 3
    assert "without a word" in result.stderr
