"""The verbs on recordings: what they refuse, and how they say it."""

import json

import pytest
from click.testing import CliRunner

from sphtp_client.recording.record import record
from sphtp_client.recording.replay import replay


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--stream", "nonsense"), "allowed is HOST:PORT/TOPIC"),
        (("--topic", "a*b"), "a*b"),
        (("--seconds", "0"), "--seconds"),
    ],
)
def test_a_wrong_option_of_record_is_named(options, part, tmp_path):
    found = CliRunner().invoke(record, [str(tmp_path / "a.mcap"), *options])
    assert found.exit_code == 2
    assert part in found.stderr


def test_a_file_that_exists_is_kept(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"precious")
    found = CliRunner().invoke(record, [str(path), "--server", "tcp://127.0.0.1:1"])
    assert (found.exit_code, path.read_bytes()) == (2, b"precious")
    assert "--force replaces it" in found.stderr


def test_a_file_that_is_no_recording_is_named(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"no recording")
    found = CliRunner().invoke(replay, [str(path)])
    assert found.exit_code == 3
    assert "does not begin as MCAP does" in found.stderr
    missing = CliRunner().invoke(replay, [str(tmp_path / "b.mcap"), "--json"])
    assert missing.exit_code == 3
    assert json.loads(missing.stdout)["event"] == "failed"
