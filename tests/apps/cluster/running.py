"""A running `sphtp cluster`, as tests see it."""

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from sphtp_client.cluster.launcher import ProcessSpec
from sphtp_client.cluster.process import ProcessLostError, RunningProcess, split_lines
from tests.interpreters import ForkedProcess

QUICK = ("--heartbeat", "0.25", "--expiry", "20", "--channel-timeout", "20")
MORTAL = ("--expiry", "1.2", "--channel-timeout", "1.2")
"""Where somebody is killed: others must miss it soon, and no process may stand still for long."""

ENDLESS = "1000000"


class Run:
    """A running `sphtp cluster`; every line it prints is kept."""

    def __init__(self, process: ForkedProcess | trio.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self.lines: list[str] = []
        self.source = split_lines(process.stdout)

    async def line(self, pattern: str) -> str:
        """Read on to the first line that matches."""
        async for line in self.source:
            self.lines.append(line.decode())
            if re.search(pattern, self.lines[-1]):
                return self.lines[-1]
        raise AssertionError(f"no line matches {pattern!r} in\n" + "\n".join(self.lines))

    async def all_running(self, clients: int) -> None:
        for _ in range(clients):
            await self.line(r"client \d: running")

    async def end(self) -> int:
        """Read on to the end; return the exit code."""
        async for line in self.source:
            self.lines.append(line.decode())
        return await self.process.wait()

    def pids(self) -> dict[str, int]:
        found = (re.fullmatch(r"(\w+(?: \d+)?): pid (\d+)", line) for line in self.lines)
        return {match[1]: int(match[2]) for match in found if match}

    def placed_pids(self) -> dict[str, int]:
        """The process ids on the machines where an engine has placed them, the last ones."""
        found = (re.fullmatch(r"(\w+(?: \d+)?): pid (\d+) on \S+", line) for line in self.lines)
        return {match[1]: int(match[2]) for match in found if match}


@asynccontextmanager
async def cluster(scenario: Path, *options: str) -> AsyncIterator[Run]:
    """Run the command in a fork; the processes that it starts are interpreters of their own."""
    arguments = ("cluster", "--scenario", str(scenario), *QUICK, *options)
    process = ForkedProcess.of_module("sphtp", arguments)
    run = Run(process)
    try:
        with trio.fail_after(60):
            yield run
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            await process.wait()
            await run.source.aclose()
            await process.aclose()


async def gone(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, node: str = "127.0.0.1") -> None:
    """Commands of an allocation on this machine; its srun runs what it gets."""
    answers = {
        "srun": SRUN,
        "scontrol": f"#!/bin/sh\necho NodeName=n1 NodeAddr={node} State=IDLE\n",
        "squeue": "#!/bin/sh\n",
    }
    for name, script in answers.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)


class FakeProcess(RunningProcess):
    """Ends after so many seconds with a code; without a code it is lost then."""

    pid = 1

    def __init__(self, seconds: float, code: int | None) -> None:
        super().__init__()
        self._end = trio.current_time() + seconds
        self._code = code
        self._stopped = trio.Event()

    @property
    def has_ended(self) -> bool:
        return self._stopped.is_set() or trio.current_time() >= self._end

    async def wait(self) -> int:
        with trio.move_on_at(self._end):
            await self._stopped.wait()
            return 0
        if self._code is None:
            raise ProcessLostError("its machine is gone")
        return self._code

    async def lines(self) -> AsyncGenerator[bytes, None]:
        lines: tuple[bytes, ...] = ()
        for line in lines:
            yield line

    error_lines = lines

    async def close_input(self) -> None:
        self._stopped.set()

    async def terminate(self) -> None:
        self._stopped.set()

    async def kill(self) -> None:
        self._stopped.set()

    async def aclose(self) -> None:
        pass


class FakeLauncher:
    """Starts these processes, one after the other: their seconds and codes."""

    network = None
    slots = None

    def __init__(self, *ends: tuple[float, int | None], loss_time: float = 0.0) -> None:
        self.loss_time = loss_time
        self._ends = iter(ends)

    async def start(self, _spec: ProcessSpec) -> RunningProcess:
        return FakeProcess(*next(self._ends))
