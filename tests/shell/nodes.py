"""Nodes of tests: each takes leave of its channels within a twentieth of a second, not a second."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple

import pytest
import trio

from sphtp import Config, Node
from sphtp.config import ChannelSettings
from sphtp.messages import MessageCodec, PlainMessages
from sphtp.shell import loop, node
from sphtp.shell.config import DEFAULTS

BRIEFLY: Final = ChannelSettings(linger=0.05)


def open_node(
    host: str = "127.0.0.1", port: int = 0, *, peer_id: int = 0, config: Config = DEFAULTS
) -> AbstractAsyncContextManager[Node]:
    """Open a node whose channels linger briefly, unless ``config`` has settings of its own."""
    if config.channel == DEFAULTS.channel:
        config = replace(config, channel=BRIEFLY)
    return node.open_node(host, port, peer_id=peer_id, config=config)


def counted_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the loops of nodes measure their turns and waits by a clock that counts its readings."""
    readings = count()
    monkeypatch.setattr(loop, "perf_counter", lambda: next(readings) * 1e-6)


def stopped_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no turn of the loops of nodes end, however long it takes."""
    monkeypatch.setattr(loop, "perf_counter", lambda: 0.0)


class Elsewhere(NamedTuple):
    """A node of another task, and what closes it under everything that stands on it."""

    node: Node
    close: Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_elsewhere(**options: Any) -> AsyncIterator[Elsewhere]:
    """Open a node in another task for the length of the block, or until it is closed."""
    closing, closed = trio.Event(), trio.Event()

    async def keep(task_status: trio.TaskStatus[Node]) -> None:
        async with open_node(**options) as node:
            task_status.started(node)
            await closing.wait()
        closed.set()

    async def close() -> None:
        closing.set()
        await closed.wait()

    async with trio.open_nursery() as nursery:
        yield Elsewhere(await nursery.start(keep), close)
        await close()


class RawMessages(PlainMessages):
    """Sends payloads as they are, as a program may that says its messages are of ``types``."""

    def __init__(self, types: MessageCodec | None = None) -> None:
        self._lines = types.describe() if types is not None else []
        super().__init__(compression=types.compression if types is not None else None)

    def describe(self) -> list[str]:
        return self._lines

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        return bytes(value)

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        return list(map(bytes, values))

    def decode_untrusted(self, data: bytes) -> Any:
        return data

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        return list(payloads)
