"""An error in a block leaves it as itself, soon, and without the frames of this library."""

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

import sphtp
from sphtp import ServerAddress, UnreachableError
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node

pytestmark = within_20_seconds


class MineError(Exception):
    """An error of the program."""


class Wire:
    """Forwards datagrams between two nodes until it is cut."""

    def __init__(self, socket: trio.socket.SocketType, target: tuple[str, int]) -> None:
        self.address: tuple[str, int] = socket.getsockname()
        self.is_cut = False
        self._socket = socket
        self._target = target

    async def run(self) -> None:
        caller = None
        while True:
            data, sender = await self._socket.recvfrom(65_535)
            caller = caller if sender == self._target else sender
            if not self.is_cut and caller is not None:
                await self._socket.sendto(data, caller if sender == self._target else self._target)


@asynccontextmanager
async def wire_to(target: tuple[str, int]) -> AsyncIterator[Wire]:
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as socket:
        await socket.bind(("127.0.0.1", 0))
        wire = Wire(socket, target)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.run)
            yield wire
            nursery.cancel_scope.cancel()


async def test_an_error_wins_over_a_peer_that_is_gone_and_waits_no_longer_than_a_second() -> None:
    async with (
        open_node() as left,
        open_node() as right,
        wire_to(right.address) as wire,
    ):
        opening = left.open_channel(*wire.address)
        channel = await opening.__aenter__()
        await right.accept()
        wire.is_cut = True
        start = trio.current_time()
        await channel.send("never to arrive")
        assert not await opening.__aexit__(MineError, MineError(), None)
        assert trio.current_time() - start < 1.0


async def test_an_error_is_not_lost_among_those_of_tasks_that_it_closes_the_channel_under() -> None:
    async def send_for_ever(channel: sphtp.Channel) -> None:
        while True:
            await channel.send("more")

    async def fail_beside_it() -> None:
        async with (
            sphtp.open_node() as left,
            sphtp.open_node() as right,
            trio.open_nursery() as nursery,
            left.open_channel(*right.address) as channel,
        ):
            nursery.start_soon(send_for_ever, channel)
            await (await right.accept()).receive()
            raise MineError

    with pytest.raises(ExceptionGroup) as caught:
        await fail_beside_it()
    assert caught.group_contains(MineError)


async def test_an_error_is_not_lost_among_those_of_tasks_that_it_closes_a_stream_under() -> None:
    async def read_for_ever(stream: trio.abc.ReceiveChannel[object]) -> None:
        async for _ in stream:
            pass

    async def fail_beside_it() -> None:
        async with (
            sphtp.open_node() as left,
            sphtp.open_node() as right,
            trio.open_nursery() as nursery,
            left.open_source("topic") as source,
            right.subscribe(*left.address, topic="topic") as stream,
        ):
            nursery.start_soon(read_for_ever, stream)
            await source.wait_for_receivers()
            await trio.testing.wait_all_tasks_blocked()
            raise MineError

    with pytest.raises(ExceptionGroup) as caught:
        await fail_beside_it()
    assert caught.group_contains(MineError)


async def test_what_was_sent_before_an_error_arrives_at_a_peer_that_is_there() -> None:
    async with open_node() as left, open_node() as right:
        opening = left.open_channel(*right.address)
        channel = await opening.__aenter__()
        accepted = await right.accept()
        await channel.send_many(range(100))
        assert not await opening.__aexit__(MineError, MineError(), None)
        assert [number async for number in accepted] == list(range(100))


async def test_without_an_error_messages_that_did_not_arrive_are_one() -> None:
    soon = sphtp.config.ChannelSettings(close_timeout=0.3)
    async with (
        open_node(config=sphtp.Config(channel=soon)) as left,
        open_node() as right,
        wire_to(right.address) as wire,
    ):
        opening = left.open_channel(*wire.address)
        channel = await opening.__aenter__()
        await right.accept()
        wire.is_cut = True
        await channel.send("never to arrive")
        with pytest.raises(trio.BrokenResourceError):
            await opening.__aexit__(None, None, None)


async def fail() -> None:
    raise MineError


async def of_the_block() -> None:
    await fail()


async def of_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)


@pytest.mark.parametrize("failing", [of_the_block, of_a_nursery])
async def test_its_traceback_has_no_frame_of_the_library(
    failing: Callable[[], Awaitable[None]],
) -> None:
    caught = None
    async with sphtp.open_server(
        ServerAddress.parse("tcp://127.0.0.1:0"), new_cluster=True
    ) as server:
        try:
            async with (
                sphtp.open_client([server.address]) as left,
                sphtp.open_client([server.address]) as right,
                left.open_channel(right.id),
                left.publish("topic"),
            ):
                await failing()
        except (MineError, ExceptionGroup) as error:
            caught = error
    assert caught is not None
    lines = "".join(traceback.format_exception(caught)).splitlines()
    assert not [line for line in lines if "/sphtp/" in line or "contextlib" in line]
    assert len(lines) < 20


async def test_an_error_on_the_way_into_a_block_has_one_frame_of_the_library() -> None:
    with pytest.raises(UnreachableError) as caught:
        async with sphtp.open_client("tcp://127.0.0.1:9"):
            pytest.fail("nobody listens there")
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames][1:] == ["__aenter__"]
    assert caught.value.__context__ is None
