"""One child process: spawned by exec, read line by line, ended by its input, SIGTERM or SIGKILL.

The child holds the reading end of a pipe as its standard input and ends when that closes, which
also happens when this process is killed. It has a session of its own, so that Ctrl-C on a terminal
reaches only the supervisor, which ends the processes in the right order.
"""

import os
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

LINE_LIMIT = 1 << 20
CHUNK = 1 << 16
# The parts in which a child is waited for.
PARTS = 8
# The processes share few cores, and each already keeps one busy.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NOT_THEIRS = "SPHTP_"


@dataclass(frozen=True)
class StopTimeouts:
    """Seconds for which a child may run on after its input closed, SIGTERM and SIGKILL."""

    close: float = 4.0
    terminate: float = 2.0
    kill: float = 5.0


class ChildProcess:
    """A running process and the three pipes to it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._asked = False

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> "ChildProcess":
        """Start a process; raises OSError when that is impossible.

        ``variables`` are added to the environment that it inherits; ``environment`` is all of it.
        """
        with trio.CancelScope(shield=True):  # a process half started would be nobody's to end
            process = await trio.lowlevel.open_process(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=(inherited() if environment is None else dict(environment))
                | dict(variables or {}),
                cwd=directory,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def asked(self) -> bool:
        """True if the supervisor ended the process."""
        return self._asked

    async def wait(self) -> int:
        """Wait for the end; return the exit code, or minus the number of the signal."""
        return await self._process.wait()

    def lines(self) -> AsyncGenerator[bytes, None]:
        """Iterate over the lines of standard output until it closes."""
        assert self._process.stdout is not None
        return split_lines(self._process.stdout)

    async def write(self, data: bytes) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(data)

    def error_lines(self) -> AsyncGenerator[bytes, None]:
        """Iterate over the lines of standard error until it closes."""
        assert self._process.stderr is not None
        return split_lines(self._process.stderr)

    async def aclose(self) -> None:
        """Close the pipes, once the process has ended."""
        with trio.CancelScope(shield=True):
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                assert pipe is not None
                await pipe.aclose()

    async def stop(self, timeouts: StopTimeouts) -> None:
        """End it: close its input, then SIGTERM, then SIGKILL, each with a deadline."""
        steps = (
            (self._close, timeouts.close),
            (self._process.terminate, timeouts.terminate),
            (self._process.kill, timeouts.kill),
        )
        for step, seconds in steps:
            if self._process.returncode is not None:
                return
            self._asked = True
            step()
            # Where this process stood still for seconds, so did its child: that is one part.
            for _ in range(PARTS):
                with trio.move_on_after(seconds / PARTS):
                    await self._process.wait()
                if self._process.returncode is not None:
                    return

    def _close(self) -> None:
        stdin = self._process.stdin
        assert isinstance(stdin, trio.lowlevel.FdStream)
        stdin.close()


def inherited() -> dict[str, str]:
    """Return the environment of our own programs, which get their settings as options.

    It is ours without settings of SphTP.
    """
    return without_settings(os.environ) | _ONE_THREAD


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without settings of SphTP."""
    return {key: text for key, text in environ.items() if not key.startswith(_NOT_THEIRS)}


async def split_lines(stream: trio.abc.ReceiveStream) -> AsyncGenerator[bytes, None]:
    """Cut a stream into lines without their ends; a line over the limit is cut into several."""
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
