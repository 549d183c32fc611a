"""Streams between nodes, on real sockets."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio

from sphtp import Config
from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.messages import MessageFactory
from sphtp.core.stream.events import Loss
from sphtp.core.stream.membership import Welcome
from sphtp.core.stream.settings import StreamSettings
from sphtp.errors import LocalError, RefusedError, SettingsError, StateError, UnreachableError
from sphtp.shell.channel import Channel
from sphtp.shell.impairment import Impairment
from sphtp.shell.node import Node
from sphtp.shell.source import Source
from sphtp.shell.subscription import Subscription, Terms, join
from sphtp.shell.udp import MulticastGroup
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import open_elsewhere, open_node
from tests.shell.streams.joined import overheard

pytestmark = within_20_seconds

TOPIC = "positions"
SECURITIES = pytest.mark.parametrize("security", [SEALED, None], ids=["sealed", "clear"])


@asynccontextmanager
async def opened(
    readers: int = 1,
    *,
    settings: StreamSettings | None = None,
    reading: StreamSettings | None = None,
    security: Security | None = SEALED,
    impairment: Impairment | None = None,
) -> AsyncIterator[tuple[Source, list[Subscription]]]:
    """A source, and subscriptions to it, each from a node of its own."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            open_node(config=Config(security=security, seed=1, impairment=impairment))
        )
        nodes = [
            await stack.enter_async_context(
                open_node(config=Config(security=security, seed=2 + n, impairment=impairment))
            )
            for n in range(readers)
        ]
        source = await stack.enter_async_context(node.open_source(TOPIC, settings=settings))
        streams = [
            await stack.enter_async_context(
                one.subscribe(*node.address, topic=TOPIC, settings=reading)
            )
            for one in nodes
        ]
        yield source, streams


async def take(stream: Subscription, count: int) -> list[Any]:
    items = list[Any]()
    while len(items) < count:
        items += await stream.receive_many(count - len(items))
    return items


async def read_all(stream: Subscription) -> list[Any]:
    return [item async for item in stream]


@SECURITIES
async def test_every_receiver_gets_everything_in_order(security: Security | None) -> None:
    async with opened(3, security=security) as (source, streams):
        assert len(source.receivers) == 3
        await source.send({"step": 1})
        await source.send_many(range(5000))
        for stream in streams:
            assert await take(stream, 5001) == [{"step": 1}, *range(5000)]


@SECURITIES
async def test_a_bad_network_loses_and_repeats_nothing(security: Security | None) -> None:
    bad = Impairment(loss=0.1, duplicate=0.05, reorder=0.1)
    async with opened(2, security=security, impairment=bad) as (source, streams):
        for start in range(0, 3000, 100):
            await source.send_many(range(start, start + 100))
            await trio.lowlevel.checkpoint()
        await source.aclose()
        for stream in streams:
            assert await read_all(stream) == list(range(3000))
            assert stream.statistics().transport.naks_sent > 0


@pytest.mark.parametrize(("host", "least", "most"), [("127.0.0.1", 4, 20), ("0.0.0.0", 80, 200)])
async def test_datagrams_are_large_where_only_this_machine_is_reached(
    host: str, least: int, most: int
) -> None:
    async with open_node(host) as here, open_node() as there, here.open_source(TOPIC) as source:
        async with there.subscribe("127.0.0.1", here.address[1], topic=TOPIC) as stream:
            messages = [bytes([n]) * 100 for n in range(250)] * 5
            await source.send_many(messages)
            assert await take(stream, len(messages)) == messages
        assert least <= source.statistics().datagrams_sent <= most


async def test_what_comes_before_this_side_is_ready_is_not_lost() -> None:
    """The source does not wait until its answer was read."""
    async with open_node() as here, open_node() as there, here.open_source(TOPIC) as source:
        late = trio.Event()

        async def answer_late(channel: Channel, *args: Any, **kwargs: Any) -> Welcome:
            welcome = await join(channel, *args, **kwargs)
            await source.send_many(range(1000))
            while there.statistics().received < 3 + source.statistics().datagrams_sent:
                await trio.lowlevel.checkpoint()
            late.set()
            return welcome

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sphtp.shell.subscription.join", answer_late)
            async with there.subscribe(*here.address, topic=TOPIC) as stream:
                assert late.is_set()
                assert await take(stream, 1000) == list(range(1000))
                assert stream.statistics().transport.lost == 0
        assert there.statistics().stream_unknown == 0


