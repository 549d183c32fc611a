"""A started program: what it says, line by line, and signals to it by its pid."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import trio

from sphtp_client.cluster.process import split_lines

DEADLINE = 20.0
"""Seconds that any one wait may take; a case that meets it has failed."""

AGAIN = 0.05
"""Seconds after which something is looked at again that nobody tells us of."""

EVERYDAY = {"sending", "settled", "received", "census"}
"""What programs say all the time, and what a story leaves out."""

Line = dict[str, Any]


class Program:
    """A running program, and every line that it has said so far.

    ``changed`` is called after each line.
    """

    def __init__(self, name: str, process: trio.Process, changed: Callable[[], None]) -> None:
        self.name = name
        self.process = process
        self.lines: list[Line] = []
        self.complaints: list[str] = []
        self.was_killed = False
        self._changed = changed
        self._news = trio.Event()
        self._is_over = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def has_failed(self) -> bool:
        """Whether it ended badly, and not because it was killed."""
        return not self.was_killed and self.process.poll() not in (None, 0)

    def kill(self) -> None:
        self.was_killed = True
        self.process.send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def end(self) -> None:
        """Kill it if it is still there; in any case it is gone then."""
        with trio.CancelScope(shield=True):
            if self.is_alive:
                self.process.kill()
            await self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    await pipe.aclose()

    async def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(command.encode() + b"\n")

    async def ended(self) -> int:
        """Wait for its end; return the exit code, or minus the number of the signal."""
        with self._patience("its end"):
            return await self.process.wait()

    def of(self, event: str, *, after: int = 0, **facts: Any) -> list[Line]:
        """What it has said of an event with these facts, from its line number ``after`` on."""
        wanted = facts.items()
        return [
            line for line in self.lines[after:] if line["event"] == event and wanted <= line.items()
        ]

    async def heard(self, event: str, *, after: int = 0, **facts: Any) -> Line:
        """Wait until it has said so."""
        with self._patience(f"{event} {facts or ''}"):
            while not (found := self.of(event, after=after, **facts)):
                assert not self._is_over, self.story(f"it ended without {event} {facts or ''}")
                await self._news.wait()
        return found[0]

    async def hear(self) -> None:
        """Take lines until it closes its output."""
        assert self.process.stdout is not None
        await self._take(split_lines(self.process.stdout))

    async def follow(self, log: Path) -> None:
        """Take lines from a file that it writes in place of standard output, until it ends."""
        await self._take(self._lines_of(log))

    async def _take(self, lines: AsyncIterator[bytes]) -> None:
        async for text in lines:
            self.lines.append(json.loads(text))
            self._tell()
        self._is_over = True
        self._tell()

    async def _lines_of(self, log: Path) -> AsyncIterator[bytes]:
        rest, place, was_alive = b"", 0, True
        while was_alive:
            was_alive = self.is_alive
            more = read_from(log, place)
            place += len(more)
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                yield line
            await trio.sleep(AGAIN)

    async def hear_complaints(self) -> None:
        assert self.process.stderr is not None
        async for text in split_lines(self.process.stderr):
            self.complaints.append(text.decode(errors="replace"))

    def story(self, what: str) -> str:
        last = [json.dumps(line) for line in self.lines if line["event"] not in EVERYDAY]
        title = f"{self.name} (pid {self.pid}): {what}"
        return "\n".join([title, *last[-20:], *self.complaints[-20:]])

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
        self._changed()

    def _patience(self, what: str) -> AbstractContextManager[None]:
        return patience(lambda: self.story(f"waited {DEADLINE:g} s for {what}"))


@contextmanager
def patience(story: Callable[[], str]) -> Iterator[None]:
    """Fail with a story when the block takes longer than the deadline."""
    with trio.move_on_after(DEADLINE) as scope:
        yield
    if scope.cancelled_caught:
        raise AssertionError(story())


async def start(
    nursery: trio.Nursery,
    name: str,
    command: Sequence[str],
    *,
    changed: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] | None = None,
    log: Callable[[int], Path] | None = None,
) -> Program:
    """Start a program, and tasks that hear it. Whoever starts it has to ``end`` it.

    ``log`` tells, by the process id, which file it writes in place of standard output.
    """
    given = environment or {}
    print(f"{name}:", *(f"{key}={text}" for key, text in given.items()), shlex.join(command))
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **given},
    )
    program = Program(name, process, changed)
    if log is None:
        nursery.start_soon(program.hear)
    else:
        nursery.start_soon(program.follow, log(program.pid))
    nursery.start_soon(program.hear_complaints)
    return program


def read_from(log: Path, place: int) -> bytes:
    """Read the end of a file that may not be there yet, or any more."""
    try:
        with log.open("rb") as file:
            file.seek(place)
            return file.read()
    except FileNotFoundError:
        return b""
