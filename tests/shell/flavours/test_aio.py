"""asyncio programs: coroutines, cancellation, several loops."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
import trio

from sphtp import Outcome, RefusedError, Request, UnreachableError, aio
from sphtp.config import ChannelSettings
from sphtp.errors import HandlerCrashedError
from sphtp.shell.config import Config
from tests.soaked import soaked

BRIEFLY = Config(channel=ChannelSettings(linger=0.05))


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a program, and see that it leaves no thread behind."""
    asyncio.run(program)
    assert "sphtp" not in {thread.name for thread in threading.enumerate()}


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[aio.Channel, aio.Channel]]:
    async with (
        aio.open_node(config=BRIEFLY) as here,
        aio.open_node(config=BRIEFLY) as there,
        here.open_channel(*there.address) as sender,
        await there.accept() as receiver,
    ):
        yield sender, receiver


async def echo(channel: aio.Channel) -> None:
    async for message in channel:
        await channel.send(message)


async def talk_over_a_server() -> None:
    async with aio.open_server("tcp://127.0.0.1:0", new_cluster=True) as server:
        await server.wait_active()
        async with (
            aio.open_client(server.address, data="Ann", config=BRIEFLY) as ann,
            aio.open_client(server.address, data="Bob", config=BRIEFLY) as bob,
        ):
            serving = asyncio.create_task(bob.serve_channels(echo))
            peer = await ann.wait_for_peer(lambda it: it.data == "Bob")
            async with ann.open_channel(peer) as channel:
                receipt = await channel.post("Hello")
                assert await channel.receive() == "Hello"
                assert await receipt.wait() is Outcome.DELIVERED
                channel.send_nowait([1, 2])
                async for message in channel:
                    assert message == [1, 2]
                    break
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert (await aio.fetch_status(server.address))["id"] == server.id


def test_clients_talk() -> None:
    run(talk_over_a_server())


async def receive_with_cancellations(seed: int) -> None:
    random, received, cancelled = Random(seed), list[int](), 0
    async with pair() as (here, there):

        async def send() -> None:
            for number in range(100):
                await here.send(number)
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        while len(received) < 100:
            if random.random() < 0.5:
                receiving: asyncio.Task[Any] = asyncio.create_task(there.receive_many(3))
            elif random.random() < 0.5:
                receiving = asyncio.create_task(there.receive_many(limit=2))
            else:
                receiving = asyncio.create_task(there.receive())
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            if random.random() < 0.7:
                receiving.cancel()
            try:
                value = await receiving
            except asyncio.CancelledError:
                cancelled += 1
            else:
                received += value if isinstance(value, list) else [value]
        await sending
    assert received == list(range(100))
    assert cancelled


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 10))])
def test_cancelling_loses_nothing(seed: int) -> None:
    run(receive_with_cancellations(seed))


async def meet_errors() -> None:
    with pytest.raises(UnreachableError):
        async with aio.open_client("tcp://127.0.0.1:1"):
            pass
    mistake = ZeroDivisionError()

    async def fail() -> None:
        async with pair() as (here, there):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await here.receive()
            await there.aclose()
            with pytest.raises(trio.EndOfChannel):
                await here.receive()
            raise mistake

    with pytest.raises(ZeroDivisionError) as caught:
        await fail()
    assert caught.value is mistake


async def fail_in_a_handler() -> None:
    async def fail(channel: aio.Channel) -> None:
        raise ZeroDivisionError(await channel.receive())

    async with aio.open_node(config=BRIEFLY) as here, aio.open_node(config=BRIEFLY) as there:
        serving = asyncio.create_task(there.serve_channels(fail))
        async with here.open_channel(*there.address) as channel:
            await channel.send(3)
            with pytest.raises(ExceptionGroup) as caught:
                await serving
            assert caught.group_contains(ZeroDivisionError, match="3")


def test_errors_are_those_of_the_objects_for_trio() -> None:
    run(meet_errors())
    run(fail_in_a_handler())


async def request_and_join() -> None:
    async def increase(request: Request) -> int:
        await asyncio.sleep(0)
        if request.value == "cancel":
            raise asyncio.CancelledError
        return int(request.value) + 1

    async with (
        aio.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        aio.open_client(server.address, name="Ann", config=BRIEFLY) as ann,
        aio.open_client(server.address, name="Bob", config=BRIEFLY) as bob,
    ):
        serving = asyncio.create_task(bob.serve("increase", increase))
        while True:
            with suppress(RefusedError):
                assert await ann.request("Bob", "increase", 1) == 2
                break
        with pytest.raises(HandlerCrashedError):
            await ann.request("Bob", "increase", "cancel")
        serving.cancel()
        async with ann.join("alone") as group:
            assert list(await group.exchange("step")) == ["step"]


def test_clients_answer_requests_and_join_groups() -> None:
    run(request_and_join())


async def open_and_cancel() -> None:
    async with aio.open_node(config=BRIEFLY) as here, aio.open_node(config=BRIEFLY) as there:

        async def stay() -> None:
            async with here.open_channel(*there.address):
                await asyncio.Event().wait()

        for turns in range(12):
            task = asyncio.create_task(stay())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert "with 0 channels" in repr(here)


def test_cancelled_blocks_are_left() -> None:
    run(open_and_cancel())


async def use_two_loops() -> None:
    async with pair() as (here, there):

        async def count() -> None:
            for number in range(50):
                await here.send(number)

        other = threading.Thread(target=asyncio.run, args=[count()])
        other.start()
        assert [await there.receive() for _ in range(50)] == list(range(50))
        await asyncio.to_thread(other.join)


def test_two_loops_use_one_object() -> None:
    run(use_two_loops())
