"""The best network between two sides that this machine allows."""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from tests.chaos.namespaces import open_namespaces
from tests.chaos.relays import open_relays
from tests.chaos.rooms import Rooms

Network = Callable[[], AbstractAsyncContextManager[Rooms]]


@asynccontextmanager
async def open_network() -> AsyncIterator[Rooms]:
    """Namespaces, or relays where the machine allows none."""
    async with AsyncExitStack() as stack:
        try:
            rooms: Rooms = await stack.enter_async_context(open_namespaces())
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"relays in place of namespaces: {error}")
            rooms = await stack.enter_async_context(open_relays())
        yield rooms