async def test_who_receives_one_by_one_and_many_gets_all_in_order() -> None:
    async with opened() as (source, (stream,)):
        await source.send_many(range(3000))
        got = [await stream.receive(), stream.receive_nowait()]
        for limit in (1, 5, 64, 100, 1, 1500):
            items = await stream.receive_many(limit)
            assert 1 <= len(items) <= limit
            got += items
        got += await take(stream, 3000 - len(got))
        assert got == list(range(3000))
        with pytest.raises(trio.WouldBlock):
            stream.receive_nowait()
        for limit in (0, -1):
            with pytest.raises(LocalError, match=f"limit is {limit}"):
                await stream.receive_many(limit)


async def test_large_messages_arrive_whole() -> None:
    async with opened() as (source, (stream,)):
        large = [bytes([n]) * 300_000 for n in range(4)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.send_many, [*large, "small"])
            assert await take(stream, 5) == [*large, "small"]


async def test_closing_ends_the_stream_when_all_is_told_and_lasts_no_longer_than_that() -> None:
    async with opened(2, settings=StreamSettings(linger=10)) as (source, streams):
        await source.send_many(range(100))
        before = trio.current_time()
        await source.aclose()
        assert trio.current_time() - before < 5
        with pytest.raises(trio.ClosedResourceError):
            await source.send("late")
        for stream in streams:
            assert await read_all(stream) == list(range(100))


async def test_a_source_that_vanishes_ends_the_stream() -> None:
    async with (
        open_node() as there,
        open_elsewhere() as (here, close),
        here.open_source(TOPIC) as source,
        there.subscribe(*here.address, topic=TOPIC) as stream,
    ):
        await source.send(1)
        assert await stream.receive() == 1
        await close()
        with pytest.raises(trio.BrokenResourceError, match="its node is gone"):
            await read_all(stream)


@pytest.mark.parametrize(("late_join", "got"), [(True, 20), (5, 5), (False, 0), (100, 20)])
async def test_who_joins_late_gets_the_history_it_wants(late_join: bool | int, got: int) -> None:
    async with open_node() as here, open_node() as there, here.open_source(TOPIC) as source:
        await source.send_many(range(20))
        async with there.subscribe(*here.address, topic=TOPIC, late_join=late_join) as stream:
            await source.send_many(range(20, 30))
            await source.aclose()
            assert await read_all(stream) == list(range(20 - got, 30))


async def test_without_retention_there_is_no_history() -> None:
    settings = StreamSettings(retention=0)
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, settings=settings) as source,
    ):
        await source.send("before")
        async with there.subscribe(*here.address, topic=TOPIC, late_join=True) as stream:
            await source.send("after")
            assert await stream.receive() == "after"


async def test_topics_of_a_source_are_apart() -> None:
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source("a", "b") as source,
        there.subscribe(*here.address, topic="a") as first,
        there.subscribe(*here.address, topic="b") as second,
    ):
        for number in range(100):
            await source.send(number, topic="ab"[number % 2])
        with pytest.raises(StateError, match="no topic 'c'"):
            await source.send(1, topic="c")
        await source.aclose()
        assert await read_all(first) == list(range(0, 100, 2))
        assert await read_all(second) == list(range(1, 100, 2))


async def test_in_order_of_arrival_everything_comes_once() -> None:
    bad, reading = Impairment(loss=0.1, reorder=0.2), StreamSettings(ordered=False)
    async with opened(impairment=bad, reading=reading) as (source, (stream,)):
        for number in range(500):
            await source.send(number)
        await source.aclose()
        got = await read_all(stream)
        assert sorted(got) == list(range(500))
        assert got != sorted(got)


