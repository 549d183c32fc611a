"""Streams cancelled wherever they wait: nothing hangs or stays open, and others notice nothing."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import trio

from sphtp.shell.node import Node
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import open_node
from tests.shell.streams.test_streams import TOPIC, read_all, take
from tests.soaked import soaked

pytestmark = within_20_seconds

STRIDES = [11, *soaked([1])]
"""At which of a task's steps it is cancelled: each, or enough of them for a quick suite."""


class Steps(trio.abc.Instrument):
    """Cancels a scope before the given step of the task that it was made in."""

    def __init__(self, scope: trio.CancelScope, last: int) -> None:
        self._task = trio.lowlevel.current_task()
        self._scope = scope
        self._left = last

    @property
    def were_too_few(self) -> bool:
        return self._left > 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if not self._left:
                self._scope.cancel()


@contextmanager
def cancelled_at(step: int) -> Iterator[Steps]:
    with trio.CancelScope() as scope:
        steps = Steps(scope, step)
        trio.lowlevel.add_instrument(steps)
        try:
            yield steps
        finally:
            trio.lowlevel.remove_instrument(steps)


def count_tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def open_things() -> tuple[int, int]:
    gc.collect()
    return count_tasks(), len(os.listdir("/proc/self/fd"))


async def until_gone(things: tuple[int, int]) -> None:
    """Wait for the end of all that is more than these; what is left to collect is after it."""
    await until(lambda: count_tasks() <= things[0])
    # Not at each turn: who collects garbage looks at all of a worker's tests.
    while open_things() != things:  # noqa: ASYNC110 - no event tells it
        await trio.sleep(0.02)


@pytest.mark.parametrize("stride", STRIDES)
async def test_a_subscription_that_is_cancelled_anywhere_is_gone_and_the_other_misses_nothing(
    stride: int,
) -> None:
    async with (
        open_node() as here,
        open_node() as steady,
        open_node() as guest,
        here.open_source(TOPIC) as source,
        steady.subscribe(*here.address, topic=TOPIC) as stream,
    ):
        sent = list(range(20))
        await source.send_many(sent)
        things = open_things()
        for step in count(1, stride):
            with cancelled_at(step) as steps:
                async with guest.subscribe(*here.address, topic=TOPIC, late_join=True) as visit:
                    assert await take(visit, len(sent)) == sent
                    await source.send(len(sent))
                    sent.append(len(sent))
                    assert await visit.receive() == sent[-1]
            await until(lambda: len(source.receivers) == 1)
            await until_gone(things)
            if steps.were_too_few:
                break
        assert step > 15, "it waits now and then"
        await source.send("over")
        assert await take(stream, len(sent) + 1) == [*sent, "over"]


async def whole_life(here: Node, there: Node) -> list[Any]:
    async with (
        here.open_source(TOPIC) as source,
        there.subscribe(*here.address, topic=TOPIC) as stream,
    ):
        await source.wait_for_receivers(1)
        await source.send_many(range(50))
        await source.aclose()
        return await read_all(stream)


@pytest.mark.parametrize("stride", STRIDES)
async def test_a_source_that_is_cancelled_anywhere_leaves_its_topic_free(stride: int) -> None:
    async with open_node() as here, open_node() as there:
        things = open_things()
        for step in count(1, stride):
            with cancelled_at(step) as steps:
                assert await whole_life(here, there) == list(range(50))
            await until_gone(things)
            if steps.were_too_few:
                break
        assert step > 15, "it waits now and then"
        assert await whole_life(here, there) == list(range(50))
