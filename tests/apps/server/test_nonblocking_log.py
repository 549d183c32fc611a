"""Lines on a disk that is full, in a pipe that nobody reads, and where nobody is left."""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from sphtp_server.nonblocking_log import MOST_WAITING, NonBlockingLog

LINE = "x" * 99
ROOM = 1050
"""Bytes that a full disk takes: ten lines, and half of another one."""

PIPE = 65_536
"""Bytes that a pipe holds."""


class Pipe:
    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.output: TextIO = os.fdopen(writing, "w")

    def read(self) -> bytes:
        return os.read(self.reading, 1 << 20)

    def close(self) -> None:
        self.output.close()
        os.close(self.reading)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    opened = Pipe()
    yield opened
    opened.close()


@pytest.fixture
def _full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


def make_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)


def test_a_line_is_there_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as output:
        NonBlockingLog(output).write("é")
        assert (tmp_path / "log").read_text(encoding="utf-8") == "é\n"


def test_a_character_that_the_stream_does_not_have_is_spelled_out(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as output:
        NonBlockingLog(output).write("é")
    assert (tmp_path / "log").read_bytes() == b"\\xe9\n"


@pytest.mark.usefixtures("_full_disk")
def test_lines_wait_for_room_on_a_full_disk_and_none_is_cut(tmp_path: Path) -> None:
    lost: list[int] = []
    with (tmp_path / "log").open("w") as output:
        lines = NonBlockingLog(output, lost.append)
        for _ in range(20):
            lines.write(LINE)
        assert (tmp_path / "log").stat().st_size == ROOM
        make_room()
        lines.write("the last")
    assert (tmp_path / "log").read_text().splitlines() == [LINE] * 20 + ["the last"]
    assert not lost


@pytest.mark.usefixtures("_full_disk")
def test_past_the_limit_lines_are_lost_and_counted(tmp_path: Path) -> None:
    lost: list[int] = []
    number = (MOST_WAITING + ROOM) // 100 + 8
    with (tmp_path / "log").open("w") as output:
        lines = NonBlockingLog(output, lost.append)
        for _ in range(number):
            lines.write(LINE)
        make_room()
        lines.write("the last")
    *kept, last = (tmp_path / "log").read_text().splitlines()
    assert (set(kept), last) == ({LINE}, "the last")
    assert lost == [number - len(kept)]
    assert lost[0] > 0


def test_a_reader_that_pauses_holds_nobody_up(pipe: Pipe) -> None:
    lines = NonBlockingLog(pipe.output)
    number = 2 * PIPE // len(LINE)
    for _ in range(number):
        lines.write(LINE)
    text = b""
    while text.count(b"\n") < number:
        text += pipe.read()
        lines.write("more")
    assert text.startswith((LINE.encode() + b"\n") * number)


def test_nobody_reading_any_more_is_no_reason_to_stop(pipe: Pipe) -> None:
    lost: list[int] = []
    lines = NonBlockingLog(pipe.output, lost.append)
    os.close(pipe.reading)
    for _ in range(2 * MOST_WAITING // len(LINE)):
        lines.write(LINE)
    pipe.reading = os.open(os.devnull, os.O_RDONLY)
    assert not lost
