"""The supervisor: it starts and ends the processes of a run, and reads their output."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from sphtp_client.cluster.launcher import Launcher, LocalLauncher, ProcessSpec
from sphtp_client.cluster.process import ProcessLostError, RunningProcess, StopTimeouts
from sphtp_client.cluster.run_status import ProcessStatus, RunStatus

PIPES_CLOSE = 2.0  # seconds for the last lines of a process that has already ended


@asynccontextmanager
async def open_supervisor(
    status: RunStatus,
    changed: Callable[[], None],
    timeouts: StopTimeouts | None = None,
    launcher: Launcher | None = None,
) -> AsyncIterator["Supervisor"]:
    """Open a supervisor for the length of the block, and end all its processes afterwards.

    Without a launcher, the processes are children of this one. ``changed`` is called in Trio's
    thread after each change of the status.
    """
    try:
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(
                status, changed, timeouts or StopTimeouts(), nursery, launcher or LocalLauncher()
            )
            try:
                yield supervisor
            finally:
                with trio.CancelScope(shield=True):
                    await supervisor.stop()
                    supervisor.forget()
    except ExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        # The caller catches the error of the block, which the nursery has put into a group.
        error = group.exceptions[0]
        raise error from error.__cause__


@dataclass(eq=False)
class Supervisor:
    """The processes by name, and the tasks that read from them."""

    status: RunStatus
    changed: Callable[[], None]
    timeouts: StopTimeouts
    nursery: trio.Nursery
    launcher: Launcher
    _children: dict[str, tuple[RunningProcess, StopTimeouts]] = field(default_factory=dict)
    _watches: list[trio.CancelScope] = field(default_factory=list)
    _change: trio.Event = field(default_factory=trio.Event)

    async def start(self, spec: ProcessSpec) -> ProcessStatus:
        """Start a process. If that fails, the status shows a failed process."""
        process = self.status.take(spec.name, spec.role, slab=spec.slab)
        try:
            child = await self.launcher.start(spec)
        except OSError as error:
            self.status.not_started(process, str(error))
        else:
            self._children[spec.name] = child, spec.timeouts or self.timeouts
            self.status.spawned(process, child.pid)
            self.nursery.start_soon(self._watch, process, child)
        self._note()
        return process

    async def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready()`` is True; it is checked after each change of the status."""
        while not ready():
            await self._change.wait()

    async def stop(self, names: Collection[str] | None = None) -> None:
        """End the named processes, or all, at the same time.

        Returns when they have ended and their output is read, or after the timeouts.
        """
        ending = self._children.keys() if names is None else self._children.keys() & names
        async with trio.open_nursery() as nursery:
            for name in ending:
                child, timeouts = self._children[name]
                nursery.start_soon(child.stop, timeouts)
        with trio.move_on_after(2 * PIPES_CLOSE):
            await self.wait_until(
                lambda: not any(self.status.processes[name].alive for name in ending)
            )

    def forget(self) -> None:
        """Stop watching processes that SIGKILL has not ended."""
        for scope in self._watches:
            scope.cancel()

    async def _watch(self, process: ProcessStatus, child: RunningProcess) -> None:
        with trio.CancelScope(shield=True) as scope:  # output is read to its end when cancelled
            self._watches.append(scope)
            async with trio.open_nursery() as readers:
                readers.start_soon(self._read_lines, process, child)
                readers.start_soon(self._read_error_lines, process, child)
                lost: str | None = None
                try:
                    code = await child.wait()
                except ProcessLostError as error:
                    lost = str(error)
                # A grandchild that has inherited a pipe could keep it open for ever.
                readers.cancel_scope.deadline = trio.current_time() + PIPES_CLOSE
            await child.aclose()
            if lost is None:
                self.status.exited(process, code, asked=child.asked)
            else:
                self.status.lost(process, lost, asked=child.asked)
            self._watches.remove(scope)
            self._note()

    async def _read_lines(self, process: ProcessStatus, child: RunningProcess) -> None:
        async for line in child.lines():
            self.status.note_line(process, line)
            self._note()

    async def _read_error_lines(self, process: ProcessStatus, child: RunningProcess) -> None:
        async for line in child.error_lines():
            self.status.note_error_line(process, line.decode(errors="replace"))
            self._note()

    def _note(self) -> None:
        self._change.set()
        self._change = trio.Event()
        self.changed()
