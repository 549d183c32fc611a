"""A task that runs beside a block and ends with it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def running(task: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run ``task`` beside the block and cancel it at the block's end; its error ends the block.

    An error that comes alone leaves as itself, so that ``except ValueError`` around the block
    works as it reads; a nursery would wrap it in a group of one.
    """
    alone: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            yield
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        alone = group.exceptions[0]
    # Raised out here, the group does not become its context.
    if alone is not None:
        raise alone
