"""Bounds that are reached: each is counted, and the log names its setting."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio

import sphtp
from sphtp import Delivery
from sphtp.config import (
    ChannelSettings,
    ClientLimits,
    HandshakeLimits,
    ServerLimits,
    StreamSettings,
)
from sphtp.core.channel.flow_control import NodeMemory
from sphtp.core.channel.frames import Content, Fragment, Messages, Unreliable
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.statistics import BoundCounters
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.wire import Nak, encode_nak
from sphtp.errors import RefusedError, RemoteError
from sphtp.security import Security
from sphtp.shell.bus_dialing import PubSocket
from sphtp.shell.instruments import LimitLog
from tests.core.stream.sources import Listening
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import open_node

TIMERS = sphtp.config.ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
ANY = sphtp.ServerAddress.parse("tcp://127.0.0.1:0,0")


async def named(lines: list[str], setting: str, counter: str) -> None:
    await until(lambda: any(line.startswith(f"{setting} reached: {counter} ") for line in lines))


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        (ChannelSettings(receive_buffer=4), "receive_buffer"),
        (ChannelSettings(receive_buffer_bytes=64, max_message=32), "receive_buffer_bytes"),
    ],
)
@within_20_seconds
async def test_a_reader_that_holds_a_writer_up(
    settings: ChannelSettings, setting: str, lines: list[str]
) -> None:
    async with (
        open_node(config=sphtp.Config(channel=settings)) as here,
        open_node(config=sphtp.Config(channel=settings)) as there,
        here.open_channel(*there.address) as channel,
        await there.accept(),
    ):
        # More than one packet, by which bytes may be overdrawn.
        for _ in range(100):
            channel.send_nowait(bytes(24))
        await named(lines, setting, f"held_by_{setting}")
        assert getattr(here.statistics(), f"held_by_{setting}") == 1
        channel.abort()


@within_20_seconds
async def test_unreliable_messages_that_nobody_reads(lines: list[str]) -> None:
    settings = ChannelSettings(unreliable_buffer=2)
    async with (
        open_node(config=sphtp.Config(channel=settings)) as here,
        open_node(config=sphtp.Config(channel=settings)) as there,
        here.open_channel(*there.address) as channel,
        await there.accept(),
    ):
        for number in range(5):
            await channel.post(number, delivery=Delivery.UNRELIABLE)
        await named(lines, "unreliable_buffer", "over_unreliable_buffer")


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        (ChannelSettings(backlog=1), "backlog"),
        (ChannelSettings(max_channels=1), "max_channels"),
    ],
)
@within_20_seconds
async def test_too_many_channels(settings: ChannelSettings, setting: str, lines: list[str]) -> None:
    async with open_node(config=sphtp.Config(channel=settings)) as here, open_node() as there:
        async with there.open_channel(*here.address):
            with pytest.raises(RefusedError):
                async with there.open_channel(*here.address):
                    pass
        await named(lines, setting, f"over_{setting}")
        assert not any("reached: over_" in line and setting not in line for line in lines)


FRAMES: dict[str, tuple[ChannelSettings, Content]] = {
    "receive_buffer": (ChannelSettings(receive_buffer=2), Messages(0, 0, [b""] * 3)),
    "max_message": (ChannelSettings(max_message=9), Fragment(0, 0, 0, 10, b"1")),
}


@pytest.mark.parametrize("setting", FRAMES)
def test_a_peer_that_goes_beyond_what_it_may_send(setting: str) -> None:
    settings, frame = FRAMES[setting]
    bounds = BoundCounters()
    receive_queue = ReceiveQueue(settings, 0, bounds)
    try:
        assert not receive_queue.insert([frame], 0)
    except RemoteError:
        assert setting == "max_message"
    assert getattr(bounds, f"over_{setting}") == 1


def test_a_peer_that_fills_the_memory() -> None:
    bounds = BoundCounters()
    receive_queue = ReceiveQueue(
        ChannelSettings(receive_buffer_bytes=140_000, max_message=70_000), 0, bounds
    )
    for number in range(100):
        frame = Messages(0, number, [bytes(60_000)])
        if not receive_queue.insert([frame], number):
            break
    assert bounds.over_receive_buffer_bytes == 1


def test_floods_of_unreliable_messages_that_fill_the_node() -> None:
    """Each channel keeps its share of them, the latest; they took 154 MB of 100 kB."""
    node, bounds = NodeMemory(100_000), BoundCounters()
    flooded = [ReceiveQueue(ChannelSettings(), 0, bounds, node) for _ in range(10)]
    for number in range(256):
        for receive_queue in flooded:
            frames = [Unreliable(0, number, [number.to_bytes(2, "big") + bytes(1000)])]
            assert receive_queue.insert(frames, number)
    assert 90_000 < node.held <= 100_000
    assert bounds.over_node_buffer_bytes > 2000
    for receive_queue in flooded:
        taken = receive_queue.receive_many(999)
        assert [int.from_bytes(it[:2], "big") for it in taken] == list(range(256 - len(taken), 256))
        assert len(taken) >= 7
    assert node.held == 0


def test_peers_that_fill_the_node() -> None:
    """Those over their share take in nothing new, and those below it all that they may."""
    settings = ChannelSettings(receive_buffer_bytes=200_000, max_message=70_000)
    node, bounds = NodeMemory(300_000), BoundCounters()
    greedy = [ReceiveQueue(settings, 0, bounds, node) for _ in range(3)]
    modest = ReceiveQueue(settings, 0, bounds, node)
    for number in range(40):
        for receive_queue in greedy:
            # Each lacks its first message, so that nothing can be read.
            receive_queue.insert([Messages(0, number + 1, [bytes(10_000)])], number)
    assert 300_000 < node.held < 320_000
    assert bounds.over_node_buffer_bytes > 0
    assert modest.insert([Messages(0, 0, [bytes(60_000)])], 0)
    assert modest.receive_many(9)
    missing = [Messages(0, 0, [bytes(10_000)])]
    for receive_queue in greedy:
        assert receive_queue.insert(missing, 100), "what all others wait for"
        assert receive_queue.receive_many(999)
        receive_queue.leave_node()
    assert (node.held, node.channels) == (0, 1)


@within_20_seconds
async def test_more_receivers_than_a_source_takes(lines: list[str]) -> None:
    settings = StreamSettings(max_receivers=1)
    async with (
        open_node() as here,
        open_node() as one,
        open_node() as other,
        here.open_source("t", settings=settings) as source,
        one.subscribe(*here.address, topic="t"),
    ):
        with pytest.raises(RefusedError, match="all receivers"):
            async with other.subscribe(*here.address, topic="t"):
                pass
        await named(lines, "max_receivers", "receivers_refused")
        assert source.statistics().receivers_refused == 1


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[AsyncExitStack, Callable[..., Awaitable[sphtp.Client]]]]:
    """A server, and what opens a client of it, both until the end of the block."""
    async with (
        sphtp.open_server(ANY, new_cluster=True, config=sphtp.Config(timers=TIMERS)) as server,
        AsyncExitStack() as stack,
    ):

        def client(**more: Any) -> Awaitable[sphtp.Client]:
            config = sphtp.Config(timers=TIMERS, **more)
            opening = sphtp.open_client([server.address], config=config)
            return stack.enter_async_context(opening)

        yield stack, client


@within_20_seconds
async def test_more_peers_than_a_client_remembers(lines: list[str]) -> None:
    async with cluster() as (_, client):
        for _ in range(2):
            await client()
        small = await client(client_limits=ClientLimits(max_peers=1))
        await named(lines, "max_peers", "over_max_peers")
        assert len(small.peers) <= 1
        assert small.statistics().counters["over_max_peers"] > 0


@within_20_seconds
async def test_more_connections_than_a_server_takes() -> None:
    """What must hold: the bus's own refusals show wherever those of the server show."""
    limits = ServerLimits(max_connections=1)
    async with (
        sphtp.open_server(
            ANY, new_cluster=True, config=sphtp.Config(timers=TIMERS, server_limits=limits)
        ) as server,
        AsyncExitStack() as stack,
    ):
        for _ in range(3):
            stack.enter_context(PubSocket()).dial(server.address.sub)
        await until(lambda: server.statistics().counters.get("over_max_connections", 0) >= 2)
        assert server.status()["counters"]["over_max_connections"] >= 2
        assert server.statistics().connections_refused >= 2


@within_20_seconds
async def test_a_client_may_say_what_strangers_may_ask(lines: list[str]) -> None:
    async with cluster() as (stack, client):
        called = await client(security=Security(limits=HandshakeLimits(handshakes_per_second=1)))
        callers = [await client() for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for caller in callers:
                nursery.start_soon(stack.enter_async_context, caller.open_channel(called.id))
        await named(lines, "handshakes_per_second", "handshakes_over_rate")


@pytest.mark.parametrize(
    ("setting", "counter"), [("nak_budget", "naks_over_budget"), ("repair_queue", "naks_shed")]
)
def test_a_receiver_that_asks_for_too_much(setting: str, counter: str, lines: list[str]) -> None:
    changes: dict[str, Any] = {setting: 1}
    listening = Listening(StreamSettings(**changes))
    limits = LimitLog(listening.source.counters)
    first = listening.first
    for _ in range(5):
        listening.source.send_many(listening.now, 0, [bytes(1300)])
    listening.listen()
    body = encode_nak(Nak([Span(first, first + 4)]))
    listening.source.handle_feedback_untrusted(listening.now, 1, body)
    limits.look(0.0)
    assert lines == [f"{setting} reached: {counter} is now 4"]
