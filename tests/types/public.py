"""What type checkers make of the public interface. Checked by mypy and pyright, and never run."""

from dataclasses import dataclass
from typing import Any, assert_type

import trio

import sphtp
from sphtp import Channel, Client, Config, Loss, Node, Receipt, StreamMessage, Subscription
from sphtp.config import ChannelSettings, StreamSettings
from sphtp.events import ClientEvent, ServerEvent
from sphtp.groups import GroupMember, LockstepGroup
from sphtp.messages import MessageFactory
from sphtp.streams import TopicLoss, TopicMessage, TopicSubscription


@dataclass
class Step:
    """A message."""

    number: int


async def channels(node: Node) -> None:
    """A channel is a ``trio.abc.Channel`` of what its annotation says, and else of anything."""
    channel: Channel[Step]
    async with node.open_channel("127.0.0.1", 1) as channel:
        assert_type(await channel.receive(), Step)
        assert_type(await channel.receive_many(), list[Step])
        assert_type(channel.receive_nowait(), Step)
        async for step in channel:
            assert_type(step, Step)
        assert_type(await channel.send(Step(1)), None)
        assert_type(await channel.post(Step(1), expiry=1.0), Receipt)
        await channel.send_many([Step(1), Step(2)])
        await channel.send(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        generic: trio.abc.Channel[Step] = channel
        await pump(generic, channel)
    async with node.open_channel("127.0.0.1", 1) as anything:
        assert_type(anything, Channel[Any])


async def pump(source: trio.abc.ReceiveChannel[Step], sink: trio.abc.SendChannel[Step]) -> None:
    """Code that knows Trio's interfaces only takes our channels."""
    async for step in source:
        await sink.send(step)


async def handle(channel: Channel[Step]) -> None:
    """A handler whose channel carries steps."""
    async for step in channel:
        await channel.send(step)


async def serving(client: Client, nursery: trio.Nursery) -> None:
    """A handler names the type of its messages."""
    nursery.start_soon(client.serve_channels, handle)
    await nursery.start(client.serve_channels, handle)
    await client.serve_channels(print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def streams(client: Client) -> None:
    """A subscription yields messages or losses."""
    subscription: Subscription[Step]
    settings = StreamSettings(ordered=False)
    async with client.subscribe_to(7, "steps", late_join=5, settings=settings) as subscription:
        async for item in subscription:
            assert_type(item, Step | Loss)
            if isinstance(item, Loss):
                assert_type(item.first, int)
            else:
                assert_type(item.number, int)
    numbered: Subscription[StreamMessage[Step]]
    async with client.subscribe_to(7, "steps", numbered=True) as numbered:
        item_or_loss = await numbered.receive()
        if not isinstance(item_or_loss, Loss):
            assert_type(item_or_loss.value, Step)
    async with client.subscribe_to(7, "steps", numbered=True) as anything:
        assert_type(anything, Subscription[StreamMessage[Any]])
        received = await anything.receive()
        if not isinstance(received, Loss):
            assert_type(received.number, int)
    async with client.subscribe_to(7, "steps") as plain:
        assert_type(plain, Subscription[Any])
    async with client.publish("steps") as source:
        assert_type(await source.send(Step(1)), int)


async def nodes(node: Node, wanted: bool) -> None:
    """A node's subscriptions are those of a client."""
    async with node.subscribe("127.0.0.1", 1, "steps", numbered=True) as numbered:
        assert_type(numbered, Subscription[StreamMessage[Any]])
    async with node.subscribe("127.0.0.1", 1, "steps", numbered=wanted) as either:
        assert_type(either, Subscription[Any])


async def topics(client: Client) -> None:
    """A subscription to topics yields messages with their peers, or losses."""
    steps: TopicSubscription[Step]
    async with client.subscribe("steps/*") as steps:
        async for item in steps:
            assert_type(item, TopicMessage[Step] | TopicLoss)
            if isinstance(item, TopicLoss):
                assert_type(item.loss, Loss)
            else:
                assert_type(item.value, Step)
                assert_type(item.peer, sphtp.Peer)


async def groups(client: Client) -> None:
    """What a step returns has members, places and names."""
    async with client.join("fluid", size=2, state=lambda: 1) as group:
        assert_type(group, LockstepGroup)
        got = await group.exchange(Step(1))
        assert_type(got.rank, int)
        assert_type(got.members, tuple[GroupMember, ...])
        print(got["fluid"], got[0], got[got.members[0]])
        assert_type(got[1:], list[Any])


async def double(request: sphtp.Request) -> int:
    """A handler of requests."""
    assert_type(request.peer_id, int)
    return 2 * int(request.value)


async def requests(client: Client, nursery: trio.Nursery) -> None:
    """A request is served by an async function, and its reply may be anything."""
    await nursery.start(client.serve, "double", double)
    assert_type(await client.request("fluid", "double", 3), Any)
    await client.serve("double", print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def types() -> None:
    """A factory of message types is a codec for `Config`."""
    assert_type(Config(messages=MessageFactory([Step])), Config)


async def openers() -> None:
    """Each opener takes a config, and yields its class."""
    config = Config(channel=ChannelSettings(linger=0.0), seed=3)
    async with sphtp.open_server(new_cluster=True, config=config) as server:
        assert_type(server, sphtp.Server)
        async for server_event in server.events():
            assert_type(server_event, ServerEvent)
    async with sphtp.open_client("tcp://127.0.0.1:8764", data=1, config=config) as client:
        assert_type(client, sphtp.Client)
        async for client_event in client.events():
            assert_type(client_event, ClientEvent)
        peer = await client.wait_for_peer(lambda peer: "steps" in peer.topics)
        assert_type(peer, sphtp.Peer)
        async with client.open_channel(peer) as channel:
            assert_type(channel, Channel[Any])
    async with sphtp.open_node(config=config) as node:
        assert_type(node, sphtp.Node)
    async with sphtp.open_channel("127.0.0.1", 1, config=config) as alone:
        assert_type(alone, Channel[Any])
    assert_type(Config.from_mapping({}), Config)
    assert_type(sphtp.security.parse_key("text"), bytes)
    await sphtp.observe.fetch_status("tcp://127.0.0.1:8764", timeout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
