"""Streams whose readers are slow, late, stuck or many, on real sockets."""

from collections import deque
from typing import Any

import pytest
import trio
import trio.testing

from sphtp import Config
from sphtp.core.channel.security import SEALED, Security
from sphtp.core.datagrams import Datagrams
from sphtp.core.secure.seal import Sealer
from sphtp.core.stream.events import Loss
from sphtp.core.stream.sealing import SealCounters, StreamUnsealer
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import encode_data, stream_header
from sphtp.errors import MessageTooLargeError
from sphtp.shell.hosted_streams import FanOutSocket
from sphtp.shell.node import Node
from sphtp.shell.subscription import Subscription
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import open_elsewhere, open_node
from tests.shell.streams.joined import overheard
from tests.sockets import Sockets

pytestmark = within_20_seconds

TOPIC = "positions"
SMALL = StreamSettings(flow_window=65_536, receive_buffer=65_536, patience=0.3)
"""Whoever reads is not to be left behind when the machine is slow."""

BOTH = pytest.mark.parametrize("security", [SEALED, None], ids=["sealed", "clear"])


async def take(stream: Subscription, count: int) -> list[Any]:
    items = list[Any]()
    while len(items) < count:
        items += await stream.receive_many(count - len(items))
    return items


async def test_who_stands_still_holds_the_others_up_once_and_not_again() -> None:
    """In seven windows."""
    async with (
        open_node() as here,
        open_node() as one,
        open_node() as other,
        here.open_source(TOPIC, settings=SMALL) as source,
        one.subscribe(*here.address, topic=TOPIC, settings=SMALL) as quick,
        other.subscribe(*here.address, topic=TOPIC, settings=SMALL) as stuck,
        trio.open_nursery() as nursery,
    ):
        messages = [bytes(1000)] * 500
        nursery.start_soon(source.send_many, messages)
        assert len(await take(quick, 500)) == 500
        assert source.statistics().left_behind == 1
        assert len(await take(stuck, 100)) == 100


async def test_of_a_list_with_a_message_that_is_too_large_none_is_sent() -> None:
    """Although the queue takes the list in several parts."""
    settings = StreamSettings(max_message=10_000)
    async with open_node() as here, here.open_source(TOPIC, settings=settings) as source:
        with pytest.raises(MessageTooLargeError):
            await source.send_many([*[bytes(1000)] * 50_000, bytes(20_000)])
        assert source.statistics().messages_sent == 0


async def test_what_a_slow_reader_has_no_room_for_is_fetched_when_it_has() -> None:
    async with (
        open_node() as here,
        open_node() as one,
        here.open_source(TOPIC, settings=SMALL) as source,
        one.subscribe(*here.address, topic=TOPIC, settings=SMALL) as stuck,
    ):
        messages = [b"%d " % number + bytes(1000) for number in range(1000)]
        await source.send_many(messages)
        await until(lambda: source.statistics().waiting_bytes == 0)
        assert source.statistics().left_behind == 1
        assert await take(stuck, 1000) == messages


async def test_a_late_joiner_that_reads_nothing_for_a_while_misses_nothing() -> None:
    async with open_node() as here, open_node() as one, here.open_source(TOPIC) as source:
        messages = [b"%d " % number + bytes(1000) for number in range(1000)]
        await source.send_many(messages)
        async with one.subscribe(
            *here.address, topic=TOPIC, late_join=True, settings=SMALL
        ) as stream:
            await trio.testing.wait_all_tasks_blocked(0.1)
            held = stream.statistics().delivery.delivered
            assert 0 < held < 500, "it fetches no more than it has room for"
            assert await take(stream, 1000) == messages


async def test_closing_waits_for_those_who_fetch_and_no_longer() -> None:
    got = list[Any]()

    async def read(node: Node, source_node: Node) -> None:
        async with node.subscribe(*source_node.address, topic=TOPIC, late_join=True) as stream:
            got.extend([item async for item in stream])

    # Longer than this test may take.
    settings = StreamSettings(linger=60)
    async with (
        open_node() as here,
        open_node() as there,
        trio.open_nursery() as nursery,
        here.open_source(TOPIC, settings=settings) as source,
    ):
        await source.send_many(range(5000))
        nursery.start_soon(read, there, here)
        await source.wait_for_receivers()
    assert got == list(range(5000))


