"""Peers in processes of their own: killed at any step, or of another user or namespace."""

import gc
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pytest
import trio

from sphtp import Channel, Config, Node
from sphtp.config import ChannelSettings
from sphtp.shell.node import open_node
from tests.interpreters import ForkedProcess
from tests.shell.mortal_peer import MESSAGES, NOT_ALLOWED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd_create is of Linux")

SETTINGS: Final = ChannelSettings(linger=0.0)
NEVER: Final = 0


class Peers:
    """Starts peers one after the other. Made by ``open_peers``."""

    def __init__(self, process: ForkedProcess) -> None:
        self._process = process
        self._said = b""

    async def live(self, last_step: int, where: str = "here") -> tuple[int, int]:
        """Run a peer that dies at a step; return its exit status, and how many steps it took."""
        await self._process.stdin.send_all(f"{last_step} {where}\n".encode())
        while b"\n" not in self._said:
            said = await self._process.stdout.receive_some()
            assert said, "the program that starts peers has ended"
            self._said += said
        line, _, self._said = self._said.partition(b"\n")
        status, steps = map(int, line.split())
        return status, steps


@asynccontextmanager
async def open_peers(port: int) -> AsyncIterator[Peers]:
    process = ForkedProcess.of_module("tests.shell.mortal_peer", [str(port)])
    try:
        yield Peers(process)
    finally:
        await process.aclose()


async def echo(node: Node, accepted: list[Channel]) -> None:
    channel = await node.accept()
    accepted.append(channel)
    async for array in channel:
        assert np.array_equal(array, np.arange(20_000) + array[0])
        await channel.send(array)


def held() -> tuple[int, int]:
    """The descriptors and the mapped segments of this process."""
    gc.collect()
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:sphtp")
    return len(os.listdir("/proc/self/fd")), mapped


async def echo_all(node: Node, accepted: list[Channel]) -> None:
    async def serve(channel: Channel) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for array in channel:
                assert np.array_equal(array, np.arange(20_000) + array[0])
                await channel.send(array)

    async with trio.open_nursery() as nursery:
        while True:
            channel = await node.accept()
            accepted.append(channel)
            nursery.start_soon(serve, channel)


async def kill_at(steps: list[int]) -> int:
    """Have one peer die at each step. Return how many messages went by shared memory in all."""
    shared = 0
    accepted: list[Channel] = []
    async with (
        open_node(config=Config(channel=SETTINGS)) as node,
        open_peers(node.address[1]) as peers,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(echo_all, node, accepted)
        before = held()
        for step in steps:
            with trio.fail_after(20):
                status, taken = await peers.live(step)
            if step == NEVER:
                assert (status, taken > 100) == (0, True), f"it took {taken} steps"
            else:
                assert status == -9, f"step {step}: it ended by itself, {status}"
            # It may be accepted only now; or a segment of its end be closed only now.
            with trio.move_on_after(20):
                while accepted or held() != before:
                    while accepted:
                        channel = accepted.pop()
                        shared += channel.statistics().shared_memory_received
                        channel.abort()
                    await trio.sleep(0.001)
            assert held() == before, f"killed at step {step}"
        nursery.cancel_scope.cancel()
    return shared


@pytest.mark.slow
async def test_a_peer_killed_at_some_steps_leaves_nothing() -> None:
    seed = 20_261_123
    random = Random(seed)
    assert await kill_at([NEVER, *(random.randint(1, 150) for _ in range(5)), 140]) > 0


@pytest.mark.slow
async def test_a_peer_of_another_user_or_namespace_gets_all_by_udp() -> None:
    async with (
        open_node(config=Config(channel=SETTINGS)) as node,
        open_peers(node.address[1]) as peers,
    ):
        for where in ("user", "ipc", "net", "here"):
            accepted: list[Channel] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(echo, node, accepted)
                with trio.fail_after(20):
                    status, _ = await peers.live(NEVER, where)
                nursery.cancel_scope.cancel()
            if status == NOT_ALLOWED:
                continue
            assert status == 0, where
            (channel,) = accepted
            figures = channel.statistics()
            assert figures.messages_received == MESSAGES, where
            shared = figures.shared_memory_sent + figures.shared_memory_received
            assert (shared > 0) == (where == "here"), where
            channel.abort()


@pytest.mark.soak
async def test_a_peer_killed_at_every_step_leaves_nothing() -> None:
    async with (
        open_node(config=Config(channel=SETTINGS)) as node,
        open_peers(node.address[1]) as peers,
    ):
        accepted: list[Channel] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, node, accepted)
            _, taken = await peers.live(NEVER)
            nursery.cancel_scope.cancel()
    # Those that come last differ by a few from run to run.
    steps = range(1, taken * 9 // 10)
    assert await kill_at([steps[number % len(steps)] for number in range(500)]) > 0
