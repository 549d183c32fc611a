"""Lines on a full disk, and to nobody."""

import json
import os
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sphtp_client.lines import write_line


def test_a_full_disk_is_told_once_and_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w") as output:
        for _ in range(3):
            write_line(output, "a line")
        assert os.readlink(f"/proc/self/fd/{output.fileno()}") == os.devnull
    assert capsys.readouterr().err == "/dev/full: No space left on device; no more is written\n"


def test_a_line_steers_no_terminal_and_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"failed": "\x1b[2J \x9b31m \u202eabc \U000e0001"}
    write_line(sys.stdout, TypeAdapter(dict[str, str]).dump_json(said).decode())
    write_line(sys.stdout, f"failed: {said['failed']}\nand more")
    first, second, third = capsys.readouterr().out.splitlines()
    assert json.loads(first) == said
    assert first.isprintable()
    assert second == r"failed: \u001b[2J \u009b31m \u202eabc \udb40\udc01"
    assert third == "and more"


def test_nobody_reading_is_not_worth_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        for _ in range(3):
            write_line(output, "a line")
    assert capsys.readouterr().err == ""
