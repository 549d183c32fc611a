"""Figures in virtual time: what is promised of them, and that the page says what they are.

Each trial runs once: its promise is held, and so is its line on the page.
"""

import json
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner

from sphtp_benchmarks.command import bench
from sphtp_benchmarks.simulated import catalog, lanes
from sphtp_benchmarks.simulated.bottleneck import BOTTLENECK, Used
from sphtp_benchmarks.simulated.catalog import EXPERIMENTS, Run
from sphtp_benchmarks.simulated.delivery import DELIVERY, ROUND_TRIP, Delivered, measure
from sphtp_benchmarks.simulated.experiment import Experiment, Finding, SimulatedTrial
from sphtp_benchmarks.simulated.heavy_loss import (
    HEAVY_LOSS,
    Endured,
    measure_channel,
    measure_seed_rule,
)
from sphtp_benchmarks.simulated.lanes import LANES_TABLE, Noticed
from sphtp_benchmarks.simulated.page import page, section

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "latency.md"
SEED = 1
LONG = (
    "5 % lost, 3 copies",
    "newreno",
    "cubic",
    "tolerant",
    "5 % lost, 0 copies",
    "20 % lost, 0 copies",
    "20 % lost, 3 copies",
    "1 % lost, 0 copies",
    "1 % lost, 3 copies",
)
STALE = "docs/reference/latency.md is not what the command finds; run `make docs`"


def make(experiment: Experiment, trial: SimulatedTrial) -> Finding:
    """Make a trial, and see that the page has its line where it belongs."""
    finding = trial.measure(SEED)
    *_, line, _ = section(experiment, [finding])
    number = experiment.trials.index(trial)
    assert lines_of(experiment)[number] == line, STALE
    return finding


def lines_of(experiment: Experiment) -> list[str]:
    """Return the lines that the page has in the table of an experiment, without its headings."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {experiment.title}\n")[2]
    text = text.partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def trials(experiment: Experiment) -> pytest.MarkDecorator:
    named = [
        pytest.param(trial, id=trial.name, marks=pytest.mark.soak if is_long(trial.name) else ())
        for trial in experiment.trials
    ]
    return pytest.mark.parametrize("trial", named)


def is_long(name: str) -> bool:
    """What is long tells a quick suite little that the parts' own tests do not."""
    return name in LONG or "flows" in name


def test_copies_deliver_within_a_round_trip() -> None:
    """In brief; the page has more messages, and other losses."""
    check_delivered(measure(0.05, 3, SEED, messages=600))


@pytest.mark.slow
@trials(DELIVERY)
def test_copies_deliver_as_the_page_says(trial: SimulatedTrial) -> None:
    found = make(DELIVERY, trial)
    assert isinstance(found, Delivered)
    check_delivered(found)


def check_delivered(found: Delivered) -> None:
    if found.copies:
        assert found.p99 < ROUND_TRIP or found.loss > 0.05
        assert found.median == pytest.approx(ROUND_TRIP / 2)
    else:
        assert found.p99 > ROUND_TRIP, "without copies a loss costs a round trip"


def most_times_as_long(loss: float) -> float:
    """Most times the seed's time that a channel may take."""
    return 3.0 if loss > 0.7 else 2.0


@pytest.mark.parametrize(
    ("controller", "loss"),
    [("newreno", 0.3), ("cubic", 0.5), ("fixed:2e6", 0.7), ("tolerant", 0.7)],
)
def test_no_controller_makes_a_small_flow_much_slower_than_the_seed(
    controller: str, loss: float
) -> None:
    """In brief; the page has the medians of more."""
    took = median(measure_channel(controller, loss, seed) for seed in range(3))
    by_seed = median(measure_seed_rule(loss, seed) for seed in range(9))
    assert took <= most_times_as_long(loss) * by_seed


