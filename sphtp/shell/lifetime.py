"""Lifetimes: services that run for a block, tasks beside a block, and signals that end a program.

The library catches no signal. Its commands catch the signals that are listed here.
"""

import signal
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

import trio

from sphtp.errors import SphtpError

P = ParamSpec("P")
T = TypeVar("T")


def block(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Make a function a context manager for programs, like ``asynccontextmanager``.

    The traceback of an error of this library on entry omits the dozen frames inside the library:
    the message of the error is enough.
    """
    managed = asynccontextmanager(function)

    @wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _BlockScope(managed(*args, **kwargs))

    return opened


class _BlockScope(AbstractAsyncContextManager[T], Generic[T]):
    def __init__(self, managed: AbstractAsyncContextManager[T]) -> None:
        self._managed = managed

    async def __aenter__(self) -> T:
        try:
            return await self._managed.__aenter__()
        except SphtpError as error:
            raise error.with_traceback(None)  # noqa: B904 - it is the same error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._managed.__aexit__(kind, error, traceback)
        except BaseException as caught:
            if error is None or not _is_cancelled(caught):
                raise
            # Other tasks may have failed because this object closed, and their nursery has
            # cancelled this task. If the cancellation were raised here, it would hide the first
            # error, which has caused the others.
            error.__traceback__ = traceback
            return False


class ScopedService(AbstractAsyncContextManager[Any]):
    """An object that runs for the length of an ``async with`` block, which ``_lifetime`` returns.

    Programs get it from the function that opens the block.
    """

    _entered: AbstractAsyncContextManager[None]

    async def __aenter__(self) -> Self:
        self._entered = self._lifetime()
        await self._entered.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._entered.__aexit__(kind, error, traceback)

    @abstractmethod
    def _lifetime(self) -> AbstractAsyncContextManager[None]:
        """Return the block that runs the object, and cleans up at its end."""


@asynccontextmanager
async def running(task: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run ``task`` beside the block and cancel it at the block's end; its error ends the block.

    A nursery would raise a single error inside a group. This function raises the error itself, so
    that ``except ValueError`` around the block catches it. An error of the block is raised as the
    same object, even if it is a group of the block's own nursery. ``contextlib`` restores the
    traceback, without the frames of this library, only of the same object.
    """
    of_block: BaseException | None = None
    alone: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            try:
                yield
            except BaseException as error:
                of_block = error
                raise
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        alone = group.exceptions[0]
        # If the block raised a group, the nursery has made a copy of it. The error is the task's if
        # the block was only cancelled.
        is_of_block = of_block is not None and not _is_cancelled(of_block)
        if isinstance(alone, BaseExceptionGroup) and is_of_block:
            alone = of_block
    if alone is not None:
        # ``raise`` would set the cancellation that is being handled as the context of the error.
        context = alone.__context__
        try:
            raise alone
        finally:
            alone.__context__ = context


def _is_cancelled(error: BaseException) -> bool:
    """Return True if an error is only cancellation: by itself, or in groups of a nursery."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


ASKED: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that request the end of a program."""

OTHERS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that end a program without clean-up unless it handles them."""


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals at which a command ends.

    Those in ``OTHERS`` that are ignored when the command starts stay ignored, such as SIGHUP under
    ``nohup``.
    """
    caught = (each for each in OTHERS if signal.getsignal(each) is not signal.SIG_IGN)
    return (*ASKED, *caught)
