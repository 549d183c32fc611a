"""Questions and answers over real sockets, with whoever waits looking or asleep."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from sphtp import Channel, Config, open_node
from sphtp.config import ChannelSettings
from sphtp.shell.udp import UdpSocket
from tests.shell.nodes import counted_time

NEVER, LONG = 0.0, 0.01
ROUNDS = 50


async def echo(channel: Channel) -> None:
    """Send everything back."""
    async for message in channel:
        await channel.send(message)


@asynccontextmanager
async def echoed(busy_poll: float, number: int = 1) -> AsyncIterator[list[Channel]]:
    """Channels of one node to another, which sends back what comes."""
    settings = ChannelSettings(busy_poll=busy_poll, linger=0.1)
    async with (
        open_node(config=Config(channel=settings)) as here,
        open_node(config=Config(channel=settings)) as there,
        trio.open_nursery() as nursery,
        AsyncExitStack() as stack,
    ):
        with trio.fail_after(20):
            channels = []
            for _ in range(number):
                channel = here.open_channel(*there.address)
                channels.append(await stack.enter_async_context(channel))
                nursery.start_soon(echo, await there.accept())
            yield channels


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What was there when nodes looked at their sockets, however busy the machine is."""
    counted_time(monkeypatch)
    found: list[bool] = []
    look = UdpSocket.is_readable

    def looking(udp: UdpSocket) -> bool:
        found.append(look(udp))
        return found[-1]

    monkeypatch.setattr(UdpSocket, "is_readable", looking)
    return found


@pytest.mark.parametrize("busy_poll", [NEVER, LONG])
async def test_every_question_has_its_answer(looked: list[bool], busy_poll: float) -> None:
    async with echoed(busy_poll) as (channel,):
        for number in range(ROUNDS):
            receipt = await channel.post(number)
            assert await channel.receive() == number
        assert await receipt.wait()
        assert channel.statistics().waiting == 0
    assert bool(looked) == bool(busy_poll)


@pytest.mark.parametrize("busy_poll", [NEVER, LONG])
async def test_many_ask_at_a_time(busy_poll: float) -> None:
    """Whoever looks passes on what comes for others."""
    counts: list[int] = []

    async def ask(channel: Channel) -> None:
        for number in range(ROUNDS):
            await channel.send(number)
            assert await channel.receive() == number
        counts.append(ROUNDS)

    async with echoed(busy_poll, 3) as channels, trio.open_nursery() as nursery:
        for channel in channels:
            nursery.start_soon(ask, channel)
    assert counts == [ROUNDS] * 3


async def test_an_answer_that_is_not_waited_for_is_not_lost() -> None:
    async with echoed(LONG) as (channel,):
        answers = []
        for number in range(ROUNDS):
            await channel.send(number)
            with trio.move_on_after(0 if number % 3 else 1):
                answers.append(await channel.receive())
        while len(answers) < ROUNDS:
            answers.append(await channel.receive())
    assert answers == list(range(ROUNDS))


async def test_all_is_known_of_messages_that_nobody_answers() -> None:
    """What was put off for the sake of answers is done when there are none."""
    async with echoed(LONG) as (channel,):
        for number in range(ROUNDS):
            receipts = [await channel.post((number, part)) for part in range(3)]
            for receipt in receipts:
                assert await receipt.wait()
                assert 0 < (receipt.latency or 0) < 1
            for part in range(3):
                assert await channel.receive() == [number, part]
