"""A group in processes of their own that share memory: one is killed, and one is frozen."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest
import trio

import sphtp
from sphtp import Config
from tests.deadline import within
from tests.interpreters import ForkedProcess
from tests.shell.group_member import TIMERS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.trio(run=within(60)),
    pytest.mark.skipif(sys.platform != "linux", reason="memfd_create is of Linux"),
]

STEPS = 3000
FROZEN = 2.5
"""Seconds, in which the others give a member up and go on without it."""


class Member:
    """A member and what it prints."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process
        self._said = b""

    async def line(self) -> str:
        while b"\n" not in self._said:
            said = await self.process.stdout.receive_some()
            assert said, (await self.process.stderr.receive_some()).decode()
            self._said += said
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    async def reach(self, step: int) -> None:
        while int(await self.line()) < step:
            pass

    async def end(self) -> str:
        while (line := await self.line()).isdecimal():
            pass
        return line


@asynccontextmanager
async def members(names: str, how: str) -> AsyncIterator[dict[str, Member]]:
    config = Config(timers=TIMERS)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            sphtp.open_server("tcp://127.0.0.1:0,0", new_cluster=True, config=config)
        )
        started = {}
        for name in names:
            arguments = [str(server.address), name, str(len(names)), str(STEPS), how]
            process = ForkedProcess.of_module("tests.shell.group_member", arguments)
            stack.push_async_callback(process.aclose)
            started[name] = Member(process)
        yield started


@pytest.mark.parametrize("how", ["copies", "views"])
@pytest.mark.parametrize("seed", range(4))
async def test_arrays_are_right_while_members_are_killed_and_frozen(seed: int, how: str) -> None:
    random = Random(seed)
    killed, frozen = random.sample("abcd", 2)
    async with members("abcd", how) as those:
        await those[killed].reach(100 * random.randrange(1, 5))
        await trio.sleep(random.random() * 0.01)
        os.kill(those[killed].process.pid, signal.SIGKILL)
        await those[frozen].reach(100 * random.randrange(6, 10))
        await trio.sleep(random.random() * 0.01)
        os.kill(those[frozen].process.pid, signal.SIGSTOP)
        await trio.sleep(FROZEN)
        os.kill(those[frozen].process.pid, signal.SIGCONT)
        assert await those[frozen].end() == "excluded 0", f"seed {seed}"
        for name in set(those) - {killed, frozen}:
            assert await those[name].end() == "done 0", f"seed {seed}"
