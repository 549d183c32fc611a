"""The supervisor: owns the children of a cluster run from their first line to their last."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from sphtp_client.cluster.process import ChildProcess, StopTimeouts
from sphtp_client.cluster.run_status import ProcessRole, ProcessStatus, RunStatus
from sphtp_client.simulation.reports import parse_event

PIPES_CLOSE = 2.0  # seconds for the last lines of a process that has already ended


@dataclass(frozen=True)
class ProcessSpec:
    """A process to start."""

    name: str
    role: ProcessRole
    command: tuple[str, ...]
    slab: int | None = None


@asynccontextmanager
async def open_supervisor(
    board: RunStatus, changed: Callable[[], None], patience: StopTimeouts | None = None
) -> AsyncIterator["Supervisor"]:
    """Open a supervisor; however the block is left, no child is alive after it.

    ``changed`` is called, in Trio's thread, after each change of the board.
    """
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(board, changed, patience or StopTimeouts(), nursery)
        try:
            yield supervisor
        finally:
            with trio.CancelScope(shield=True):
                await supervisor.stop()
                supervisor.forget()


@dataclass(eq=False)
class Supervisor:
    """The children by name, and the tasks that listen to them."""

    board: RunStatus
    changed: Callable[[], None]
    patience: StopTimeouts
    nursery: trio.Nursery
    _children: dict[str, ChildProcess] = field(default_factory=dict)
    _watches: list[trio.CancelScope] = field(default_factory=list)
    _change: trio.Event = field(default_factory=trio.Event)

    async def start(self, job: ProcessSpec) -> ProcessStatus:
        """Start a process and take a seat for it; what cannot be started has failed at once."""
        seat = self.board.take(job.name, job.role, slab=job.slab)
        try:
            child = self._children[job.name] = await ChildProcess.spawn(job.command)
        except OSError as error:
            self.board.not_started(job.name, str(error))
        else:
            self.board.spawned(job.name, child.pid)
            self.nursery.start_soon(self._watch, job.name, child)
        self._note()
        return seat

    async def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until something has become true of the board."""
        while not ready():
            await self._change.wait()

    async def stop(self) -> None:
        """End all children side by side; returns when they are gone and have been heard out."""
        async with trio.open_nursery() as nursery:
            for child in self._children.values():
                nursery.start_soon(child.stop, self.patience)
        with trio.move_on_after(2 * PIPES_CLOSE):
            await self.wait_until(self._all_gone)

    def forget(self) -> None:
        """Stop watching what even SIGKILL has not ended."""
        for scope in self._watches:
            scope.cancel()

    def _all_gone(self) -> bool:
        return not any(seat.alive for seat in self.board.seats.values())

    async def _watch(self, name: str, child: ChildProcess) -> None:
        with trio.CancelScope(shield=True) as scope:  # last words matter most when cancelled
            self._watches.append(scope)
            async with trio.open_nursery() as ears:
                ears.start_soon(self._hear, name, child)
                ears.start_soon(self._hear_complaints, name, child)
                code = await child.wait()
                # A grandchild that has inherited a pipe could keep it open for ever.
                ears.cancel_scope.deadline = trio.current_time() + PIPES_CLOSE
            await child.aclose()
            self.board.exited(name, code, asked=child.asked)
            self._note()

    async def _hear(self, name: str, child: ChildProcess) -> None:
        async for line in child.lines():
            event = parse_event(line)
            if event is None:
                self.board.garbled(name)
            else:
                self.board.heard(name, event)
            self._note()

    async def _hear_complaints(self, name: str, child: ChildProcess) -> None:
        async for line in child.complaints():
            self.board.complained(name, line.decode(errors="replace"))

    def _note(self) -> None:
        self._change.set()
        self._change = trio.Event()
        self.changed()
