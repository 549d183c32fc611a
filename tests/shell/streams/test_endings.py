"""How streams end, and what is told until then, on real sockets whose network can be cut."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from sphtp import Config
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.core.stream.events import EndReason, Loss, LossReason, StreamEnd
from sphtp.core.stream.settings import StreamSettings
from sphtp.errors import RefusedError, SettingsError
from sphtp.shell.hosted_streams import HostedSubscription
from sphtp.shell.source import Source
from sphtp.shell.subscription import StreamMessage, Subscription, Terms
from sphtp.shell.udp import UdpSocket
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node
from tests.soaked import soaked

pytestmark = within_20_seconds

TOPIC = "positions"
HASTY = ChannelSettings(
    timeout=0.6, keepalive=0.2, connect_timeout=0.5, close_timeout=0.5, linger=0.05
)
"""A channel that breaks soon."""
BRISK = StreamSettings(session_max=0.3, activity_timeout=3.0, generation=2.0)


class Cable:
    """The network between all nodes of a test: ``is_cut`` loses every datagram."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_cut = False
        receive = UdpSocket.receive_batch

        def receive_batch(udp: UdpSocket, *args: Any) -> Sequence[Datagrams]:
            rows = receive(udp, *args)
            return () if self.is_cut else rows

        monkeypatch.setattr(UdpSocket, "receive_batch", receive_batch)


@pytest.fixture
def cable(monkeypatch: pytest.MonkeyPatch) -> Cable:
    return Cable(monkeypatch)


class Reader:
    """What a stream gave until its end."""

    def __init__(self, stream: Subscription) -> None:
        self.stream = stream
        self.delivered = list[int]()
        self.lost = list[int]()

    async def read(self) -> StreamEnd:
        """Read to the end, whatever it is like."""
        try:
            async for item in self.stream:
                if isinstance(item, Loss):
                    self.lost += range(item.first, item.last + 1)
                else:
                    self.delivered.append(item.number)
                    assert item.value == item.number
        except trio.BrokenResourceError:
            assert self.end.reason is not EndReason.CLOSED
        else:
            assert self.end.reason is EndReason.CLOSED
        return self.end

    @property
    def end(self) -> StreamEnd:
        assert self.stream.ended is not None
        return self.stream.ended

    @property
    def told(self) -> list[int]:
        return sorted(self.delivered + self.lost)


