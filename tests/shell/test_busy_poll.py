"""Who waits for an answer looks for it where that pays, and sleeps where it does not."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from sphtp.shell.busy_poll import GRACE, IDLE, MOST_LOOKS, BusyPoll

WINDOW = 0.01


class Node:
    """A node's traffic, a reader of it, and the node's task, under a clock that stands still."""

    def __init__(self, window: float = WINDOW) -> None:
        self.busy_poll = BusyPoll(self, window)
        self.asleep = trio.lowlevel.ParkingLot()
        # For each look in vain, what there is at the next one: nothing, a message, one of others.
        self.socket: deque[str] = deque()
        self.messages: list[str] = []
        self.told: list[str] = []
        self.looks = 0
        self.is_rung = False

    def is_waiting(self) -> bool:
        self.looks += 1
        return bool(self.socket)

    def fetch(self) -> bool:
        self.looks += 1
        found = self.socket.popleft() if self.socket else ""
        if found == "message":
            self.messages.append(found)
        return bool(found)

    def has_work(self, now: float) -> bool:
        return self.is_rung

    def tidy(self) -> None:
        self.told.append("tidy")

    def touch_all(self) -> None:
        self.told.append("touch")

    async def read(self) -> None:
        """Wait for a message, and take it."""
        while not self.messages:
            await self.busy_poll.wait(self.asleep, lambda: bool(self.messages))
        self.messages.pop()

    def wake(self) -> None:
        """The node's task has found a message."""
        self.messages.append("message")
        self.asleep.unpark_all()

    async def learn(self) -> None:
        """An answer came soon, and another is expected."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.read)
            await trio.testing.wait_all_tasks_blocked()
            self.wake()
        self.busy_poll.expect()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[list[bool]]:
        """The node's task looks, too; what it says in the end."""
        said: list[bool] = []

        async def keep() -> None:
            said.append(await self.busy_poll.stay_awake())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            while not said and not self.busy_poll.is_polling:
                await trio.lowlevel.checkpoint()
            yield said


async def test_who_got_an_answer_soon_looks_for_the_next_one(mock_clock) -> None:
    node = Node()
    await node.learn()
    async with node.kept() as said:
        assert node.busy_poll.is_polling
        node.socket.append("message")
        await node.read()
        assert not len(node.asleep)
    assert said == [True], "what was expected came; the node's task has its turn"
    assert node.looks == 1


@pytest.mark.parametrize("expects", [True, False])
async def test_nobody_looks_where_nothing_was_sent_or_no_answer_came_soon(
    mock_clock, expects: bool
) -> None:
    node = Node()
    if expects:
        node.busy_poll.expect()
    else:
        await node.learn()
        async with node.kept():
            node.socket.append("message")
            await node.read()
    assert not await node.busy_poll.stay_awake()


async def test_a_window_of_nothing_is_for_those_who_want_to_sleep(mock_clock) -> None:
    node = Node(0.0)
    await node.learn()
    assert not await node.busy_poll.stay_awake()


async def test_looking_ends_where_nothing_comes(mock_clock) -> None:
    """Nor does a clock that stands still keep anybody awake."""
    node = Node()
    await node.learn()
    async with node.kept() as said, trio.open_nursery() as nursery:
        nursery.start_soon(node.read)
        await trio.testing.wait_all_tasks_blocked()
        assert len(node.asleep) == 1
        assert said
        assert not node.busy_poll.is_polling
        assert not await node.busy_poll.stay_awake(), "a single try shows it"
        node.wake()
    assert node.looks <= 2 * MOST_LOOKS
    assert node.told == ["tidy"], "what was put off is done when there is time for it, once"


async def test_an_answer_that_comes_late_is_not_looked_for_again(mock_clock) -> None:
    node = Node()
    await node.learn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.read)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(2 * WINDOW)
        node.wake()
    node.busy_poll.expect()
    assert not await node.busy_poll.stay_awake()


async def test_where_all_are_asleep_the_task_of_the_node_looks(mock_clock) -> None:
    node = Node()
    await node.learn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.read)
        nursery.start_soon(node.read)
        await trio.testing.wait_all_tasks_blocked()
        assert len(node.asleep) == 2
        async with node.kept() as said:
            node.socket.append("message")
        assert said == [True]
        assert node.socket, "it takes them off in its turn"
        for _ in range(2):
            node.wake()
            await trio.testing.wait_all_tasks_blocked()


async def test_of_several_one_looks(mock_clock) -> None:
    node = Node()
    await node.learn()
    async with node.kept(), trio.open_nursery() as nursery:
        nursery.start_soon(node.read)
        nursery.start_soon(node.read)
        while not len(node.asleep):
            await trio.lowlevel.checkpoint()
        node.socket.append("message")
        while node.socket:
            await trio.lowlevel.checkpoint()
        assert len(node.asleep) == 1, "that one has it"
        node.wake()


async def test_what_comes_for_others_is_passed_on(mock_clock) -> None:
    node = Node()
    await node.learn()
    async with node.kept():
        node.socket.extend(["other", "message"])
        await node.read()
    assert node.told == ["touch"]


async def test_a_reader_that_gives_up_leaves_the_looking_to_the_node(mock_clock) -> None:
    node = Node()
    await node.learn()
    async with node.kept() as said:
        with trio.CancelScope() as scope:
            scope.cancel()
            await node.read()
        assert not said
        node.socket.append("message")
    assert said == [True]
    assert list(node.socket) == ["message"]


@pytest.mark.parametrize("is_rung", [True, False])
async def test_the_task_of_the_node_does_its_own_work_meanwhile(mock_clock, is_rung: bool) -> None:
    node = Node()
    await node.learn()
    node.is_rung = is_rung
    async with node.kept() as said:
        for _ in range(2 + GRACE):
            await trio.lowlevel.checkpoint()
        assert said == ([True] if is_rung else [])
        for _ in range(IDLE):
            await trio.lowlevel.checkpoint()
        assert node.told == ([] if is_rung else ["tidy"])
