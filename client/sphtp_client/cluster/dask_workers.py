"""Processes on the workers of a Dask cluster: ``--on dask://HOST:PORT``.

The scheduler of the library ``dask.distributed`` places processes on its workers. These may run on
single machines, or in Kubernetes, Slurm or a cloud.

Each process belongs to an actor (``WorkerProcess``): an object on a worker, whose methods this
program calls through the scheduler. So the workers need not reach this machine. Dask places a new
actor on the worker with the fewest actors. A process ends with its actor:

- When this program ends, even by SIGKILL, the scheduler detects the end of its connection and
  releases the actor. Then the input of the process closes, and signals follow.
- When a worker ends, the pipes to its processes close, and the processes end.
- When a worker is lost, calls to its actors fail, or exceed their timeout (``PATIENCE``).

``read`` waits on the worker for output, for ``LONG_POLL`` seconds at most, and after the end of the
output as long for the exit code. Dask's client has an event loop and a thread of its own; each call
of it waits in a thread of Trio.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_network
from math import inf
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from weakref import finalize

import trio
from distributed import Client, get_worker

from sphtp.errors import SettingsError
from sphtp.shell.lifetime import running
from sphtp_client.cluster.launcher import Parcel, ProcessSpec, carry
from sphtp_client.cluster.process import (
    CHUNK,
    ProcessLostError,
    RunningProcess,
    StopTimeouts,
    split_lines,
)

Result = TypeVar("Result")

LONG_POLL: Final = 5.0
PATIENCE: Final = 20.0
"""The timeout of a call to a worker, in seconds, after which the worker counts as lost."""
CONNECT: Final = 10.0
AHEAD: Final = 16
"""The most chunks of a pipe that wait here to be read; further chunks wait on the worker."""
MOST: Final = 400
"""The most processes of a run. Each needs a connection, of which Dask allows 512."""
START: Final = 60.0
"""Seconds within which the scheduler has to find a worker for a process."""


class WorkerOutput(NamedTuple):
    """Output of a process, and its exit code; None until its output and the process have ended."""

    out: bytes
    err: bytes
    code: int | None


class WorkerProcess:
    """The actor of a process, on a worker. The process ends when Dask releases the actor.

    Its asynchronous methods run in the event loop of the worker.
    """

    def __init__(self) -> None:
        # The scheduler stores the arguments of this call, so it gets no parcel with a secret.
        self._worker = urlsplit(get_worker().address).netloc

    async def start(self, arguments: Sequence[str], parcel: bytes) -> tuple[int, str]:
        """Start the process, and return its id and its worker. Raises ``OSError``."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        # Only the worker refers to this object, so that it is deleted when Dask releases it.
        release = partial(_release, process)
        finalize(self, asyncio.get_running_loop().call_soon_threadsafe, release).atexit = False
        assert process.stdin is not None
        process.stdin.write(parcel)
        assert process.stdout is not None
        assert process.stderr is not None
        self._streams = process.stdout, process.stderr
        self._reading: dict[int, asyncio.Task[bytes]] = {}
        for number in (0, 1):
            self._read_on(number)
        return process.pid, self._worker

    async def read(self, seconds: float) -> WorkerOutput:
        """Wait for output, or after its end for the exit code, each at most ``seconds``."""
        found = [b"", b""]
        if self._reading:
            await asyncio.wait(
                self._reading.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        for number, task in tuple(self._reading.items()):
            if task.done():
                del self._reading[number]
                found[number] = task.result()
                if found[number]:
                    self._read_on(number)
        code: int | None = None
        if not self._reading and not any(found):
            with suppress(TimeoutError):
                code = await asyncio.wait_for(self._process.wait(), seconds)
        return WorkerOutput(found[0], found[1], code)

    async def end(self, how: str) -> None:
        """Close the input of the process, terminate it, or kill it."""
        with suppress(ProcessLookupError):
            _ENDINGS[how](self._process)

    def _read_on(self, number: int) -> None:
        reading = self._streams[number].read(CHUNK)
        self._reading[number] = asyncio.get_running_loop().create_task(reading)


CLOSE, TERMINATE, KILL = "close", "terminate", "kill"


def _close_input(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()


_ENDINGS: Final[dict[str, Callable[[asyncio.subprocess.Process], None]]] = {
    CLOSE: _close_input,
    TERMINATE: asyncio.subprocess.Process.terminate,
    KILL: asyncio.subprocess.Process.kill,
}


def _release(process: asyncio.subprocess.Process) -> None:
    """End a process after Dask has released its actor."""
    loop, timeouts = asyncio.get_running_loop(), StopTimeouts()

    def end(how: str) -> None:
        if process.returncode is None:
            _ENDINGS[how](process)

    end(CLOSE)
    loop.call_later(timeouts.close, end, TERMINATE)
    loop.call_later(timeouts.close + timeouts.terminate, end, KILL)


class DaskProcess(RunningProcess):
    """A process on a worker, from the side of this program."""

    def __init__(self, call: Callable[..., Any], future: Any, actor: Any) -> None:
        super().__init__()
        self._call = call
        # Dask keeps the actor as long as this object refers to the future.
        self._future = future
        self._actor = actor
        self._pid, self._worker = 0, ""
        self._code: int | None = None
        self._lost: str | None = None
        self._ended = trio.Event()
        pipes = [trio.open_memory_channel[bytes](AHEAD) for _ in range(2)]
        self._writers = [writer for writer, _ in pipes]
        self._readers = [_Chunks(reader) for _, reader in pipes]

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def start(self, parcel: Parcel) -> None:
        """Start the process. Raises ``OSError`` if that fails."""
        self._pid, self._worker = await self._ask(PATIENCE, "start", *parcel)

    async def run(self) -> None:
        """Read the output of the process until it has ended, or is lost."""
        try:
            while self._code is None:
                output = WorkerOutput(*await self._ask(PATIENCE, "read", LONG_POLL))
                for writer, content in zip(self._writers, output[:2], strict=True):
                    if content:
                        with suppress(trio.BrokenResourceError):  # the reader has closed
                            await writer.send(content)
                self._code = output.code
        except OSError as error:
            self._lost = f"its worker {self._worker} is gone ({error})"
        finally:
            for writer in self._writers:
                writer.close()
            self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        if self._code is None:
            raise ProcessLostError(self._lost)
        return self._code

    def lines(self) -> AsyncGenerator[bytes, None]:
        return split_lines(self._readers[0])

    def error_lines(self) -> AsyncGenerator[bytes, None]:
        return split_lines(self._readers[1])

    async def close_input(self) -> None:
        await self._end(CLOSE)

    async def terminate(self) -> None:
        await self._end(TERMINATE)

    async def kill(self) -> None:
        await self._end(KILL)

    async def aclose(self) -> None:
        self._actor = self._future = None
        for reader in self._readers:
            await reader.aclose()

    async def _end(self, how: str) -> None:
        with suppress(OSError):
            await self._ask(PATIENCE, "end", how)

    async def _ask(self, seconds: float, method: str, *arguments: Any) -> Any:
        """Call a method of the actor. Raises ``OSError`` if the call fails or is not answered."""
        actor = self._actor

        def ask() -> Any:
            return getattr(actor, method)(*arguments).result(timeout=seconds)

        try:
            return await self._call(ask)
        except TimeoutError as error:
            raise OSError(f"no answer for {seconds:.0f} s") from error
        except RuntimeError as error:
            raise OSError(str(error)) from error


class _Chunks(trio.abc.ReceiveStream):
    """A stream of chunks of output."""

    def __init__(self, channel: trio.MemoryReceiveChannel[bytes]) -> None:
        self._channel = channel

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await self._channel.receive()
        except trio.EndOfChannel:
            return b""

    async def aclose(self) -> None:
        self._channel.close()


class DaskLauncher:
    """A launcher that starts processes on the workers of one scheduler."""

    slots = MOST
    loss_time = PATIENCE

    def __init__(self, client: Client, network: str) -> None:
        self.network = network
        self._client = client
        self._reading = trio.CancelScope(shield=True)
        self._to_run, self._started = trio.open_memory_channel[DaskProcess](MOST)
        # Each process has a call that waits for its output.
        self._limiter = trio.CapacityLimiter(inf)

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start a process. Raises ``OSError`` if that fails."""
        parcel = carry(spec)

        def submit() -> tuple[Any, Any]:
            future = self._client.submit(WorkerProcess, actor=True, pure=False)
            return future, future.result(timeout=START)

        try:
            # The wait for a worker may be long. It can be cancelled, since no process runs yet.
            process = DaskProcess(self._call, *await self._call(submit))
        except Exception as error:
            why = str(error) or type(error).__name__
            raise OSError(f"Dask did not place it: {why}") from error
        with trio.CancelScope(shield=True):  # a cancelled start would leave a process
            await process.start(parcel)
            await self._to_run.send(process)
        return process

    async def run(self) -> None:
        """Read from all processes, also during a cancellation, until ``forget``."""
        with self._reading:
            async with trio.open_nursery() as nursery:
                async for process in self._started:
                    nursery.start_soon(process.run)

    def forget(self) -> None:
        """Stop reading from the processes, so that ``run`` returns."""
        self._reading.cancel()

    async def _call(self, function: Callable[[], Result]) -> Result:
        return await trio.to_thread.run_sync(
            function, abandon_on_cancel=True, limiter=self._limiter
        )


@asynccontextmanager
async def open_dask(on: str) -> AsyncIterator[DaskLauncher]:
    """Connect to the scheduler for the length of the block.

    Raises ``SettingsError`` if ``on`` has no address, no scheduler replies, or it has no workers.
    """
    scheme = "tls" if on.startswith("tls+") else "tcp"
    address = on.partition("://")[2]
    if not address:
        raise SettingsError(f"--on {on}: give the address of the scheduler, {on}://HOST:8786")
    connect = partial(
        Client, f"{scheme}://{address}", timeout=CONNECT, direct_to_workers=False, name="sphtp"
    )
    try:
        client = await trio.to_thread.run_sync(connect)
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"--on {on}: no scheduler answers: {error}") from error
    try:
        info = await trio.to_thread.run_sync(client.scheduler_info)
        if not info["workers"]:
            raise SettingsError(f"--on {on}: the scheduler has no workers")
        launcher = DaskLauncher(client, await _network_of(info["address"]))
        async with running(launcher.run):
            try:
                yield launcher
            finally:
                launcher.forget()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(client.close)


async def _network_of(scheduler: str) -> str:
    """Return the address of the scheduler as a network, which its workers reach.

    It is empty if this machine cannot resolve the scheduler's host name.
    """
    parts = urlsplit(scheduler)
    try:
        found = await trio.socket.getaddrinfo(parts.hostname, None, type=trio.socket.SOCK_STREAM)
    except OSError:
        return ""
    return str(ip_network(found[0][4][0]))