async def test_an_end_of_which_no_datagram_comes_is_told_over_the_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source closes inside its block, and goes on to exist."""
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, settings=StreamSettings(linger=0.7, suppress=0.1)) as source,
        there.subscribe(*here.address, topic=TOPIC) as stream,
    ):
        await source.send(1)
        assert await stream.receive() == 1
        monkeypatch.setattr(HostedSubscription, "handle_row_untrusted", lambda *_: None)
        await source.send_many([2, 3])
        await source.aclose()
        with trio.fail_after(5):
            items = [item async for item in stream]
        assert items == [Loss(1, 2, LossReason.SESSION_END)]
        assert stream.ended == StreamEnd(EndReason.CLOSED, 3)


async def test_a_close_that_is_cancelled_ends_the_source_at_once() -> None:
    settings = StreamSettings(data_rate=20_000.0, repair_rate=20_000.0)
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, settings=settings) as source,
        there.subscribe(*here.address, topic=TOPIC) as stream,
    ):
        sent = 0
        with suppress(trio.WouldBlock):
            while True:
                sent = source.send_nowait(bytes(1000)) + 1
        assert await stream.receive() == bytes(1000)
        with trio.CancelScope() as scope:
            scope.cancel()
            await source.aclose()
        items = [item async for item in stream]
        assert isinstance(items[-1], Loss), "the rest did not leave"
        assert items[-1].reason is LossReason.SESSION_END
        assert stream.ended == StreamEnd(EndReason.CLOSED, sent)


async def test_what_is_sent_while_the_network_is_cut_is_told_though_the_source_closes(
    cable: Cable,
) -> None:
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC) as source,
        there.subscribe(*here.address, topic=TOPIC, numbered=True) as stream,
    ):
        await source.send_many(range(50))
        reader = Reader(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.read)
            await trio.sleep(0.05)
            cable.is_cut = True
            await source.send_many(range(50, 100))
            nursery.start_soon(source.aclose)
            await trio.sleep(1.5)
            cable.is_cut = False
        assert reader.end == StreamEnd(EndReason.CLOSED, 100)
        assert reader.delivered == list(range(100)), "there was time to repair it all"


async def test_who_was_cut_off_for_longer_than_a_channel_lives_comes_back(cable: Cable) -> None:
    async with (
        open_node(config=Config(channel=HASTY)) as here,
        open_node(config=Config(channel=HASTY)) as there,
        here.open_source(TOPIC, settings=BRISK) as source,
        there.subscribe(*here.address, topic=TOPIC, numbered=True, settings=BRISK) as stream,
    ):
        await source.send(0)
        assert await stream.receive() == StreamMessage(0, 0)
        cable.is_cut = True
        for number in range(1, 31):
            assert await source.send(number) == number
            await trio.sleep(0.04)
        assert not source.receivers, "its channel broke"
        cable.is_cut = False
        items = list[Any]()
        while len(items) < 30:
            items += await stream.receive_many()
        assert items == [(number, number) for number in range(1, 31)]
        assert len(source.receivers) == 1
        await source.aclose()
        with pytest.raises(trio.EndOfChannel):
            await stream.receive()
        assert stream.ended == StreamEnd(EndReason.CLOSED, 31)


async def test_a_source_that_vanished_is_no_clean_end(cable: Cable) -> None:
    settings = StreamSettings(session_max=0.1, activity_timeout=1.5, generation=1.0)
    async with (
        open_node(config=Config(channel=HASTY)) as here,
        open_node(config=Config(channel=HASTY)) as there,
        here.open_source(TOPIC) as source,
        there.subscribe(*here.address, topic=TOPIC, settings=settings) as stream,
    ):
        await source.send(1)
        assert await stream.receive() == 1
        cable.is_cut = True
        assert stream.ended is None
        with pytest.raises(trio.BrokenResourceError, match="for too long"):
            await stream.receive()
        assert stream.ended == StreamEnd(EndReason.VANISHED, 1)
        with pytest.raises(trio.BrokenResourceError):
            stream.receive_nowait()
        cable.is_cut = False


async def test_a_source_that_began_anew_ends_the_stream_as_that(cable: Cable) -> None:
    async def live(
        port: int, task_status: trio.TaskStatus[tuple[int, Source, trio.CancelScope]]
    ) -> None:
        with trio.CancelScope() as scope:
            async with (
                open_node(port=port, config=Config(channel=HASTY)) as here,
                here.open_source(TOPIC) as one,
            ):
                task_status.started((here.address[1], one, scope))
                await trio.sleep_forever()

    async with open_node(config=Config(channel=HASTY)) as there, trio.open_nursery() as nursery:
        port, source, life = await nursery.start(live, 0)
        async with there.subscribe("127.0.0.1", port, topic=TOPIC) as stream:
            await source.send("before")
            assert await stream.receive() == "before"
            # Nobody hears its last words.
            cable.is_cut = True
            life.cancel()
            await trio.testing.wait_all_tasks_blocked(0.05)
            cable.is_cut = False
            _, _, life = await nursery.start(live, port)
            with pytest.raises(trio.BrokenResourceError, match="started again"):
                await stream.receive()
            assert stream.ended == StreamEnd(EndReason.BEGAN_ANEW, 1)
        with pytest.raises(RefusedError, match="anew") as refused:
            await AsyncExitStack().enter_async_context(
                there.subscribe("127.0.0.1", port, topic=TOPIC, after=0, session=stream.session)
            )
        assert refused.value.reason == "session"
        life.cancel()


async def test_numbers_are_those_that_send_returned() -> None:
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, "other") as source,
        there.subscribe(*here.address, topic=TOPIC, numbered=True) as stream,
    ):
        assert await source.send("a") == 0
        assert source.send_nowait("b") == 1
        assert await source.send("x", topic="other") == 0
        assert await source.send_many(["c"] * 20_000) == [range(2, 20_002)]
        assert await source.send_many([]) == []
        got = list[Any]()
        while len(got) < 20_002:
            got += await stream.receive_many()
        assert got[:3] == [(0, "a"), (1, "b"), (2, "c")]
        assert [message.number for message in got] == list(range(20_002))


async def test_who_comes_back_goes_on_behind_the_number_that_it_knows() -> None:
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, settings=StreamSettings(retention_count=6)) as source,
    ):
        await source.send_many(range(10))
        async with there.subscribe(*here.address, topic=TOPIC) as brief:
            session = brief.session
        for after, lost in ((6, 0), (1, 2), (9, 0), (-1, 4)):
            async with there.subscribe(
                *here.address, topic=TOPIC, after=after, session=session, numbered=True
            ) as stream:
                items = list[Any]()
                while len(items) < 9 - after - lost + bool(lost):
                    items += await stream.receive_many()
            if lost:
                first = items.pop(0)
                assert (first.first, first.last) == (after + 1, after + lost)
            assert items == [(number, number) for number in range(after + 1 + lost, 10)]
    with pytest.raises(SettingsError, match="after"):
        Terms(after=3, late_join=2)


@pytest.mark.parametrize("retention", [1 << 20, 0])
async def test_of_large_messages_as_many_come_late_as_were_asked_for(retention: int) -> None:
    settings = StreamSettings(local_datagram=1400, retention=retention)
    async with (
        open_node() as here,
        open_node() as there,
        here.open_source(TOPIC, settings=settings) as source,
    ):
        await source.send_many([bytes([number]) * 2000 for number in range(5)])
        async with there.subscribe(*here.address, topic=TOPIC, late_join=1) as stream:
            await source.send("live")
            wanted = [bytes([4]) * 2000, "live"] if retention else ["live"]
            items = list[Any]()
            while len(items) < len(wanted):
                items += await stream.receive_many()
            assert [item for item in items if not isinstance(item, Loss)] == wanted


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 20))])
async def test_sent_is_delivered_and_told_lost_wherever_the_network_is_cut(
    seed: int, cable: Cable
) -> None:
    random = Random(seed)
    cuts = random.sample(range(4), random.choice((1, 2)))
    vanishes = random.random() < 0.3
    kept = random.choice(({}, {"retention": 0}, {"retention": 0, "window_age": 0.1}))
    settings = StreamSettings(session_max=0.3, activity_timeout=2.0, generation=1.5, **kept)
    async with (
        open_node(config=Config(channel=HASTY)) as here,
        open_node(config=Config(channel=HASTY)) as there,
        here.open_source(TOPIC, settings=settings) as source,
        there.subscribe(
            *here.address,
            topic=TOPIC,
            numbered=True,
            settings=replace(settings, ordered=random.random() < 0.7),
        ) as stream,
    ):
        reader, sent = Reader(stream), 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.read)
            for part in range(3):
                cable.is_cut = part in cuts
                for _ in range(random.randrange(1, 40)):
                    assert await source.send(sent) == sent
                    sent += 1
                await trio.sleep(random.choice((0.1, 0.4, 0.8)))
                cable.is_cut = False
            if vanishes:
                cable.is_cut = True
            elif 3 in cuts:
                cable.is_cut = True
                nursery.start_soon(source.aclose)
                await trio.sleep(random.choice((0.1, 0.4, 0.8)))
                cable.is_cut = False
            else:
                await source.aclose()
        end = reader.end
        assert reader.told == list(range(end.next)), f"seed {seed}"
        if vanishes:
            assert end.reason is EndReason.VANISHED
            assert end.next <= sent
        else:
            assert end == StreamEnd(EndReason.CLOSED, sent), f"seed {seed}"
        cable.is_cut = False
