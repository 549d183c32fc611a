"""What is refused before anything starts, by name and with exit code 2."""

import pytest
import trio
from click.testing import CliRunner

from sphtp_client.cluster.command import cluster


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch):
    def start(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(trio, "run", start)


def refused(*options: str) -> str:
    result = CliRunner().invoke(cluster, options)
    assert result.exit_code == 2, result.output
    return result.output


def test_a_scenario_with_nonsense_names_file_key_and_value(gas_file):
    gas_file.write_text(gas_file.read_text().replace("radius = 0.015", "radius = -1.0"))
    text = refused("--scenario", str(gas_file))
    assert str(gas_file) in text
    assert "spheres[0].radius = -1.0" in text


def test_an_unknown_key_is_named(gas_file):
    gas_file.write_text('colour = "red"\n' + gas_file.read_text())
    assert "colour" in refused("--scenario", str(gas_file))


def test_more_clients_than_slabs_name_what_is_allowed(gas_file):
    text = refused("--scenario", str(gas_file), "--clients", "1000")
    assert "--clients = 1000: must be 1 to " in text


def test_a_scenario_that_is_not_there_is_named():
    assert "nowhere.toml" in refused("--scenario", "nowhere.toml")


def test_timers_that_contradict_each_other_are_explained(gas_file):
    text = refused("--scenario", str(gas_file), "--heartbeat", "3", "--expiry", "2")
    assert "expiry is 2; it must be more than twice the longest heartbeat interval, 3.3" in text


def test_a_directory_for_logs_that_cannot_be_made_is_named(gas_file):
    path = gas_file / "logs"
    assert f"--qlog = {path}: Not a directory" in refused(
        "--scenario", str(gas_file), "--qlog", str(path)
    )


def test_a_resend_time_beyond_its_range_is_explained(gas_file):
    text = refused("--scenario", str(gas_file), "--resend-time", "61")
    assert "resend_time is 61.0; allowed is 0.001 to 60" in text


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--clients", "-1"),
        ("--servers", "0"),
        ("--servers", "65"),
        ("--steps", "0"),
        ("--loss", "1"),
        ("--loss", "-0.1"),
        ("--duplicate", "1"),
        ("--reorder", "-0.1"),
        ("--channel-timeout", "0"),
    ],
)
def test_an_option_out_of_range_is_named(gas_file, option, value):
    text = refused("--scenario", str(gas_file), option, value)
    assert f"'{option}'" in text
    assert value in text
