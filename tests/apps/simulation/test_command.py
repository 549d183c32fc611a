import pytest
from click.testing import CliRunner, Result

from sphtp_client.simulation import reports
from sphtp_client.simulation.command import client
from sphtp_client.simulation.reports import parse_event
from sphtp_client.simulation.run import run_whole_box
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.state import state_sha256


def call(*options: str) -> Result:
    return CliRunner().invoke(client, options)


def test_alone_it_ends_in_the_state_of_the_reference(gas_file):
    found = call("--alone", "--scenario", str(gas_file), "--json")
    assert found.exit_code == 0
    said = [parse_event(line.encode()) for line in found.stdout.splitlines()]
    (result,) = [event for event in said if isinstance(event, reports.Result)]
    assert result.steps == 30
    assert result.state_sha256 == state_sha256(run_whole_box(load_scenario(gas_file), 30))
    assert isinstance(said[-1], reports.Finished)


def test_people_get_sentences(gas_file):
    found = call("--alone", "--scenario", str(gas_file), "--steps", "3")
    assert found.exit_code == 0
    assert "60 spheres, energy" in found.stdout
    assert found.stdout.endswith("s\n")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            ("--slab", "2", "--slabs", "2"),
            "--slab = 2: must be 0 to 1, because --slabs, the number of them, is 2",
        ),
        (("--slabs", "1000"), "--slabs = 1000: must be 1 to"),
        (("--server", "nonsense"), "server address 'nonsense': allowed is"),
        (("--expiry", "1"), "expiry is 1; it must be more than twice"),
        (("--resend-time", "100"), "resend_time is 100.0; allowed is"),
        (("--qlog", "/nowhere/a.qlog"), "--qlog = /nowhere/a.qlog: No such file or directory"),
        (("--qlog", "a.qlog", "--alone"), "--qlog: a client that simulates --alone has no"),
    ],
)
def test_a_wrong_setting_is_named_and_exits_with_2(gas_file, options, part):
    found = call("--scenario", str(gas_file), *options)
    assert found.exit_code == 2
    assert part in found.stderr


def test_no_server_exits_with_3_and_says_who_was_waited_for(gas_file):
    options = ("--server", "tcp://127.0.0.1:1", "--wait", "0.1", "--json")
    found = call("--scenario", str(gas_file), *options)
    assert found.exit_code == 3
    event = parse_event(found.stdout.encode())
    assert isinstance(event, reports.Failed)
    assert "not registered within 0.1 s: no server answered" in event.message
