"""Recovery times: what is promised of them, and that the page says what they are."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sphtp_benchmarks.command import bench
from sphtp_benchmarks.recovery.page import cells, page
from sphtp_benchmarks.recovery.trial import TRIALS, Recovery, RecoveryTrial, make

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "recovery.md"
SEED = 1
STALE = "docs/reference/recovery.md is not what the command finds; run `make docs`"

SHORT = [one for one in TRIALS if (one.profile, one.loss, one.receivers) == ("lan", 0.1, 1)]
LONG = [pytest.param(one, marks=pytest.mark.soak) for one in TRIALS if one not in SHORT]


@pytest.mark.slow
@pytest.mark.parametrize("trial", [*SHORT, *LONG], ids=lambda trial: trial.name)
def test_what_is_lost_is_recovered_in_time(trial: RecoveryTrial) -> None:
    found = make(trial, SEED)
    line = "| " + " | ".join(cells(found)) + " |"
    assert line in PAGE.read_text(encoding="utf-8"), STALE
    if trial.profile == "um":
        return
    assert found.loss_events == 0
    if (trial.loss, trial.receivers) == (0.1, 1):
        assert found.p99_ms <= 300
    if (trial.loss, trial.receivers) == (0.3, 20):
        assert found.p99_ms <= 350


def test_what_the_page_says_around_the_table_is_fresh() -> None:
    rows = {line for line in PAGE.read_text(encoding="utf-8").splitlines() if " ms | " in line}
    assert len(rows) == len(TRIALS), STALE
    bare = page([], SEED)
    kept = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line not in rows]
    assert kept == bare.splitlines(), STALE


def test_the_verb_prints_a_document_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = make(SHORT[0], SEED, 200)
    monkeypatch.setattr("sphtp_benchmarks.recovery.command.make", lambda *_: short)
    file = tmp_path / "page.md"
    command = ["recovery", "--profile", "lan", "--json", "--markdown", str(file)]
    result = CliRunner().invoke(bench, command)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [Recovery(**row) for row in document["recovery"]] == [short] * 6
    assert file.read_text(encoding="utf-8") == page([short] * 6, SEED)
    table = CliRunner().invoke(bench, ["recovery", "--receivers", "1"])
    assert "NAKs per loss" in table.stdout.replace("\n", " ") or "NAKs" in table.stdout
