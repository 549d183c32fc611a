"""Lines on a full disk and to nobody, and how a program is stopped."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from pydantic import TypeAdapter

from sphtp_client import program
from sphtp_client.program import ExitStatus, run_until_stopped, write_line


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


@pytest.fixture
def stdin(monkeypatch) -> Iterator[list[int]]:
    """Yield, in a list, the writing end of what is standard input for the test."""
    reader, writer = os.pipe()
    monkeypatch.setattr(program, "STDIN", reader)
    ends = [writer]
    yield ends
    for end in (reader, *ends):
        os.close(end)


async def test_work_that_ends_by_itself_was_not_stopped(stdin):
    assert await run_until_stopped(trio.lowlevel.checkpoint, with_stdin=True) is None


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (signal.SIGINT, ExitStatus.INTERRUPTED),
        (signal.SIGTERM, ExitStatus.TERMINATED),
        (signal.SIGHUP, ExitStatus.TERMINATED),
        (signal.SIGUSR1, ExitStatus.TERMINATED),
        (signal.SIGUSR2, ExitStatus.TERMINATED),
    ],
)
async def test_a_signal_stops_the_work_and_lets_it_clean_up(number, verdict):
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
                cleaned.append(True)

    with trio.fail_after(5):
        assert await run_until_stopped(work) is verdict
    assert cleaned == [True]


async def test_a_second_signal_does_not_break_the_cleaning_up():
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                os.kill(os.getpid(), signal.SIGINT)
                await trio.testing.wait_all_tasks_blocked()
                cleaned.append(True)

    with trio.fail_after(5):
        assert await run_until_stopped(work) is ExitStatus.INTERRUPTED
    assert cleaned == [True]


async def test_closing_standard_input_stops_the_work(stdin):
    async def work() -> None:
        os.write(stdin[0], b"words that nobody reads\n")
        await trio.testing.wait_all_tasks_blocked()
        os.close(stdin.pop())
        await trio.sleep_forever()

    with trio.fail_after(5):
        assert await run_until_stopped(work, with_stdin=True) is ExitStatus.TERMINATED


async def test_an_empty_file_for_standard_input_stops_the_work(monkeypatch):
    nothing = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(program, "STDIN", nothing)
    with trio.fail_after(5):
        stopped = await run_until_stopped(trio.sleep_forever, with_stdin=True)
    os.close(nothing)
    assert stopped is ExitStatus.TERMINATED


async def test_an_error_of_the_work_leaves_as_it_is():
    async def work() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        await run_until_stopped(work)


async def test_a_signal_that_was_to_be_ignored_is():
    """As `nohup` does it."""

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with trio.fail_after(5):
            assert await run_until_stopped(work) is None
    finally:
        signal.signal(signal.SIGHUP, before)
