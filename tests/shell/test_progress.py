"""Progress of large messages, over real sockets."""

import gc
import weakref
from dataclasses import replace

import trio

import sphtp
from sphtp import Outcome, Receipt
from sphtp.config import ChannelSettings
from sphtp.observe import Progress
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

QUICK = ChannelSettings(linger=0.05)
SMALL_PACKETS = replace(QUICK, max_datagram=1200)
SIZE = 3_000_000
TOTAL = SIZE + 5  # as msgpack has it


async def test_a_large_message_tells_its_progress_on_both_sides():
    seen: list[Progress] = []
    arriving: list[sphtp.observe.MessageProgress] = []

    def note(receipt: Receipt) -> None:
        seen.append(receipt.progress)

    async with (
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as there,
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as here,
        here.open_channel(*there.address) as channel,
        trio.open_nursery() as nursery,
    ):
        other = await there.accept()

        async def look() -> None:
            while True:
                arriving.extend(other.arriving())
                await trio.lowlevel.checkpoint()

        nursery.start_soon(look)
        receipt = await channel.post(bytes(SIZE))
        assert receipt.progress.total == TOTAL
        receipt.add_progress_callback(note)
        ended = trio.Event()
        receipt.add_callback(lambda _: ended.set())
        assert await receipt.wait() is Outcome.DELIVERED
        assert receipt.progress == Progress(TOTAL, TOTAL)
        await ended.wait()
        sent = channel.statistics().sent
        nursery.cancel_scope.cancel()
        assert seen == sorted(seen)
        assert seen[-1] == Progress(TOTAL, TOTAL), "and before the callbacks of the end"
        assert len(seen) > 2
        assert len(seen) == len(set(seen)) < sent, "many packets, one call"
        assert {(message.lane, message.total) for message in arriving} == {(0, TOTAL)}
        received = [message.received for message in arriving]
        assert received == sorted(received)
        assert other.arriving() == []


async def test_a_small_message_is_told_once_and_late_listeners_as_well():
    calls: list[str] = []
    async with (
        sphtp.open_node(config=sphtp.Config(channel=QUICK)) as there,
        sphtp.open_node(config=sphtp.Config(channel=QUICK)) as here,
        here.open_channel(*there.address) as channel,
    ):
        receipt = channel.post_nowait("small")
        assert receipt.progress == Progress(0, 6)

        def note(_: Receipt) -> None:
            calls.append("progress")

        receipt.add_progress_callback(note)
        receipt.add_progress_callback(lambda _: calls.append("progress too"))
        receipt.add_callback(lambda _: calls.append("end"))
        assert await receipt.wait() is Outcome.DELIVERED
        assert receipt.progress == Progress(6, 6)
        late = trio.Event()
        receipt.add_progress_callback(lambda _: late.set())
        await late.wait()
        assert calls == ["progress", "progress too", "end"]
        remembered = weakref.ref(note)
        del note
        gc.collect()
        assert remembered() is None, "nobody is remembered"


async def test_calls_do_not_pile_up_and_never_tell_the_same_twice():
    """While one waits for its turn, what comes meanwhile is told by it."""
    seen: list[int] = []
    async with (
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as there,
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as here,
        here.open_channel(*there.address) as channel,
    ):
        receipt = await channel.post(bytes(SIZE))
        receipt.add_progress_callback(lambda receipt: seen.append(receipt.progress.acked))
        assert await receipt.wait() is Outcome.DELIVERED
        await trio.testing.wait_all_tasks_blocked()
        assert seen[-1] == TOTAL
        assert len(set(seen)) == len(seen)


async def test_what_was_not_delivered_tells_how_far_it_came():
    seen: list[Progress] = []
    async with (
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as there,
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as here,
        here.open_channel(*there.address) as channel,
    ):
        receipt = await channel.post(bytes(SIZE))
        receipt.add_progress_callback(lambda receipt: seen.append(receipt.progress))
        while receipt.progress.acked == 0:
            await trio.lowlevel.checkpoint()
        channel.abort()
        assert await receipt.wait() is Outcome.CLOSED
        await trio.testing.wait_all_tasks_blocked()
        assert 0 < seen[-1].acked < TOTAL
        assert seen[-1] == receipt.progress
