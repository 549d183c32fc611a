"""The loop of a node: what leaves when, and who has a turn meanwhile."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

import sphtp
from sphtp import Channel, Delivery, Node, Outcome, open_node
from sphtp.config import ChannelSettings, Lane
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.datagrams import Datagrams
from sphtp.shell import channel as channel_module
from sphtp.shell import loop as loop_module
from sphtp.shell.channel import RESERVED_SIZE
from sphtp.shell.loop import SENT_BYTES, TURN, Loop
from sphtp.shell.udp import UdpSocket
from tests.deadline import within_20_seconds
from tests.sockets import Sockets

pytestmark = within_20_seconds

BRISK = ChannelSettings(linger=0.05, busy_poll=0.0, close_timeout=0.3)


@asynccontextmanager
async def connected(
    settings: ChannelSettings = BRISK,
) -> AsyncIterator[tuple[Node, Channel, Channel]]:
    """A node, its channel to another one, and the other side of that."""
    async with (
        open_node(config=sphtp.Config(channel=settings)) as left,
        open_node(config=sphtp.Config(channel=settings)) as right,
        left.open_channel(*right.address) as here,
    ):
        there = await right.accept()
        receipt = await here.post("open")
        assert await there.receive() == "open"
        await receipt.wait()
        yield left, here, there


class Turns:
    """A task that counts its turns."""

    def __init__(self) -> None:
        self.number = 0

    async def run(self) -> None:
        while True:
            self.number += 1
            await trio.lowlevel.checkpoint()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> float:
    """Time goes on by a hundredth of a turn whenever it is asked for; how much that is."""
    now, tick = [0.0], TURN / 100

    def perf_counter() -> float:
        now[0] += tick
        return now[0]

    monkeypatch.setattr(loop_module, "perf_counter", perf_counter)
    monkeypatch.setattr(channel_module, "perf_counter", perf_counter)
    return tick


# When messages leave


async def quiet() -> None:
    """Wait until the line has been idle for long enough."""
    await trio.sleep(20 * loop_module.CORKING)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("call", ["send", "send_nowait", "post", "post_nowait"])
async def test_a_message_that_finds_the_line_idle_leaves_within_the_call(call: str) -> None:
    async with connected() as (node, here, _):
        await quiet()
        before = node.statistics().send_calls
        result = getattr(here, call)("lone")
        if not call.endswith("nowait"):
            await result
        assert node.statistics().send_calls > before


async def test_what_is_sent_in_one_turn_leaves_together_and_soon() -> None:
    async with connected() as (node, here, there):
        before = node.statistics().send_calls
        for number in range(1000):
            here.send_nowait(number)
        assert node.statistics().send_calls <= before + 1, "the first one at most is alone"
        assert [await there.receive() for _ in range(1000)] == list(range(1000))
        assert node.statistics().send_calls < before + 100


@pytest.mark.parametrize("call", ["send_nowait", "post_nowait"])
async def test_a_channel_stands_in_the_line_once_however_much_it_sends(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    turns = list[Connection]()
    touch = Endpoint.touch

    def count(endpoint: Endpoint, connection: Connection) -> None:
        turns.append(connection)
        touch(endpoint, connection)

    async with connected() as (_, here, there):
        monkeypatch.setattr(Endpoint, "touch", count)
        for number in range(1000):
            getattr(here, call)(number)
        assert [await there.receive() for _ in range(1000)] == list(range(1000))
        # A turn for the first one, and one for the others; the peer's are for its credit.
        assert len(turns) < 50


async def test_all_ways_to_send_keep_the_order_of_their_lane() -> None:
    async with connected() as (_, here, there):
        number = 0
        for _ in range(50):
            await here.send(number)
            here.send_nowait(number + 1)
            await here.post(number + 2)
            here.send_nowait(number + 3)
            await here.send_many([number + 4, number + 5])
            here.post_nowait(number + 6)
            number += 7
        assert [await there.receive() for _ in range(number)] == list(range(number))


async def test_many_tasks_send_and_each_one_s_messages_keep_their_order() -> None:
    async with connected() as (_, here, there), trio.open_nursery() as nursery:

        async def send(task: int) -> None:
            for number in range(2000):
                await here.send((task, number))

        for task in range(4):
            nursery.start_soon(send, task)
        got = [tuple(await there.receive()) for _ in range(4 * 2000)]
    for task in range(4):
        assert [number for sender, number in got if sender == task] == list(range(2000))


@pytest.mark.parametrize("number", [1, 500])
async def test_closing_takes_along_what_has_not_left(number: int) -> None:
    async with connected() as (_, here, there):
        for at in range(number):
            here.send_nowait(at)
        await here.aclose()
        assert [message async for message in there] == list(range(number))


async def test_what_had_not_left_when_the_peer_went_is_missed() -> None:
    async with connected() as (_, here, there):
        here.send_nowait("leaves at once, or not")
        there.abort("enough")
        for number in range(10):
            here.send_nowait(number)
        await trio.testing.wait_all_tasks_blocked()
        assert here.statistics().messages_sent == 12
        assert here.statistics().waiting >= 10
        with pytest.raises(trio.BrokenResourceError, match="enough"):
            await here.aclose()


async def test_a_receipt_tells_of_what_was_posted_between_messages_without_one() -> None:
    async with connected() as (_, here, there):
        here.send_nowait(1)
        receipt = here.post_nowait(2)
        here.send_nowait(3)
        assert receipt.outcome is None
        assert await receipt.wait() is Outcome.DELIVERED
        assert [await there.receive() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("delivery", [Delivery.UNRELIABLE, Delivery.SEQUENCED])
async def test_a_message_that_is_sent_once_never_waits(
    delivery: Delivery, sockets: Sockets
) -> None:
    settings = replace(BRISK, send_buffer=1)
    async with connected(settings) as (_, here, there):
        sockets.behind(here).hold()
        here.send_nowait("fills the buffer")
        with pytest.raises(trio.WouldBlock):
            here.send_nowait("no room")
        with pytest.raises(trio.WouldBlock):
            here.post_nowait("no room")
        here.post_nowait("goes past", delivery=delivery)
        assert {await there.receive() for _ in range(2)} == {"fills the buffer", "goes past"}
        here.abort()


async def test_lanes_have_room_each(sockets: Sockets) -> None:
    settings = replace(BRISK, send_buffer=3, lanes=(Lane(), Lane()))
    async with connected(settings) as (_, here, _there):
        sockets.behind(here).hold()
        for lane in (0, 1):
            for number in range(3):
                here.send_nowait((lane, number), lane=lane)
            with pytest.raises(trio.WouldBlock):
                here.send_nowait("no room", lane=lane)
        for lane in (2, -1):
            with pytest.raises(sphtp.LocalError, match=f"lane {lane}"):
                await here.send("nowhere", lane=lane)
        here.abort()


# Cancelling


async def test_a_cancelled_call_has_sent_nothing_even_where_it_would_not_wait() -> None:
    async with connected() as (_, here, there):
        with trio.CancelScope() as scope:
            await here.send(1)
            scope.cancel()
            await here.send("never")
        assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.post("never")
        assert scope.cancelled_caught
        await here.send(2)
        assert [await there.receive() for _ in range(2)] == [1, 2]


async def test_a_reader_that_is_cancelled_leaves_all_to_the_next_one() -> None:
    async with connected() as (_, here, there):
        got: list[int] = []
        await here.send_many(range(700))
        while len(got) < 700:
            with trio.CancelScope() as scope:
                got += [await there.receive() for _ in range(7)]
                scope.cancel()
                got.append(await there.receive())
            assert scope.cancelled_caught
        assert got == list(range(700))


# Turns


@pytest.mark.parametrize("size", [8, 2 * RESERVED_SIZE])
async def test_who_sends_without_a_wait_lets_others_have_turns(ticks: float, size: int) -> None:
    turns = Turns()
    async with connected() as (_, here, _there), trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        before = turns.number
        for _ in range(2000):
            await here.send(bytes(size))
        had = turns.number - before
        nursery.cancel_scope.cancel()
        here.abort()
    # A turn ends with the 101st reading: 19 of them, of which others may have the last one later.
    assert 2000 // (round(TURN / ticks) + 1) - 1 <= had < 1000, (
        "one in half a millisecond, and not one a message"
    )


async def test_who_sends_to_one_after_the_other_lets_others_have_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()
    async with AsyncExitStack() as stack:
        left = await stack.enter_async_context(open_node(config=sphtp.Config(channel=BRISK)))
        right = await stack.enter_async_context(open_node(config=sphtp.Config(channel=BRISK)))
        channels = [
            await stack.enter_async_context(left.open_channel(*right.address)) for _ in range(8)
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.run)
            await trio.lowlevel.checkpoint()
            monkeypatch.setattr(loop_module, "TURN", 0.0)
            before = turns.number
            for channel in channels:
                await channel.send("one for each")
            had = turns.number - before
            nursery.cancel_scope.cancel()
    assert had >= len(channels) - 1, "whose turn is over gives way in whichever channel it sends"


async def test_who_reads_without_a_wait_lets_others_have_turns(ticks: float) -> None:
    turns = Turns()
    async with connected() as (_, here, there), trio.open_nursery() as nursery:
        await here.send_many(range(5000))
        while there.statistics().unread < 5000:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(turns.run)
        await trio.lowlevel.checkpoint()
        before = turns.number
        for _ in range(5000):
            await there.receive()
        had = turns.number - before
        nursery.cancel_scope.cancel()
    assert 0.9 * 5000 * ticks / TURN < had < 2500, (
        "one in half a millisecond, and not one a message"
    )


async def test_a_large_transfer_lets_others_have_turns(sockets: Sockets) -> None:
    stretch = [0]

    async def look() -> None:
        while True:
            stretch.append(0)
            await trio.lowlevel.checkpoint()

    async with connected() as (node, here, there), trio.open_nursery() as nursery:

        def count(rows: Sequence[Datagrams]) -> None:
            stretch[-1] += sum(len(row.data) for row in rows)

        sockets[node.address].on_send = count
        nursery.start_soon(look)
        for size in [8_000_000] * 3:
            await here.send(bytes(size))
            assert len(await there.receive()) == size
        nursery.cancel_scope.cancel()
    # The tasks that send and receive may each have a turn between two of this one's.
    assert max(stretch) <= 5 * SENT_BYTES


async def test_a_message_to_each_of_many_channels_lets_others_have_turns(
    monkeypatch: pytest.MonkeyPatch, sockets: Sockets
) -> None:
    stretch = [0]

    async def look() -> None:
        while True:
            stretch.append(0)
            await trio.lowlevel.checkpoint()

    async with AsyncExitStack() as stack:
        left, right = [
            await stack.enter_async_context(
                open_node(config=sphtp.Config(channel=BRISK, security=None))
            )
            for _ in range(2)
        ]
        channels = [
            await stack.enter_async_context(left.open_channel(*right.address)) for _ in range(32)
        ]

        def count(rows: Sequence[Datagrams]) -> None:
            stretch[-1] += 1

        sockets[left.address].on_send = count
        # Each message takes all of a turn.
        monkeypatch.setattr(loop_module, "TURN", 0.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await trio.lowlevel.checkpoint()
            receipts = [channel.post_nowait("one for each") for channel in channels]
            for receipt in receipts:
                assert await receipt.wait() is Outcome.DELIVERED
            longest = max(stretch)
            nursery.cancel_scope.cancel()
    # The tasks that send and receive may each have a turn between two of this one's.
    assert longest <= 4


async def test_time_goes_on_while_the_socket_has_no_room(sockets: Sockets) -> None:
    # No timer of the channels is due within the time.
    patient = replace(BRISK, timeout=60.0)
    async with (
        connected(patient) as (node, here, _),
        open_node(config=sphtp.Config(channel=patient)) as other,
        node.open_channel(*other.address) as further,
    ):
        await quiet()
        sockets[node.address].is_full = True
        receipts = [here.post_nowait("finds no room", expiry=0.02)]
        await trio.sleep(0.01)
        receipts.append(here.post_nowait("nor does this one", expiry=0.02))
        receipts.append(further.post_nowait("nor one to another peer", expiry=0.02))
        with trio.fail_after(5):
            for receipt in receipts:
                assert await receipt.wait() is Outcome.EXPIRED
        sockets[node.address].is_full = False
        here.abort()
        further.abort()


async def test_asking_for_figures_sends_nothing() -> None:
    async with connected() as (node, here, there):
        before = here.statistics().messages_sent
        here.send_nowait("may leave at once")
        here.send_nowait("is held back")
        sent = node.statistics().sent
        assert here.statistics().messages_sent == before + 2
        assert node.statistics().sent == sent
        assert [await there.receive() for _ in range(2)] == ["may leave at once", "is held back"]
        assert here.statistics().messages_sent == before + 2


# Reading


async def test_several_readers_share_what_one_of_them_took_ahead() -> None:
    got: list[int] = []
    async with connected() as (_, here, there):

        async def read() -> None:
            async for message in there:
                got.append(message)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            await here.send_many(range(1000))
            await here.aclose()
    assert got == list(range(1000))


async def test_all_ways_to_read_keep_the_order() -> None:
    async with connected() as (_, here, there):
        await here.send_many(range(3000))
        got: list[int] = []
        while len(got) < 3000:
            got.append(await there.receive())
            got += await there.receive_many(5) if len(got) < 3000 else []
            try:
                got.append(there.receive_nowait())
            except trio.WouldBlock:
                await trio.lowlevel.checkpoint()
        assert got == list(range(3000))
        figures = there.statistics()
        assert (figures.messages_received, figures.unread) == (3001, 0)


async def test_a_slow_reader_holds_its_sender_and_has_stale_messages_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is taken ahead of one that takes its time."""
    monkeypatch.setattr(channel_module, "FAST", 0.0)
    settings = replace(BRISK, receive_buffer=8, send_buffer=8, unreliable_buffer=2)
    async with connected(settings) as (_, here, there):
        for number in range(8):
            here.send_nowait(number)
        await trio.testing.wait_all_tasks_blocked()
        assert await there.receive() == 0
        for number in range(5):
            here.post_nowait(("once", number), delivery=Delivery.UNRELIABLE)
            await trio.testing.wait_all_tasks_blocked()
        assert [await there.receive() for _ in range(2)] == [["once", 3], ["once", 4]]
        assert [await there.receive() for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]


