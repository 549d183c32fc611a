"""Subscriptions to topics of all peers, between clients of a real cluster."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast
from unittest.mock import ANY

import pytest
import trio
import trio.testing

from sphtp import Client, Loss, Peer, Source, StreamMessage
from sphtp.config import StreamSettings
from sphtp.core.topics import TopicPattern
from sphtp.errors import SettingsError
from sphtp.events import ClientEvent, PeerChanged, PeerLeft, Reason, Suspended
from sphtp.shell import topics
from sphtp.shell.feed import Feed
from sphtp.shell.lifetime import running
from sphtp.streams import (
    LossReason,
    TopicLoss,
    TopicMessage,
    TopicSourceEnded,
    TopicSubscription,
)
from sphtp.streams import SourceEndReason as Why
from tests.deadline import until, within_20_seconds
from tests.shell.test_client import client, cluster, kept

pytestmark = within_20_seconds

SMALL = StreamSettings(flow_window=65_536, receive_buffer=65_536, patience=0.3)
"""A reader that stands still is left behind after 0.3 s."""


PEER = Peer(3, b"", (), 33, topics=("state",))


class ScriptedStreams:
    """A peer with one source. Each stream of it brings its items; then it breaks, or stays."""

    session = 77
    ended = None

    def __init__(self, *scripts: list[StreamMessage[str] | Loss]) -> None:
        self._scripts = list(scripts)
        self.peers = {3: PEER}
        self.breaks = trio.Event()
        self.subscription: TopicSubscription = cast("TopicSubscription", None)
        self.feed = Feed[ClientEvent]()
        self.joined: list[dict[str, Any]] = []

    @asynccontextmanager
    async def subscribed(self, late_join: int = 0, **options: Any) -> AsyncIterator[None]:
        tasks = list[Callable[[], Awaitable[None]]]()
        self.subscription = TopicSubscription(
            tasks.append, TopicPattern("*"), self.peers, self.feed.listen, self.join, late_join,
            **options,
        )  # fmt: skip
        async with running(tasks[0]), self.subscription:
            yield

    @asynccontextmanager
    async def join(self, _peer_id: int, _topic: str, **begin: Any) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        self.joined.append(begin)
        yield self

    async def receive_many(self, _limit: int) -> list[StreamMessage[str] | Loss]:
        await trio.lowlevel.checkpoint()
        if not self._scripts:
            await self.breaks.wait()
            raise trio.BrokenResourceError
        if items := self._scripts[0]:
            self._scripts[0] = []
            return items
        self._scripts.pop(0)
        raise trio.BrokenResourceError


@asynccontextmanager
async def reader_and(count: int) -> AsyncIterator[tuple[Client, list[Client]]]:
    """A client that reads, and others of the same cluster."""
    async with cluster(1) as (only,), trio.open_nursery() as nursery:
        clients = [
            await nursery.start(kept, client(only.address, data=number))
            for number in range(1 + count)
        ]
        yield clients[0], clients[1:]
        nursery.cancel_scope.cancel()


async def take(subscription: TopicSubscription, count: int) -> list[Any]:
    return [await subscription.receive() for _ in range(count)]


async def value(subscription: TopicSubscription) -> Any:
    item = await subscription.receive()
    assert isinstance(item, TopicMessage)
    return item.value


def values(items: list[TopicMessage]) -> set[tuple[int, str, int, Any]]:
    return {(item.peer.id, item.topic, item.number, item.value) for item in items}


async def test_sources_that_are_there_and_those_that_come_are_one_subscription() -> None:
    async with (
        reader_and(2) as (reader, (one, other)),
        one.publish("positions/1") as first,
        reader.subscribe("positions/*") as subscription,
        trio.open_nursery() as nursery,
    ):
        ends = await nursery.start(ends_of, subscription)
        await first.wait_for_receivers()
        async with other.publish("positions/2", "speeds/2") as second:
            await second.wait_for_receivers()
            await first.send("a")
            await second.send("b")
            await second.send("not selected", topic="speeds/2")
            assert values(await take(subscription, 2)) == {
                (one.id, "positions/1", 0, "a"),
                (other.id, "positions/2", 0, "b"),
            }
            assert {it.peer_id for it in subscription.sources} == {one.id, other.id}
            await second.send("last")
        assert await value(subscription) == "last"
        await until(lambda: ends != [])
        assert ends == [TopicSourceEnded(reader.peers[other.id], "positions/2", Why.CLOSED)]
        assert {it.peer_id for it in subscription.sources} == {one.id}
        with pytest.raises(trio.WouldBlock):
            subscription.receive_nowait()
        await subscription.aclose()


async def test_three_that_come_and_go_and_begin_anew_are_followed() -> None:
    async def come_and_go(publisher: Client, name: str) -> None:
        for turn in range(3):
            async with publisher.publish(f"state/{name}") as source:
                await source.wait_for_receivers()
                await source.send_many([(name, turn, step) for step in range(50)])

    async with reader_and(3) as (reader, publishers), reader.subscribe("state/**") as subscription:
        async with trio.open_nursery() as nursery:
            for publisher, name in zip(publishers, "abc", strict=True):
                nursery.start_soon(come_and_go, publisher, name)
            items = await take(subscription, 450)
        ids = {name: publisher.id for publisher, name in zip(publishers, "abc", strict=True)}
        for name in "abc":
            own = [item for item in items if item.value[0] == name]
            assert {item.peer.id for item in own} == {ids[name]}
            assert [tuple(item.value[1:]) for item in own] == [
                (turn, step) for turn in range(3) for step in range(50)
            ]
            assert [item.number for item in own] == 3 * [*range(50)]
        await until(lambda: not subscription.sources)


async def test_a_peer_whose_program_ends_in_the_middle_is_followed_no_more() -> None:
    async def publish(address: object, *, task_status: trio.TaskStatus[Source]) -> None:
        async with client(address) as leaver, leaver.publish("state") as source:
            task_status.started(source)
            await trio.sleep_forever()

    async with (
        cluster(1) as (only,),
        client(only.address) as reader,
        reader.subscribe("**") as subscription,
        trio.open_nursery() as reading,
    ):
        ends = await reading.start(ends_of, subscription)
        async with trio.open_nursery() as nursery:
            source = await nursery.start(publish, only.address)
            await source.wait_for_receivers()
            await source.send(1)
            assert await value(subscription) == 1
            nursery.cancel_scope.cancel()
        await until(lambda: ends != [])
        (end,) = ends
        # The source closes before the client leaves, and the servers may report that first.
        assert (end.topic, end.reason in {Why.CLOSED, Why.LEFT}) == ("state", True)
        assert not subscription.sources
        await until(lambda: not reader.peers)
        await subscription.aclose()


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (PeerChanged(replace(PEER, topics=())), Why.CLOSED),
        (PeerLeft(PEER, Reason.LEFT), Why.LEFT),
        (PeerLeft(PEER, Reason.EXPIRED), Why.DIED),
    ],
)
async def test_the_end_of_a_source_is_an_event_after_its_last_item(
    event: ClientEvent, why: Why, autojump_clock: trio.abc.Clock
) -> None:
    streams = ScriptedStreams([StreamMessage(0, "a")], [StreamMessage(1, "b")])
    async with streams.subscribed(), trio.open_nursery() as nursery:
        subscription = streams.subscription
        ends = await nursery.start(ends_of, subscription)
        await until(lambda: len(streams.joined) == 3)
        # It is closed and opened again while there is a stream of it.
        streams.feed.publish(PeerChanged(replace(PEER, topics=())))
        streams.feed.publish(PeerChanged(PEER))
        streams.feed.publish(event)
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
        streams.breaks.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [item.value for item in await take(subscription, 2)] == ["a", "b"]
        assert ends == [TopicSourceEnded(PEER, "state", why)]
        await subscription.aclose()


async def test_an_end_that_was_missed_among_thousands_of_events_is_seen(
    autojump_clock: trio.abc.Clock,
) -> None:
    streams = ScriptedStreams()
    async with streams.subscribed(), trio.open_nursery() as nursery:
        ends = await nursery.start(ends_of, streams.subscription)
        await trio.testing.wait_all_tasks_blocked()
        streams.breaks.set()
        del streams.peers[PEER.id]
        for _ in range(2000):
            streams.feed.publish(Suspended())
        await trio.sleep(10)
        assert ends == [TopicSourceEnded(PEER, "state", Why.DIED)]
        await streams.subscription.aclose()


async def ends_of(
    subscription: TopicSubscription, *, task_status: trio.TaskStatus[list[TopicSourceEnded]]
) -> None:
    """Note the ends of sources, as long as the subscription lasts."""
    with subscription.events() as events:
        ends = list[TopicSourceEnded]()
        task_status.started(ends)
        async for event in events:
            if isinstance(event, TopicSourceEnded):
                ends.append(event)


async def test_a_slow_reader_of_the_latest_holds_up_nobody_and_keeps_one_of_each() -> None:
    async with (
        reader_and(2) as (reader, (one, other)),
        one.publish("state/1", settings=SMALL) as first,
        other.publish("state/2", settings=SMALL) as second,
        reader.subscribe("state/*", latest=True, settings=SMALL) as subscription,
    ):
        for source in (first, second):
            await source.wait_for_receivers()
        for step in range(500):
            await first.send([step, bytes(1000)])
        await second.send_many([[step, b""] for step in range(3)])
        await until(lambda: subscription.overtaken == 499 + 2)
        assert first.statistics().left_behind == 0
        newest = {
            item.topic: (item.number, item.value[0], item.skipped)
            for item in await take(subscription, 2)
        }
        assert newest == {"state/1": (499, 499, 499), "state/2": (2, 2, 2)}
        with pytest.raises(trio.WouldBlock):
            subscription.receive_nowait()
        await first.send("next")
        assert await subscription.receive() == TopicMessage(ANY, "state/1", 500, "next", skipped=0)


async def test_a_reader_of_the_latest_goes_on_behind_what_it_has() -> None:
    streams = ScriptedStreams(
        [StreamMessage(4, "a"), StreamMessage(5, "b"), Loss(6, 7, LossReason.TIMEOUT)],
        [Loss(8, 8, LossReason.GONE), StreamMessage(9, "c")],
    )
    async with streams.subscribed(late_join=3, is_latest=True):
        await until(lambda: len(streams.joined) == 2)
        await trio.testing.wait_all_tasks_blocked()
        assert await streams.subscription.receive() == TopicMessage(ANY, "state", 9, "c", skipped=5)
    assert streams.joined == [{"late_join": 3}, {"session": 77, "after": 7}]


async def test_a_loss_is_reported_with_its_peer_and_its_numbers() -> None:
    async with (
        reader_and(1) as (reader, (publisher,)),
        publisher.publish("state", settings=SMALL) as source,
        reader.subscribe("*", settings=replace(SMALL, recover=False)) as subscription,
    ):
        await source.wait_for_receivers()
        await source.send_many([bytes(1000)] * 1000)
        await until(lambda: source.statistics().waiting_bytes == 0)
        await source.send("end")
        numbers, losses = list[int](), 0
        while 1000 not in numbers:
            item = await subscription.receive()
            assert (item.peer.id, item.topic) == (publisher.id, "state")
            if isinstance(item, TopicLoss):
                losses += 1
                numbers += range(item.loss.first, item.loss.last + 1)
            else:
                numbers.append(item.number)
        assert numbers == [*range(1001)]
        assert losses > 0


async def test_the_source_sees_who_is_slow() -> None:
    patient = StreamSettings(flow_window=65_536, receive_buffer=65_536)
    async with (
        reader_and(2) as (reader, (publisher, quick)),
        publisher.publish("state", settings=patient) as source,
        reader.subscribe("*", settings=patient),
        quick.subscribe("*", settings=patient, latest=True) as latest,
        trio.open_nursery() as nursery,
    ):
        await source.wait_for_receivers(2)
        nursery.start_soon(source.send_many, [bytes(1000)] * 1000)
        await until(lambda: slow_peers(source) == {reader.id})
        assert (await latest.receive()).peer.id == publisher.id
        nursery.cancel_scope.cancel()


def slow_peers(source: Source) -> set[int]:
    """The peers that have no room for a dozen messages more."""
    return {it.peer_id for it in source.receivers if it.room < 12_000}


async def test_who_comes_late_gets_what_each_source_keeps() -> None:
    async with (
        reader_and(2) as (reader, (one, other)),
        one.publish("state/1") as first,
        other.publish("state/2") as second,
    ):
        await first.send_many(range(5))
        await second.send_many(range(5))
        async with reader.subscribe("state/*", late_join=2) as subscription:
            items = await take(subscription, 4)
        assert {(item.topic, item.value) for item in items} == {
            ("state/1", 3), ("state/1", 4), ("state/2", 3), ("state/2", 4),
        }  # fmt: skip


async def test_a_source_that_refuses_is_named_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "LONGEST_RETRY", 0.1)
    one_only = StreamSettings(max_receivers=1)
    async with (
        reader_and(2) as (reader, (publisher, first)),
        publisher.publish("state", settings=one_only) as source,
        first.subscribe("*") as taking,
        trio.open_nursery() as nursery,
    ):
        await source.wait_for_receivers()
        async with reader.subscribe("*") as subscription:
            await until(lambda: bool(subscription.failures))
            ((failed, why),) = subscription.failures.items()
            assert (failed.peer_id, failed.topic) == (publisher.id, "state")
            assert "all receivers" in why
            await taking.aclose()
            await until(lambda: bool(subscription.sources))
            await source.send(1)
            assert await value(subscription) == 1
            assert not subscription.failures
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("pattern", ["", "a*", "***"])
async def test_a_pattern_that_is_none_is_an_error(pattern: str) -> None:
    async with reader_and(0) as (reader, _):
        with pytest.raises(SettingsError, match="pattern is"):
            async with reader.subscribe(pattern):
                raise AssertionError("subscribed")
        with pytest.raises(SettingsError, match="late_join"):
            async with reader.subscribe("*", late_join=-1):
                raise AssertionError("subscribed")


async def test_closing_ends_who_waits_and_cancelling_loses_nothing() -> None:
    async with (
        reader_and(1) as (reader, (publisher,)),
        publisher.publish("state") as source,
        reader.subscribe("*") as subscription,
    ):
        await source.wait_for_receivers()
        for step in range(10):
            with trio.CancelScope() as scope:
                scope.cancel()
                await subscription.receive()
            await source.send(step)
        assert [item.value for item in await take(subscription, 10)] == [*range(10)]
        await raises_closed(subscription.receive, subscription.aclose)
        with pytest.raises(trio.ClosedResourceError):
            await subscription.receive()
        await until(lambda: not source.receivers)


async def raises_closed(
    receive: Callable[[], Awaitable[object]], close: Callable[[], Awaitable[None]]
) -> None:
    async def waiting() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting)
        await trio.testing.wait_all_tasks_blocked()
        await close()


@pytest.mark.parametrize("steps", [0, 1, 3, 10, 30])
async def test_subscribing_that_is_cancelled_at_any_moment_leaves_nothing(steps: int) -> None:
    async def subscribe(reader: Client) -> None:
        async with reader.subscribe("*") as subscription:
            async for _ in subscription:
                pass

    async with reader_and(1) as (reader, (publisher,)), publisher.publish("state") as source:
        await reader.wait_for_peer(lambda peer: bool(peer.topics))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(subscribe, reader))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        await until(lambda: not source.receivers)


async def test_a_subscription_ends_with_its_client() -> None:
    async with cluster(1) as (only,), trio.open_nursery() as nursery:
        closing = trio.CancelScope()
        reader = await nursery.start(kept, client(only.address), closing)
        writer = await nursery.start(kept, client(only.address))

        async def read() -> None:
            async with reader.subscribe("positions/*") as subscription:
                await until(lambda: subscription.sources != ())
                closing.cancel()
                with pytest.raises(trio.ClosedResourceError):
                    await subscription.receive()

        async with writer.publish("positions/1"), trio.open_nursery() as reading:
            reading.start_soon(read)
        nursery.cancel_scope.cancel()


async def test_topics_that_are_too_many_are_not_announced_later_either() -> None:
    async with reader_and(1) as (reader, (writer,)), writer.publish(*map(str, range(40))):
        with pytest.raises(SettingsError, match="80 topics"):
            async with writer.publish(*map(str, range(40, 80))):
                pass
        async with writer.publish("one more"):
            await until(lambda: "one more" in reader.peers[writer.id].topics)
            assert len(reader.peers[writer.id].topics) == 41
