"""Lines on a full disk, and to nobody."""

import os
from pathlib import Path

import pytest

from sphtp_client.lines import write_line


def test_a_full_disk_is_told_once_and_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w") as output:
        for _ in range(3):
            write_line(output, "a line")
        assert os.readlink(f"/proc/self/fd/{output.fileno()}") == os.devnull
    assert capsys.readouterr().err == "/dev/full: No space left on device; no more is written\n"


def test_nobody_reading_is_not_worth_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        for _ in range(3):
            write_line(output, "a line")
    assert capsys.readouterr().err == ""