async def test_what_is_taken_ahead_is_bounded_and_counts_as_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a reader has not taken holds its sender up, but for the few that are taken ahead."""
    monkeypatch.setattr(channel_module, "FAST", 1.0)
    room, read = 2000, 1030
    async with (
        connected(replace(BRISK, receive_buffer=room)) as (_, here, there),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(here.send_many, range(5000))
        while there.statistics().unread < room - 1:
            await trio.lowlevel.checkpoint()
        for _ in range(read):
            await there.receive()
        assert there.statistics().messages_received == 1 + read
        assert there.statistics().unread >= room - read - 1
        for _ in range(10):
            await trio.testing.wait_all_tasks_blocked(0.005)
        assert there.statistics().unread <= room + 64
        nursery.cancel_scope.cancel()
        here.abort()


# Timers


async def test_signs_of_life_in_the_socket_count_after_a_standstill(
    mock_clock: trio.testing.MockClock,
) -> None:
    """The process stood still for longer than the timeout: its peer has not vanished."""
    patient = ChannelSettings(timeout=1000, keepalive=500, linger=0, busy_poll=0.0)
    brisk = replace(patient, timeout=1, keepalive=0.4)
    async with (
        open_node(config=sphtp.Config(channel=brisk, security=None)) as node,
        open_node(config=sphtp.Config(channel=patient, security=None)) as peer,
        node.open_channel(*peer.address) as here,
    ):
        there = await peer.accept()
        for number in range(8):
            # Nothing else is about to leave, so that it leaves within the call; and the clock jumps
            # before anything else happens.
            await trio.testing.wait_all_tasks_blocked(0.001)
            sent = there.statistics().sent
            there.send_nowait(number)
            assert there.statistics().sent == sent + 1
            mock_clock.jump(1.5)
            assert await here.receive() == number
        here.abort()


async def test_a_flood_does_not_hold_up_time(sockets: Sockets) -> None:
    async with connected() as (node, here, _):
        sockets.behind(here).hold()
        socket = sockets[node.address]
        socket.flood = Datagrams.of(("127.0.0.1", 9), b"?")
        late = here.post_nowait("is never acknowledged", expiry=0.02)
        with trio.move_on_after(5):
            assert await late.wait() is Outcome.EXPIRED
        socket.flood = None
        assert late.outcome is Outcome.EXPIRED
        here.abort()


# Busy polling


async def test_who_waits_long_for_an_answer_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time the node looks for it in vain, and never again."""
    looks: list[bool] = []
    look = UdpSocket.is_readable

    def looking(udp: UdpSocket) -> bool:
        if udp.address == node.address:
            looks.append(look(udp))
        return look(udp)

    settings = replace(BRISK, busy_poll=0.0005)
    async with connected(settings) as (node, here, there), trio.open_nursery() as nursery:
        monkeypatch.setattr(UdpSocket, "is_readable", looking)

        async def answer() -> None:
            async for message in there:
                await trio.sleep(0.01)
                await there.send(message)

        nursery.start_soon(answer)
        await here.send("first")
        await here.receive()
        looks.clear()
        for number in range(10):
            await here.send(number)
            assert await here.receive() == number
        nursery.cancel_scope.cancel()
        assert looks == []


async def test_messages_that_may_not_leave_do_not_each_ask_whether_they_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that reads nothing holds all of them back; each question costs 50 us."""
    settings = ChannelSettings(receive_buffer=16)
    async with (
        open_node(config=sphtp.Config(channel=settings)) as here,
        open_node(config=sphtp.Config(channel=settings)) as there,
        here.open_channel(*there.address) as channel,
    ):
        await there.accept()
        for _ in range(64):
            await channel.send(bytes(1000))
        await trio.sleep(0.05)
        asked, flush = 0, Loop.flush

        def counting(loop: Loop) -> bool:
            nonlocal asked
            asked += 1
            return flush(loop)

        monkeypatch.setattr(Loop, "flush", counting)
        for _ in range(2000):
            channel.send_nowait(None)
        assert asked < 1000
        channel.abort()
