"""Scenarios by name."""

import pytest
from click.testing import CliRunner

from sphtp_client.cluster.command import cluster
from sphtp_client.options import FOLDER, ScenarioFile, shipped_scenarios
from sphtp_client.simulation.scenario_file import load_scenario


def test_three_come_with_the_project():
    assert shipped_scenarios() == ["billiard", "gas", "rain"]


@pytest.mark.parametrize("name", ["billiard", "gas", "rain"])
def test_a_name_stands_for_its_file(name):
    path = ScenarioFile().convert(name, None, None)
    assert path == FOLDER / f"{name}.toml"
    assert load_scenario(path).steps > 0


def test_a_file_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gas").write_text("")
    assert ScenarioFile().convert("gas", None, None).read_text() == ""


def test_what_is_neither_is_refused_with_the_names():
    answer = CliRunner().invoke(cluster, ["--scenario", "soup"])
    assert answer.exit_code == 2
    assert "'soup' is neither a file nor one of billiard, gas, rain." in answer.output
