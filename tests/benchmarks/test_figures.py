"""Medians, ratios of medians, what is absent, and how it is all written down."""

import json
from itertools import pairwise
from typing import Any

import pytest

from sphtp_benchmarks import catalog
from sphtp_benchmarks.catalog import CASES, SYSTEMS, System
from sphtp_benchmarks.conditions import conditions, cpu_model
from sphtp_benchmarks.figures import Figures, Sheet
from sphtp_benchmarks.page import page
from sphtp_benchmarks.rounds import Plan

PROMISED = ("64B/enet", "64KiB/enet", "64KiB/zeromq", "1200/aioquic", "rtt/udp")


def plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "rounds": 3,
        "seconds": 1.0,
        "cases": tuple(CASES),
        "systems": tuple(SYSTEMS),
    }
    return Plan(**(settings | changes))


@pytest.fixture
def without_enet(monkeypatch):
    missing = System("enet", "ENet", "no_such_package_as_this", "pyenet")
    monkeypatch.setitem(catalog.SYSTEMS, "enet", missing)


@pytest.fixture
def sheet() -> Sheet:
    sheet = Sheet()
    for rate in (100.0, 900.0, 300.0):
        sheet.note("64B", "sphtp", Figures(messages_per_s=rate, mb_per_s=rate / 10))
    for rate in (150.0, 160.0):
        sheet.note("64B", "enet", Figures(messages_per_s=rate, mb_per_s=1.0))
    sheet.note("rtt", "sphtp", Figures(rtt_p50_us=30.0, rtt_p99_us=90.0))
    sheet.note("rtt", "udp", Figures(rtt_p50_us=20.0, rtt_p99_us=10.0))
    return sheet


def test_a_stream_is_measured_in_messages_bytes_and_processor_time():
    sent = {"sent": 1000, "cpu": 0.003}
    heard = {"received": 1000, "measured": 500, "seconds": 0.25, "cpu": 0.001}
    figures = Figures.of_stream(sent, heard, size=50_000)
    assert (figures.messages_per_s, figures.mb_per_s) == (2000.0, 100.0)
    assert figures.cpu_us_per_message == pytest.approx(4.0)


def test_rows_hold_medians_and_their_rounds(sheet):
    row = sheet.rows()[0].document()
    assert (row["system"], row["case"]) == ("sphtp", "64B")
    assert (row["messages_per_s"], row["mb_per_s"], row["rtt_p50_us"]) == (300.0, 30.0, None)
    assert [each["messages_per_s"] for each in row["rounds"]] == [100.0, 900.0, 300.0]


def test_ratios_are_those_of_medians_and_null_without_one_of_the_two(sheet):
    ratios = sheet.ratios()
    assert ratios["64B/enet"] == pytest.approx(300 / 155)
    assert ratios["rtt/udp"] == 1.5
    assert ratios["64KiB/zeromq"] is None
    assert set(PROMISED) <= set(ratios)
    assert "1200/zeromq" not in ratios


def test_bytes_are_compared_where_messages_differ_in_size():
    sheet = Sheet()
    sheet.note("64KiB", "sphtp", Figures(messages_per_s=10.0, mb_per_s=60.0))
    sheet.note("64KiB", "enet", Figures(messages_per_s=10.0, mb_per_s=20.0))
    assert sheet.ratios()["64KiB/enet"] == 3.0
    assert CASES["64KiB"].size_for("enet") == 32_768
    assert CASES["64KiB"].size_for("zeromq") == 65_536


def test_a_system_that_is_not_installed_is_named_and_not_measured(without_enet):
    chosen = plan(cases=("64B",))
    assert (
        chosen.absent()["enet"]
        == "pyenet is not installed; pip install --editable '.[bench]' brings it"
    )
    assert "enet" not in [task.system for task in chosen.tasks(1)]
    assert ("64B", "enet") in chosen.wanted()
    assert conditions(chosen)["versions"]["pyenet"] is None


def test_a_plan_narrows_to_what_is_wanted():
    chosen = plan(cases=("rtt", "64B"), systems=("udp", "sphtp"), seconds=0.4)
    assert chosen.wanted() == [("64B", "sphtp"), ("rtt", "sphtp"), ("rtt", "udp")]
    assert [task.warm_up for task in chosen.tasks(1)] == [0.1, 0.1, 0.1]
    assert chosen.absent() == {}


def test_each_round_begins_with_another_system():
    """Else one of them would always come right behind the one that heats the machine most."""
    chosen = plan(cases=("64B", "rtt"), systems=("sphtp", "tcp", "udp"))
    orders = [[(task.case, task.system) for task in chosen.tasks(number)] for number in (1, 2, 3)]
    assert all(sorted(order) == sorted(chosen.wanted()) for order in orders)
    assert [system for case, system in orders[0] if case == "rtt"] == ["sphtp", "tcp", "udp"]
    assert [system for case, system in orders[1] if case == "rtt"] == ["tcp", "udp", "sphtp"]
    assert [case for case, _ in orders[2]] == [case for case, _ in orders[0]]


def test_the_document_is_json_with_conditions(sheet):
    document = json.loads(json.dumps(sheet.document(conditions(plan()))))
    assert set(document) == {"conditions", "absent", "failures", "results", "ratios"}
    assert {"python", "cpu_count", "kernel", "versions", "date"} <= set(document["conditions"])
    assert document["conditions"]["versions"].keys() >= {"sphtp", "pyenet", "pyzmq", "aioquic"}


def test_the_page_has_conditions_results_and_what_is_missing(sheet, without_enet):
    sheet.absent["zeromq"] = "pyzmq is not installed"
    sheet.failures.append("64B tcp, round 2: receiver ended: oh no")
    written = page(sheet, conditions(plan()))
    assert "| sphtp | 300 | 30.0 |  |\n" in written
    assert "| enet | 155 | 1.00 | 1.94 |\n" in written
    assert "| zeromq (absent) |  |  |  |\n" in written
    assert "| udp | 20.0 us | 10.0 us | 1.50 |\n" in written
    assert "| each figure | median of 3 rounds of 1 s each |" in written
    assert "- zeromq is absent: pyzmq is not installed\n" in written
    assert "- failed: 64B tcp, round 2: receiver ended: oh no\n" in written
    assert "## 1200" not in written
    assert "## 64KiB" not in written


def test_a_table_has_as_many_cells_in_every_line(sheet):
    lines = page(sheet, conditions(plan())).splitlines()
    for above, below in pairwise(lines):
        if above.startswith("|") and below.startswith("|"):
            assert above.count("|") == below.count("|")


def test_the_processor_has_a_name_where_the_kernel_tells_one(tmp_path):
    info = tmp_path / "cpuinfo"
    assert cpu_model(info)
    info.write_text("processor\t: 0\nmodel name\t: A Fast One\n")
    assert cpu_model(info) == "A Fast One"