@BOTH
async def test_two_nodes_may_subscribe_to_each_other_at_once(security: Security | None) -> None:
    joined = list[str]()

    async def join(node: Node, other: Node, topic: str) -> None:
        async with node.subscribe(*other.address, topic=topic):
            joined.append(topic)

    async with (
        open_node(config=Config(security=security)) as left,
        open_node(config=Config(security=security)) as right,
        left.open_source("left"),
        right.open_source("right"),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(join, left, right, "right")
        nursery.start_soon(join, right, left, "left")
    assert sorted(joined) == ["left", "right"]


async def test_sides_need_not_agree_on_sizes() -> None:
    """The source tells how far it may be ahead: reports come in time for that."""
    # A window that waits does so until a session message: for longer than this test may take.
    settings = StreamSettings(
        max_datagram=32_000, retention=0, session_min=30, session_max=30, activity_timeout=90
    )
    async with open_node() as here, open_node() as there:
        with trio.CancelScope() as scope:
            async with (
                here.open_source(TOPIC, settings=settings) as source,
                there.subscribe(*here.address, topic=TOPIC) as stream,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(source.send_many, [bytes(1000)] * 10_000)
                assert len(await take(stream, 10_000)) == 10_000
                # The end would be told with session messages, too.
                scope.cancel()


async def test_what_another_receiver_sends_is_not_the_sources(sockets: Sockets) -> None:
    """Although it has the key of the source."""
    with overheard() as joined:
        async with (
            open_node() as here,
            open_node() as there,
            open_node() as liar,
            here.open_source(TOPIC) as source,
            there.subscribe(*here.address, topic=TOPIC) as stream,
            liar.subscribe(*here.address, topic=TOPIC),
        ):
            _, (_, welcome) = joined
            assert welcome.key is not None
            sealer = Sealer(welcome.key.key, stream_header(welcome.session, welcome.key.number))
            forged = sealer.seal_row([encode_data(1, welcome.window, b"")])
            assert StreamUnsealer(welcome.key, SealCounters()).open(forged, len(forged))
            sockets[liar.address].send(deque([Datagrams.of(there.address, forged)]))
            await until(lambda: there.statistics().stream_foreign == 1)
            await source.send("true")
            assert await stream.receive() == "true"


async def test_a_closed_node_lets_go_of_whoever_waits_for_its_sources() -> None:
    async with open_elsewhere() as (node, close), node.open_source(TOPIC) as source:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_closed, source.wait_for_receivers)
            await trio.testing.wait_all_tasks_blocked()
            await close()
        with pytest.raises(trio.ClosedResourceError):
            await source.send(1)


async def expect_closed(wait: Any) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await wait()


async def test_a_socket_that_was_full_when_the_last_source_left_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_node() as here, open_node() as there:
        with trio.CancelScope() as scope:
            async with (
                here.open_source(TOPIC) as source,
                there.subscribe(*here.address, topic=TOPIC),
            ):
                monkeypatch.setattr(FanOutSocket, "send", lambda _: False)
                await source.send(1)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        monkeypatch.undo()
        async with there.open_channel(*here.address) as channel:
            await channel.send("still there")
            assert await (await here.accept()).receive() == "still there"


async def test_losses_are_told_where_nothing_is_kept() -> None:
    settings = StreamSettings(flow_window=65_536, receive_buffer=65_536, patience=0.05, retention=0)
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, settings=settings) as source,
        there.subscribe(*here.address, topic=TOPIC, settings=settings) as stream,
    ):
        await source.send_many([bytes(1000)] * 1000)
        await source.aclose()
        got = [item async for item in stream]
        losses = [item for item in got if isinstance(item, Loss)]
        assert losses
        assert len(got) - len(losses) + sum(x.last - x.first + 1 for x in losses) == 1000
