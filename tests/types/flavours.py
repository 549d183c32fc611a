"""What users write without Trio, as type checkers read it; nothing runs."""

from typing import Any, assert_type

from sphtp import Peer, StreamMessage, aio, blocking
from sphtp.streams import TopicLoss, TopicMessage


def echo(channel: blocking.Channel[int]) -> None:
    for number in channel:
        assert_type(number, int)
        channel.send(number)


def script() -> None:
    with blocking.open_client("tcp://127.0.0.1:8764") as client:
        assert_type(client, blocking.Client)
        peer = client.wait_for_peer(lambda it: it.data == "Bob")
        assert_type(peer, Peer)
        with client.open_channel(peer) as channel, blocking.fail_after(5):
            typed: blocking.Channel[int] = channel
            assert_type(typed.receive(), int)
            echo(typed)
        with client.events() as events:
            for event in events:
                print(event)
        client.serve_channels(echo)


async def program() -> None:
    async with aio.open_client(["tcp://127.0.0.1:8764"]) as client:
        assert_type(client, aio.Client)
        peer = await client.wait_for_peer(3)
        async with client.open_channel(peer) as channel:
            typed: aio.Channel[int] = channel
            await typed.send(1)
            async for number in typed:
                assert_type(number, int)
        async with client.subscribe_to(peer, "positions") as positions:
            await positions.receive()
        topics: aio.TopicSubscription[int]
        async with client.subscribe("positions/*") as topics:
            async for item in topics:
                assert_type(item, TopicMessage[int] | TopicLoss)
        async with client.subscribe_to(peer, "positions", numbered=True) as numbered:
            assert_type(numbered, aio.Subscription[StreamMessage[Any]])
        await client.serve_channels(repeat)


async def repeat(channel: aio.Channel[int]) -> None:
    await channel.send(await channel.receive())
