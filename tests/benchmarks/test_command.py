"""The verb from end to end, with the system that takes the least time."""

import json

from click.testing import CliRunner

from sphtp_benchmarks.command import bench
from sphtp_benchmarks.figures import Figures

SHORT = "channel --rounds 1 --seconds 0.05 --case rtt --system udp"


def test_the_verb_prints_a_document_and_writes_a_page(tmp_path):
    page = tmp_path / "page.md"
    result = CliRunner().invoke(bench, [*SHORT.split(), "--json", "--markdown", str(page)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [row["system"] for row in document["results"]] == ["udp"]
    assert document["ratios"]["rtt/udp"] is None
    assert "| udp | " in page.read_text()


def test_the_verb_prints_a_table(monkeypatch):
    async def measured(task):
        return Figures(rtt_p50_us=20.0, rtt_p99_us=40.0)

    monkeypatch.setattr("sphtp_benchmarks.rounds.measure", measured)
    result = CliRunner().invoke(bench, SHORT.split())
    assert result.exit_code == 0, result.output
    assert "round trip p50" in result.stdout
    assert "round 1/1  rtt udp" in result.stderr


def test_the_verb_refuses_what_is_not_there():
    result = CliRunner().invoke(bench, ["channel", "--system", "carrier-pigeon"])
    assert result.exit_code == 2
    assert "enet" in result.output
