"""One measurement: processes, spawned alike for every system, and a deadline."""

import json
import sys
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import trio

from sphtp.shell.lifetime import running
from sphtp_benchmarks.catalog import CHANNELS, TrafficPattern, find_program
from sphtp_benchmarks.catalogs import CATALOGS
from sphtp_benchmarks.figures import Figures
from sphtp_benchmarks.process_task import ProcessTask, TaskRole
from sphtp_client.cluster.process import ChildProcess, StopTimeouts

GRACE: Final = 15.0  # seconds for starting, and for what is still under way at the end
LAST_WORDS: Final = 1.0  # seconds for the last lines on standard error of an ended process
PATIENCE: Final = StopTimeouts(close=1.0, terminate=1.0, kill=5.0)

ALLOCATOR: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
}
"""Variables for glibc, the same for every system. By default it gives freed memory back to the
kernel from 128 KiB on, and takes it again page by page, which with messages of 64 KiB is up to a
third of the processor time. A program that moves such messages sets these variables for itself."""


class MeasurementError(Exception):
    """A measurement without a figure; the message has the cause."""


@dataclass(frozen=True)
class Measurement:
    """A measurement to make; times in seconds."""

    case: str
    system: str
    seconds: float
    warm_up: float
    catalog: str = CHANNELS.name

    def part(self, role: TaskRole) -> ProcessTask:
        """Return the task of one of the processes."""
        return ProcessTask(
            system=self.system,
            case=self.case,
            role=role,
            seconds=self.seconds,
            warm_up=self.warm_up,
            catalog=self.catalog,
        )


async def measure(task: Measurement, grace: float = GRACE) -> Figures:
    """Make a measurement. Raises ``MeasurementError``. No process remains, whatever happens."""
    work = WORK[CATALOGS[task.catalog].cases[task.case].traffic]
    with trio.move_on_after(task.warm_up + task.seconds + grace):
        return await work(task)
    raise MeasurementError(f"not done {grace:.0f} s after it should have been")


async def _stream(task: Measurement) -> Figures:
    waiting = task.part(TaskRole.RECEIVE)
    async with open_half(waiting) as receiver:
        port = int((await receiver.hear("port"))["port"])
        async with open_half(replace(task.part(TaskRole.SEND), port=port)) as sender:
            sent = await sender.hear("sent")
            heard = await receiver.hear("received")
    if heard["received"] != sent["sent"]:
        raise MeasurementError(f"{heard['received']} of {sent['sent']} messages arrived")
    if not heard["measured"]:
        raise MeasurementError("everything arrived within the warm-up")
    return Figures.of_stream(sent, heard, waiting.size)


async def _round_trips(task: Measurement) -> Figures:
    async with open_half(task.part(TaskRole.ECHO)) as echo:
        port = int((await echo.hear("port"))["port"])
        async with open_half(replace(task.part(TaskRole.PING), port=port)) as pinger:
            return Figures.of_round_trips(await pinger.hear("p50"))


async def _publication(task: Measurement) -> Figures:
    publishing = task.part(TaskRole.PUBLISH)
    async with open_half(publishing) as sender, AsyncExitStack() as stack:
        port = int((await sender.hear("port"))["port"])
        subscribing = replace(task.part(TaskRole.SUBSCRIBE), port=port)
        receivers = [
            await stack.enter_async_context(open_half(subscribing))
            for _ in range(publishing.receivers)
        ]
        sent = await sender.hear("sent")
        heard = [await receiver.hear("received") for receiver in receivers]
    if not all(each["measured"] for each in heard):
        raise MeasurementError("everything arrived within the warm-up")
    return Figures.of_publication(sent, heard, publishing.size)


async def _lock_step(task: Measurement) -> Figures:
    part = task.part(TaskRole.WORK)
    launcher = CATALOGS[task.catalog].systems[task.system].launcher
    work = partial(_launched, launcher) if launcher else _workers
    said = await work(part)
    if len({each["steps"] for each in said}) != 1:
        raise MeasurementError(f"not in step: {[each['steps'] for each in said]} steps")
    return Figures.of_steps(said, part.size)


async def _workers(part: ProcessTask) -> Sequence[Mapping[str, float]]:
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(open_half(replace(part, number=number)))
            for number in range(part.workers)
        ]
        ports = [(await worker.hear("ports"))["ports"] for worker in workers]
        for worker in workers:
            await worker.tell(ports)
        return [await worker.hear("steps") for worker in workers]


async def _launched(launcher: Sequence[str], part: ProcessTask) -> Sequence[Mapping[str, float]]:
    """Let a launcher start the workers; the first of them reports for all."""
    module = f"sphtp_benchmarks.systems.{part.module}"
    program, *options = launcher
    command = (find_program(program) or program, *options, str(part.workers))
    async with open_process(part.role, module, part.written(), command) as first:
        return [await first.hear("steps") for _ in range(part.workers)]


WORK: Final[Mapping[TrafficPattern, Callable[[Measurement], Awaitable[Figures]]]] = {
    TrafficPattern.ONE_WAY: _stream,
    TrafficPattern.TO_AND_FRO: _round_trips,
    TrafficPattern.TO_MANY: _publication,
    TrafficPattern.ALL_TO_ALL: _lock_step,
}


@asynccontextmanager
async def open_half(part: ProcessTask) -> AsyncIterator["Half"]:
    """Run one of the processes for the length of the block."""
    async with open_process(part.role, "sphtp_benchmarks.half", part.written()) as half:
        yield half


@asynccontextmanager
async def open_process(
    role: str, module: str, argument: str, launcher: Sequence[str] = ()
) -> AsyncIterator["Half"]:
    """Run a module that reports in lines of JSON for the length of the block."""
    child = await ChildProcess.spawn((*launcher, sys.executable, "-m", module, argument), ALLOCATOR)
    try:
        async with aclosing(child.lines()) as lines:
            half = Half(role, child, lines)
            async with running(half.listen):
                yield half
    finally:
        with trio.CancelScope(shield=True):
            await child.stop(PATIENCE)
            await child.aclose()


class Half:
    """A process of a measurement, which reports in lines of JSON."""

    def __init__(self, role: str, child: ChildProcess, lines: AsyncGenerator[bytes, None]) -> None:
        self._role = role
        self._child = child
        self._lines = lines
        self._complaints: deque[str] = deque(maxlen=1)
        self._heard_out = trio.Event()

    async def hear(self, word: str) -> dict[str, Any]:
        """Return the next report of the process, which has to contain ``word``.

        Raises ``MeasurementError`` for another report, or if the process ends.
        """
        async for line in self._lines:
            said: dict[str, Any] = json.loads(line)
            if word not in said:
                raise MeasurementError(f"{self._role} said {said} instead of {word}")
            return said
        raise MeasurementError(await self._epitaph())

    async def tell(self, what: Any) -> None:
        """Send the process a value as a line of JSON."""
        await self._child.write(json.dumps(what).encode() + b"\n")

    async def listen(self) -> None:
        """Read standard error, and keep its last line. A full pipe would block the process."""
        async for line in self._child.error_lines():
            self._complaints.append(line.decode(errors="replace"))
        self._heard_out.set()

    async def _epitaph(self) -> str:
        with trio.move_on_after(LAST_WORDS):
            await self._heard_out.wait()
        return f"{self._role} ended: {' '.join(self._complaints) or 'without a word'}"
