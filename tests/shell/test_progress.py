"""Progress of large messages, over real sockets."""

from dataclasses import replace

import trio
import trio.testing

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


async def watch(receipt: Receipt, seen: list[Progress]) -> None:
    """Note the progress of a message until its outcome is known."""
    seen.append(await receipt.wait_for_progress())
    while receipt.outcome is None:
        seen.append(await receipt.wait_for_progress(seen[-1].acked))


async def test_a_large_message_tells_its_progress_on_both_sides():
    seen: list[Progress] = []
    beside: list[Progress] = []
    arriving: list[sphtp.observe.MessageProgress] = []
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
        async with trio.open_nursery() as watchers:
            watchers.start_soon(watch, receipt, seen)
            watchers.start_soon(watch, receipt, beside)
        assert receipt.outcome is Outcome.DELIVERED
        sent = channel.statistics().sent
        nursery.cancel_scope.cancel()
        assert seen == sorted(seen)
        assert seen[-1] == beside[-1] == receipt.progress == Progress(TOTAL, TOTAL)
        assert 2 < len(seen) == len(set(seen)) < sent, "many packets, one progress"
        assert {(message.lane, message.total) for message in arriving} == {(0, TOTAL)}
        received = [message.received for message in arriving]
        assert received == sorted(received)
        assert other.arriving() == []


async def test_a_small_message_makes_progress_once_and_who_asks_late_knows_it_too():
    async with (
        sphtp.open_node(config=sphtp.Config(channel=QUICK)) as there,
        sphtp.open_node(config=sphtp.Config(channel=QUICK)) as here,
        here.open_channel(*there.address) as channel,
    ):
        receipt = channel.post_nowait("small")
        assert receipt.progress == Progress(0, 6)
        with trio.move_on_after(0) as scope:
            await receipt.wait_for_progress()
        assert scope.cancelled_caught
        for _ in range(2):
            assert await receipt.wait_for_progress() == Progress(6, 6)


async def test_what_was_not_delivered_tells_how_far_it_came():
    seen: list[Progress] = []
    async with (
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as there,
        sphtp.open_node(config=sphtp.Config(channel=SMALL_PACKETS)) as here,
        here.open_channel(*there.address) as channel,
        trio.open_nursery() as nursery,
    ):
        receipt = await channel.post(bytes(SIZE))
        nursery.start_soon(watch, receipt, seen)
        await receipt.wait_for_progress()
        channel.abort()
        assert await receipt.wait() is Outcome.CLOSED
        await trio.testing.wait_all_tasks_blocked()
        assert 0 < seen[-1].acked < TOTAL
        assert seen[-1] == receipt.progress
