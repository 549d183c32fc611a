"""A portal: Trio in a thread of its own, for programs that do not run on Trio.

One thread serves all nodes, clients and servers that the program has opened through the portal, as
long as one of them is open. A ``PortalCall`` is an async function that runs as a task in the
thread. A ``HeldBlock`` is a task that keeps an ``async with`` block open: in Trio, the task that
enters a block also has to leave it.

The alternative was Trio in the guest mode of asyncio. With a thread, packets are acknowledged on
time even while the program computes, or a notebook waits for its next cell. The thread is a daemon,
so that a program can end without leaving all blocks. At the end of the interpreter, the portal
leaves these blocks and waits for the thread.

A forked process inherits the objects, but not the thread. There, calls on the parent's objects
raise ``trio.ClosedResourceError``, and objects that the child opens get a thread of their own.
"""

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
"""The error that leaves a block: the arguments of ``__aexit__``."""

WITHOUT_ERROR: Final[Raised] = (None, None, None)


class CallCancelledError(Exception):
    """The outcome of a call that its waiting thread or task has cancelled."""


class Portal:
    """The thread that runs Trio. ``acquire`` starts it, and the last ``release`` ends it."""

    def __init__(self) -> None:
        self.users = 0
        self.is_lost = False
        """True in a forked process, which does not have the thread."""
        self._nursery: trio.Nursery | None = None
        self._started = Future[trio.lowlevel.TrioToken]()
        self._thread = threading.Thread(
            target=trio.run, args=[self._main], name="sphtp", daemon=True
        )
        self._thread.start()
        self._token = self._started.result()

    @property
    def is_here(self) -> bool:
        """True in the portal's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def start(self, function: Callable[[], Awaitable[object]], refuse: Callable[[], None]) -> None:
        """Run a function as a task of Trio, or call ``refuse`` if Trio has ended or is lost."""

        def spawn() -> None:
            if self._nursery is None:
                refuse()
            else:
                self._nursery.start_soon(function)

        if self.is_lost:
            refuse()
            return
        try:
            self._token.run_sync_soon(spawn)
        except trio.RunFinishedError:
            refuse()

    def run_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the thread, unless Trio has ended."""
        if self.is_lost:
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)

    def stop(self) -> None:
        """Cancel the running tasks, and wait for the end of the thread."""

        def cancel() -> None:
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

        self.run_soon(cancel)
        self._thread.join()

    async def _main(self) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                self._started.set_result(trio.lowlevel.current_trio_token())
                await trio.sleep_forever()
        finally:
            self._nursery = None


_lock: Final = threading.Lock()
_portals: Final = list[Portal]()
"""The portal, if there is one."""


def acquire() -> Portal:
    """Return the portal of this process; start it if there is none. Each user releases it once."""
    with _lock:
        if not _portals:
            _portals.append(Portal())
        portal = _portals[0]
        portal.users += 1
    return portal


def release(portal: Portal) -> None:
    """Give up the portal; its thread ends with the last user."""
    with _lock:
        portal.users -= 1
        is_last = portal.users == 0 and portal in _portals
        if is_last:
            _portals.remove(portal)
    if is_last:
        portal.stop()


@atexit.register
def _leave_all() -> None:
    with _lock:
        portals = [*_portals]
        _portals.clear()
    for portal in portals:
        portal.stop()


def _lose_all() -> None:
    """Mark the portals of the parent as lost: a forked process has only the calling thread."""
    for portal in _portals:
        portal.is_lost = True
    _portals.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lose_all)


class PortalCall(Generic[T]):
    """An async function that runs as a task of Trio; ``outcome`` is for other threads."""

    def __init__(self, portal: Portal, function: Callable[[], Awaitable[T]]) -> None:
        self.outcome = Future[T]()
        # From now on the future cannot be cancelled. ``cancel`` ends the task, which ends the
        # future.
        self.outcome.set_running_or_notify_cancel()
        self._portal = portal
        self._function = function
        self._scope = trio.CancelScope()
        portal.start(self._run, self._refuse)

    def cancel(self) -> None:
        """Cancel the task. Then ``outcome`` is ``CallCancelledError``, unless the task was done."""
        self._portal.run_soon(self._scope.cancel)

    async def _run(self) -> None:
        try:
            with self._scope:
                value = await self._function()
        except trio.Cancelled:
            self._refuse()
            raise
        except BaseException as error:
            self.outcome.set_exception(error)
        else:
            if self._scope.cancelled_caught:
                self.outcome.set_exception(CallCancelledError())
            else:
                self.outcome.set_result(value)

    def _refuse(self) -> None:
        self.outcome.set_exception(trio.ClosedResourceError("its block was left"))


class HeldBlock(Generic[T]):
    """An ``async with`` block that a task of Trio enters, holds and leaves."""

    def __init__(
        self, portal: Portal, manage: Callable[[], AbstractAsyncContextManager[T]]
    ) -> None:
        self.entered = Future[T]()
        self.entered.set_running_or_notify_cancel()
        self._manage = manage
        self._portal = portal
        self._leaving = trio.Event()
        self._raised = WITHOUT_ERROR
        self.call = PortalCall(portal, self._hold)
        self.call.outcome.add_done_callback(self._note_end)

    def leave(self, raised: Raised) -> None:
        """Leave the block, with an error of its body if there is one.

        The outcome of ``call`` is then true if the block has handled the error.
        """
        self._raised = raised
        if self._portal.is_lost and not self.call.outcome.done():
            # The block belongs to the parent process, which leaves it.
            self.call.outcome.set_result(False)
        self._portal.run_soon(self._leaving.set)

    async def _hold(self) -> bool:
        manager = self._manage()
        self.entered.set_result(await manager.__aenter__())
        try:
            await self._leaving.wait()
        except BaseException as error:
            # A task beside the block has failed, or this call was cancelled.
            if not await manager.__aexit__(type(error), error, error.__traceback__):
                raise
            return False
        return bool(await manager.__aexit__(*self._raised))

    def _note_end(self, outcome: "Future[bool]") -> None:
        if not self.entered.done():
            self.entered.set_exception(outcome.exception())
