"""One process of a cluster, on any machine: its lines of output, and the ways to end it.

The standard input of a child process is a pipe, which also closes when this process is killed. The
processes of a cluster have the option ``--exit-with-stdin``, and the programs of ``sphtp run`` a
guard, so that they end when the pipe closes. The child has a session of its own, so that Ctrl-C on
a terminal reaches only the supervisor, which ends the processes in order.
"""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trio

from sphtp_client.cluster.place import inherited_from

LINE_LIMIT = 1 << 20
CHUNK = 1 << 16
# The wait for the end of a process is divided into this many parts.
PARTS = 8


@dataclass(frozen=True)
class StopTimeouts:
    """The longest waits for the end of a process, in seconds.

    They begin when its standard input is closed, after SIGTERM, and after SIGKILL.
    """

    close: float = 4.0
    terminate: float = 2.0
    kill: float = 5.0


class ProcessLostError(Exception):
    """The machine or worker of a process is gone or does not reply, so the process is lost."""


class RunningProcess(ABC):
    """A process that a launcher has started, and the three pipes to it."""

    def __init__(self) -> None:
        self._asked = False

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process id on the machine of the process."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """True if the process has ended, or is lost."""

    @abstractmethod
    async def wait(self) -> int:
        """Wait for the end; return the exit code, or minus the number of the signal that killed it.

        Raises ``ProcessLostError`` if the process is lost.
        """

    @abstractmethod
    def lines(self) -> AsyncGenerator[bytes, None]:
        """Iterate over the lines of standard output until it closes."""

    @abstractmethod
    def error_lines(self) -> AsyncGenerator[bytes, None]:
        """Iterate over the lines of standard error until it closes."""

    @abstractmethod
    async def close_input(self) -> None:
        """Close its standard input."""

    @abstractmethod
    async def terminate(self) -> None:
        """Send it SIGTERM."""

    @abstractmethod
    async def kill(self) -> None:
        """Send it SIGKILL."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the pipes. Call it after the process has ended."""

    @property
    def asked(self) -> bool:
        """True if ``stop`` was called before the process ended."""
        return self._asked

    async def stop(self, timeouts: StopTimeouts) -> None:
        """End the process: close its input, then SIGTERM, then SIGKILL, each with a deadline."""
        steps = (
            (self.close_input, timeouts.close),
            (self.terminate, timeouts.terminate),
            (self.kill, timeouts.kill),
        )
        for step, seconds in steps:
            if self.has_ended:
                return
            self._asked = True
            with trio.move_on_after(seconds):  # the machine may not reply
                await step()
            # A time in which this machine stood still costs one part only, since the process also
            # stood still.
            for _ in range(PARTS):
                with trio.move_on_after(seconds / PARTS):
                    with suppress(ProcessLostError):
                        await self.wait()
                if self.has_ended:
                    return


class ChildProcess(RunningProcess):
    """A process of this machine, spawned by exec."""

    def __init__(self, process: trio.Process) -> None:
        super().__init__()
        self._process = process

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        *,
        beginning: bytes = b"",
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Self:
        """Start a process, and write ``beginning`` to its standard input.

        Its environment is ``environment``, or without it that of this process in the form of
        ``inherited_from``; ``variables`` are added. Raises ``OSError`` if the start fails. When
        cancelled, it leaves no process.
        """
        with trio.CancelScope(shield=True):  # a cancelled start would leave a process
            process = await trio.lowlevel.open_process(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=(inherited_from(os.environ) if environment is None else dict(environment))
                | dict(variables or {}),
                cwd=directory,
            )
        child = cls(process)
        if not beginning:
            return child
        try:
            with suppress(trio.BrokenResourceError):  # it has ended; its output has the reason
                await child.write(beginning)
        except BaseException:
            await child.kill()
            await child.aclose()
            with trio.CancelScope(shield=True):
                await process.wait()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        return await self._process.wait()

    def lines(self) -> AsyncGenerator[bytes, None]:
        assert self._process.stdout is not None
        return split_lines(self._process.stdout)

    async def write(self, data: bytes) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(data)

    def error_lines(self) -> AsyncGenerator[bytes, None]:
        assert self._process.stderr is not None
        return split_lines(self._process.stderr)

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                assert pipe is not None
                await pipe.aclose()

    async def close_input(self) -> None:
        stdin = self._process.stdin
        assert isinstance(stdin, trio.lowlevel.FdStream)
        stdin.close()

    async def terminate(self) -> None:
        self._process.terminate()

    async def kill(self) -> None:
        self._process.kill()


async def split_lines(stream: trio.abc.ReceiveStream) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream without line breaks; one over ``LINE_LIMIT`` may be divided."""
    rest = b""
    while chunk := await _receive(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LINE_LIMIT:
            yield rest
            rest = b""
    if rest:
        yield rest


async def _receive(stream: trio.abc.ReceiveStream) -> bytes:
    try:
        return bytes(await stream.receive_some(CHUNK))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""
