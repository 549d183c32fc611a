"""Streams beside publishers of other systems: what is compared, and real processes on loopback."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from sphtp import Loss
from sphtp.core.stream.events import LossReason
from sphtp_benchmarks import pair
from sphtp_benchmarks.command import bench
from sphtp_benchmarks.figures import Figures, Sheet
from sphtp_benchmarks.meters import MessageTally
from sphtp_benchmarks.pair import Measurement, MeasurementError, measure
from sphtp_benchmarks.process_task import ProcessTask, TaskRole
from sphtp_benchmarks.stream.catalog import CASES, STREAMS
from sphtp_benchmarks.systems import stream
from sphtp_benchmarks.text import share, table_of
from tests.cases import each
from tests.deadline import within_20_seconds

SHORT: dict[str, Any] = {"seconds": 0.05, "warm_up": 0.0, "catalog": "stream"}


@pytest.fixture
def sheet() -> Sheet:
    sheet = Sheet(STREAMS)
    ours = {"delivered": 1.0, "reported": 0.0, "told": 1.0}
    sheet.note("64B", "sphtp", Figures(messages_per_s=900.0, sender_us_per_message=2.0, **ours))
    sheet.note("64B", "zeromq", Figures(messages_per_s=600.0, sender_us_per_message=1.0))
    sheet.note("fanout8", "sphtp", Figures(sender_us_per_message=5.0))
    sheet.note("fanout8", "zeromq", Figures(sender_us_per_message=4.0))
    return sheet


def test_what_is_promised_is_among_the_ratios(sheet: Sheet) -> None:
    ratios = sheet.ratios()
    assert ratios["64B/zeromq"] == 1.5
    assert ratios["fanout8/1"] == 2.5
    assert ratios["fanout8/1/zeromq"] == 4.0
    assert ratios["8KiB/zeromq"] is ratios["slow/pynng"] is ratios["clear/64B"] is None


def test_each_table_says_what_it_compares(sheet: Sheet) -> None:
    assert table_of("64B", sheet) == [
        ["system", "messages/s", "sender's CPU", "delivered", "reported lost", "ours/theirs"],
        ["sphtp", "900", "2.00 us", "100%", "0%", ""],
        ["zeromq", "600", "1.00 us", "", "", "1.50"],
    ]
    assert table_of("fanout8", sheet) == [
        ["system", "sender's CPU", "8/1"],
        ["sphtp", "5.00 us", "2.50"],
        ["zeromq", "4.00 us", "4.00"],
    ]


@each(
    ("value", "text"),
    [(None, ""), (0.0, "0%"), (1.0, "100%"), (0.5, "50.00%"), (1 - 1e-9, "99.99%")],
)
def test_a_share_is_whole_only_when_nothing_is_missing(value: float | None, text: str) -> None:
    assert share(value) == text


def test_a_publication_counts_what_each_receiver_got_and_was_told() -> None:
    sent = {"sent": 1000.0, "cpu": 0.002}
    heard = [
        {"received": 900.0, "reported": 100.0, "measured": 500.0, "seconds": 0.5, "cpu": 0.0009},
        {"received": 500.0, "reported": 0.0, "measured": 250.0, "seconds": 0.5, "cpu": 0.0005},
    ]
    figures = Figures.of_publication(sent, heard, size=2000)
    assert (figures.messages_per_s, figures.mb_per_s) == (750.0, 1.5)
    assert figures.sender_us_per_message == pytest.approx(2.0)
    assert figures.receiver_us_per_message == pytest.approx(1.0)
    assert (figures.delivered, figures.reported, figures.told) == (0.7, 0.05, 0.75)


def test_losses_are_counted_and_taken_out(capsys: pytest.CaptureFixture[str]) -> None:
    tally, message = MessageTally(size=2, warm_up=0.0), b"\0\0"
    items = [message, Loss(5, 9, LossReason.OVERRUN), message, Loss(12, 12, LossReason.WINDOW)]
    assert stream.without_losses([message], tally) == [message]
    assert stream.without_losses(items, tally) == [message, message]
    tally.take([message])
    tally.end()
    assert json.loads(capsys.readouterr().out)["reported"] == 6


class Company:
    """Stands in for processes: keeps their parts, and lets each say the same."""

    def __init__(self, measured: float) -> None:
        heard = {"received": 4.0, "reported": 0.0, "measured": measured, "seconds": 1.0, "cpu": 0.0}
        self.parts: list[ProcessTask] = []
        self._said: dict[str, dict[str, float]] = {
            "port": {"port": 777},
            "sent": {"sent": 4, "cpu": 1.0},
            "received": heard,
        }

    @asynccontextmanager
    async def open_half(self, part: ProcessTask) -> AsyncIterator["Company"]:
        self.parts.append(part)
        yield self

    async def hear(self, word: str) -> dict[str, float]:
        return self._said[word]


async def test_every_receiver_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    company = Company(measured=2.0)
    monkeypatch.setattr(pair, "open_half", company.open_half)
    figures = await measure(Measurement("fanout8", "pynng", **SHORT))
    assert figures.delivered == 1.0
    assert [part.role for part in company.parts] == [TaskRole.PUBLISH] + 8 * [TaskRole.SUBSCRIBE]
    assert [part.port for part in company.parts] == [0] + 8 * [777]
    assert {part.receivers for part in company.parts} == {8}


async def test_what_arrives_within_the_warm_up_is_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair, "open_half", Company(measured=0.0).open_half)
    with pytest.raises(MeasurementError, match="within the warm-up"):
        await measure(Measurement("64B", "pynng", **SHORT))


@within_20_seconds
@pytest.mark.usefixtures("forked")
async def test_a_stream_delivers_all() -> None:
    figures = await measure(Measurement("64B", "sphtp", **SHORT))
    assert (figures.delivered, figures.reported) == (1.0, 0.0)
    assert figures.mb_per_s is not None
    assert figures.messages_per_s == pytest.approx(figures.mb_per_s * 1e6 / CASES["64B"].size)
    assert figures.sender_us_per_message is not None
    assert figures.sender_us_per_message > 0


@within_20_seconds
@pytest.mark.usefixtures("forked")
async def test_a_slow_receiver_hears_of_every_message() -> None:
    figures = await measure(Measurement("slow", "unheld", **SHORT))
    assert figures.told == 1.0


@within_20_seconds
@pytest.mark.usefixtures("forked")
async def test_a_system_that_drops_is_measured_by_what_arrives() -> None:
    figures = await measure(Measurement("64B", "pynng", **SHORT | {"seconds": 0.8}))
    assert figures.delivered is not None
    assert 0 < figures.delivered <= 1
    assert figures.told == figures.delivered


def test_the_verb_prints_a_document_and_writes_a_page(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measured(_: Measurement) -> Figures:
        return Figures(messages_per_s=1000.0, delivered=0.5, reported=0.0, told=0.5)

    monkeypatch.setattr("sphtp_benchmarks.rounds.measure", measured)
    page = tmp_path / "page.md"
    short = "stream --rounds 1 --seconds 0.2 --case 64B --system pynng --json --markdown"
    result = CliRunner().invoke(bench, [*short.split(), str(page)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(row["case"], row["system"]) for row in document["results"]] == [("64B", "pynng")]
    assert [row["delivered"] for row in document["results"]] == [0.5]
    assert {"64B/zeromq", "fanout8/1"} <= set(document["ratios"])
    assert set(document["conditions"]["versions"]) == {"sphtp", "pyzmq", "pynng"}
    assert page.read_text().startswith("# Benchmarks of streams\n")