@pytest.mark.slow
@pytest.mark.soak
@trials(HEAVY_LOSS)
def test_heavy_loss_costs_at_most_twice_what_it_costs_the_seed(trial: SimulatedTrial) -> None:
    found, seed = make(HEAVY_LOSS, trial), HEAVY_LOSS.trials[0].measure(SEED)
    assert isinstance(found, Endured)
    assert isinstance(seed, Endured)
    for loss, seconds in found.seconds.items():
        assert seconds <= most_times_as_long(loss) * seed.seconds[loss]


@pytest.mark.slow
@trials(BOTTLENECK)
def test_whole_channels_use_and_share_a_bottleneck(trial: SimulatedTrial) -> None:
    found = make(BOTTLENECK, trial)
    assert isinstance(found, Used)
    if found.path.loss:
        is_tolerant = found.path.controller == "tolerant"
        assert (found.used >= 0.7) == is_tolerant
        return
    assert found.used >= 0.85
    # Neither has twice as much. Flows of CUBIC share evenly in the mean, but not in each trial: see
    # docs/explanation/congestion.md, where the first one got 35 to 62 % in nineteen.
    assert found.smallest >= 1 / 3 or found.path.flows == 1
    assert found.queue_mean < 0.85
    # From one half to the other; the mean of both, with which the test of the controllers alone
    # compares the second one, lies half as far away. That of `tolerant`, which runs empty every few
    # seconds, grew by -0.10 to 0.10 with five starts of the second flow.
    assert found.queue_growth < 0.2, "it does not grow without end"
    assert found.dropped < 0.01


@pytest.mark.slow
@trials(LANES_TABLE)
def test_a_transfer_at_most_doubles_what_small_messages_take(trial: SimulatedTrial) -> None:
    found = make(LANES_TABLE, trial)
    assert isinstance(found, Noticed)
    alone, beside = found.alone, found.beside
    assert beside.receipt <= 2 * alone.receipt
    # What is left when the path's own wait is taken off: the packet that is on the line.
    assert beside.delivered - beside.queue - alone.delivered < 0.005
    if found.controller == "tolerant":
        assert beside.delivered <= 2 * alone.delivered


def test_what_the_page_says_around_the_tables_is_fresh() -> None:
    bare = page(Run(SEED, {name: [] for name in EXPERIMENTS}))
    rows = {line for experiment in EXPERIMENTS.values() for line in lines_of(experiment)}
    text = PAGE.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line not in rows] == bare.splitlines(), STALE
    for experiment in EXPERIMENTS.values():
        assert len(lines_of(experiment)) == len(experiment.trials), STALE


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one trial, and of that half a second."""
    monkeypatch.setattr(lanes, "SECONDS", 0.5)
    one = Experiment(**{**vars(LANES_TABLE), "trials": LANES_TABLE.trials[:1]})
    monkeypatch.setitem(catalog.EXPERIMENTS, "lanes", one)


@pytest.mark.usefixtures("_short")
def test_the_verb_prints_a_document_and_writes_a_page(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    command = ["latency", "--case", "lanes", "--json", "--markdown", str(file)]
    result = CliRunner().invoke(bench, command)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["seed"] == 1
    (row,) = document["results"]["lanes"]
    assert row["controller"] == "cubic"
    assert 0.025 < row["alone"]["delivered"] < row["beside"]["delivered"] < 0.2
    assert "| `cubic` | 25 ms → " in file.read_text(encoding="utf-8")


@pytest.mark.usefixtures("_short")
def test_the_verb_prints_a_table() -> None:
    result = CliRunner().invoke(bench, ["latency", "--case", "lanes", "--seed", "2"])
    assert result.exit_code == 0, result.output
    assert "times as long" in result.stdout
    assert "lanes: cubic" in result.stderr


def test_the_verb_refuses_what_is_not_there() -> None:
    result = CliRunner().invoke(bench, ["latency", "--case", "telepathy"])
    assert result.exit_code == 2
    assert "bottleneck" in result.output
