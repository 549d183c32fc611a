"""The verbs on recordings: what they refuse, and how they say it."""

import csv
import json
from io import BytesIO

import numpy as np
import pytest
from click.testing import CliRunner

from sphtp_client.recording.convert import convert
from sphtp_client.recording.mcap_file import RecordingWriter
from sphtp_client.recording.record import record
from sphtp_client.recording.replay import replay
from sphtp_client.recording.values import encode_message, fields_of


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


def test_a_recording_becomes_lines_of_json_and_a_table(tmp_path):
    path, output = tmp_path / "a.mcap", tmp_path / "a.csv"
    with path.open("wb") as file:
        writer = RecordingWriter(file)
        for topic in ("state", "other"):
            channel = writer.add_channel(f"{topic}/ada", {}, {"name": topic, "peer": "ada"})
            for number in range(2):
                value = {"x": np.array([0.5, number]), "ok": True} if topic == "state" else number
                data = encode_message(value)
                writer.add_message(channel, number, (number + 1) * 500_000_000, data)
        writer.close()
    found = CliRunner().invoke(convert, [str(path), "--to", "jsonl"])
    assert found.exit_code == 0
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert lines[0] == {
        "time": 0.5, "topic": "state", "peer": "ada", "number": 0,
        "value": {"x": {"dtype": "<f8", "shape": [2], "data": [0.5, 0.0]}, "ok": True},
    }  # fmt: skip
    assert lines[3]["value"] == 1
    found = CliRunner().invoke(convert, [str(path), "--to", "csv", "--output", str(output)])
    assert found.exit_code == 0
    with output.open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["x[1]"] for row in table] == ["0.0", "1.0", "", ""]
    assert [row["value"] for row in table] == ["", "", "0", "1"]
    assert fields_of([{"a": 1}, 2]) == [("value[0].a", 1), ("value[1]", 2)]
    assert [row["time"] for row in table] == ["0.5", "1.0", "0.5", "1.0"]


def test_the_conversion_of_a_cut_file_says_where_it_is_cut(tmp_path):
    path = tmp_path / "a.mcap"
    file = BytesIO()
    RecordingWriter(file).close()
    path.write_bytes(file.getvalue()[:-1])
    found = CliRunner().invoke(convert, [str(path), "--to", "jsonl"])
    assert found.exit_code == 0
    assert "the file is cut: its last whole record ends at byte" in found.stderr


def test_a_message_of_none_is_a_row_as_any_other(tmp_path):
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = RecordingWriter(file)
        channel = writer.add_channel("state/ada", {}, {"name": "state", "peer": "ada"})
        for number, value in enumerate((1, None, 2)):
            writer.add_message(channel, number, 0, encode_message(value))
        writer.add_message(channel, 3, 0, b'{"value": {"float": "none"}}')
        writer.close()
    found = CliRunner().invoke(convert, [str(path), "--to", "jsonl"])
    assert [json.loads(line)["value"] for line in found.stdout.splitlines()] == [1, None, 2]
    assert found.stderr == "3 messages\n"