async def test_a_slow_reader_gets_everything_and_holds_the_source_up() -> None:
    settings = StreamSettings(flow_window=65_536, receive_buffer=65_536)
    async with opened(settings=settings, reading=settings) as (source, (stream,)):
        messages = [bytes([n % 256]) * 1000 for n in range(2000)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.send_many, messages)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert source.statistics().datagrams_sent < 500
            assert await take(stream, 2000) == messages


async def test_a_reader_that_stands_still_is_left_behind_and_told_what_it_lost() -> None:
    # Several windows; the quick one is not to be left behind when the machine is slow.
    settings = StreamSettings(flow_window=65_536, receive_buffer=65_536, patience=0.3)
    reading = replace(settings, recover=False)
    async with opened(2, settings=settings, reading=reading) as (source, (stuck, quick)):
        messages = [bytes([n % 256]) * 1000 for n in range(500)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.send_many, messages)
            assert await take(quick, 500) == messages
        assert source.statistics().left_behind >= 1
        await source.aclose()
        got = await read_all(stuck)
        losses = [item for item in got if isinstance(item, Loss)]
        lost = sum(loss.last - loss.first + 1 for loss in losses)
        assert losses
        assert len(got) - len(losses) + lost == 500


async def test_who_leaves_is_forgotten_and_the_others_stay() -> None:
    with overheard() as joined:
        async with opened() as (source, (stream,)), open_node() as third:
            address = joined[0].channel.peer_address
            assert address is not None
            async with third.subscribe(*address, topic=TOPIC) as brief:
                await source.send(1)
                assert await brief.receive() == 1
                assert len(source.receivers) == 2
            await until(lambda: len(source.receivers) == 1)
            await source.send_many([2, 3])
            assert await take(stream, 3) == [1, 2, 3]
            while (key := joined[-1].welcome.key) is None or key.number == 0:
                async with third.subscribe(*address, topic=TOPIC):
                    pass
            await source.send(4)
            assert await stream.receive() == 4, "sealed with a key that those who left have not got"


async def test_a_topic_that_nobody_has_is_refused() -> None:
    async with open_node() as here, open_node() as there, here.open_source("other"):
        with pytest.raises(RefusedError, match="no source of the topic 'positions'") as caught:
            async with there.subscribe(*here.address, topic=TOPIC):
                pass
        assert caught.value.reason == "topic"


async def test_a_source_takes_as_many_receivers_as_it_may_have() -> None:
    settings = StreamSettings(max_receivers=1)
    async with (
        open_node() as here,
        open_node() as there,
        open_node() as third,
        here.open_source(TOPIC, settings=settings),
        there.subscribe(*here.address, topic=TOPIC),
    ):
        with pytest.raises(RefusedError, match="all receivers"):
            async with third.subscribe(*here.address, topic=TOPIC):
                pass


async def test_nobody_there_is_told() -> None:
    impatient = Config(channel=ChannelSettings(connect_timeout=0.5))
    async with open_node(config=impatient) as node, open_elsewhere() as (gone, close):
        await close()
        with pytest.raises((UnreachableError, RefusedError)):
            async with node.subscribe(*gone.address, topic=TOPIC):
                pass


@dataclass
class Shot:
    power: int


@pytest.mark.parametrize("messages", [None, MessageFactory([Shot], max_elements=7)])
async def test_a_receiver_with_other_types_of_messages_is_refused(
    messages: MessageFactory | None,
) -> None:
    """It would decode other values from the bytes than those that were sent."""
    typed = Config(messages=MessageFactory([Shot]))
    async with open_node(config=typed) as node, node.open_source(TOPIC) as source:
        with pytest.raises(RefusedError, match="message types differ") as refused:
            async with (
                open_node(config=Config(messages=messages)) as other,
                other.subscribe(*node.address, topic=TOPIC),
            ):
                raise AssertionError("joined")
        assert refused.value.reason == "schema"
        async with (
            open_node(config=typed) as same,
            same.subscribe(*node.address, topic=TOPIC) as stream,
        ):
            await source.send(Shot(3))
            assert await stream.receive() == Shot(3)


async def test_bad_topics_are_refused_by_name() -> None:
    async with open_node() as node, node.open_source(TOPIC):
        with pytest.raises(StateError, match="has a source of the topic 'positions' already"):
            async with node.open_source(TOPIC):
                pass
        for topics in ((), ("a", "a")):
            with pytest.raises(SettingsError, match="topics"):
                async with node.open_source(*topics):
                    pass
        with pytest.raises(SettingsError, match="late_join"):
            Terms(late_join=-1)
        for interface in ("lo", "239.0.0.1", "::1"):
            with pytest.raises(SettingsError, match="interface"):
                StreamSettings(interface=interface)


async def test_an_error_in_the_block_leaves_as_itself() -> None:
    async with open_node() as here, open_node() as there:
        with pytest.raises(ValueError, match="mine"):
            async with here.open_source(TOPIC):
                raise ValueError("mine")
        async with here.open_source(TOPIC):
            with pytest.raises(ValueError, match="mine"):
                async with there.subscribe(*here.address, topic=TOPIC):
                    raise ValueError("mine")


async def test_an_error_inside_a_block_leaves_it_as_it_is() -> None:
    async with open_node() as here, open_node() as there:
        with pytest.raises(ZeroDivisionError):
            async with here.open_source(TOPIC):
                raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            async with (
                here.open_source(TOPIC),
                there.subscribe(*here.address, topic=TOPIC, late_join=True),
            ):
                raise ZeroDivisionError


async def test_waiting_for_receivers_ends_when_they_are_there_or_the_source_closes() -> None:
    async with open_node() as here, open_node() as there, here.open_source(TOPIC) as source:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.wait_for_receivers, 1)
            await nursery.start(keep, there, here)
            nursery.cancel_scope.cancel()
        await source.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await source.wait_for_receivers(2)


async def keep(
    node: Node, other: Node, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with node.subscribe(*other.address, topic=TOPIC):
        task_status.started()
        await trio.sleep_forever()


@SECURITIES
async def test_a_group_gets_each_datagram_once(security: Security | None) -> None:
    group = MulticastGroup("239.86.84.80", await unused_port(), "127.0.0.1")
    async with (
        open_node(config=Config(security=security)) as here,
        open_node(config=Config(security=security)) as left,
        open_node(config=Config(security=security)) as right,
        here.open_source(TOPIC, group=group) as source,
        left.subscribe(*here.address, topic=TOPIC) as one,
        right.subscribe(*here.address, topic=TOPIC) as other,
    ):
        await source.send_many(range(1000))
        await source.aclose()
        assert await read_all(one) == await read_all(other) == list(range(1000))


@SECURITIES
async def test_what_a_bad_network_loses_of_a_group_is_repaired(security: Security | None) -> None:
    bad = Impairment(loss=0.1, duplicate=0.05, reorder=0.1)
    group = MulticastGroup("239.86.84.80", await unused_port(), "127.0.0.1")
    async with (
        open_node(config=Config(security=security, seed=1, impairment=bad)) as here,
        open_node(config=Config(security=security, seed=2, impairment=bad)) as left,
        open_node(config=Config(security=security, seed=3, impairment=bad)) as right,
        here.open_source(TOPIC, group=group) as source,
        left.subscribe(*here.address, topic=TOPIC) as one,
        right.subscribe(*here.address, topic=TOPIC) as other,
    ):
        for start in range(0, 3000, 100):
            await source.send_many(range(start, start + 100))
            await trio.lowlevel.checkpoint()
        await source.aclose()
        assert await read_all(one) == await read_all(other) == list(range(3000))
        assert source.statistics().repairs_sent > 0
        assert one.statistics().transport.naks_sent > 0


async def unused_port() -> int:
    with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as one:
        await one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "wrong",
    [{"host": "10.0.0.1"}, {"port": 0}, {"interface": "lo"}, {"ttl": 0}, {"host": "localhost"}],
)
async def test_what_is_no_group_is_refused_by_name(wrong: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"host": "239.0.0.1", "port": 9000, "interface": "127.0.0.1"} | wrong
    with pytest.raises(SettingsError, match=f"^{next(iter(wrong))} is"):
        MulticastGroup(**whole)
