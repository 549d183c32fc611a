"""Large messages by shared memory, over real sockets on loopback: the channel does not notice."""

import errno
import fcntl
import gc
import math
import mmap
import os
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
import trio
import trio.testing

from sphtp import Channel, Config, Delivery, Outcome
from sphtp.config import ChannelSettings, Impairment, Lane
from sphtp.core.channel.shared_memory import (
    DATA_START,
    DESCRIPTOR_SIZE,
    NOTICE_WORDS,
    NOTICES,
    PAGE,
    SLOTS,
    Region,
    Rendezvous,
    SegmentTerms,
    encode_descriptor,
)
from sphtp.core.packing import PLAIN, Parts, pack_parts
from sphtp.errors import MessageTooLargeError, RemoteError
from sphtp.messages import MessageFactory
from sphtp.shell import shared_memory
from sphtp.shell.shared_memory import (
    ChannelMemory,
    CommonSegment,
    InboundSegment,
    OutboundSegment,
    open_rendezvous,
)
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import RawMessages, counted_time, open_node, stopped_time
from tests.soaked import soaked

pytestmark = [
    within_20_seconds,
    pytest.mark.skipif(sys.platform != "linux", reason="memfd_create is of Linux"),
]

HOST: Final = "127.0.0.1"
LARGE: Final = np.linspace(0.0, 1.0, 25_000)
SETTINGS: Final = ChannelSettings(linger=0.05, close_timeout=1.0, lanes=(Lane(), Lane(priority=1)))
SMALL: Final = ChannelSettings(linger=0.05, shared_memory=512 * 1024)
"""Room for two of ``LARGE``."""


@asynccontextmanager
async def connected(settings: ChannelSettings = SETTINGS, **options: Any):
    """Both sides of a channel, the first of which sends large messages by shared memory."""
    async with (
        open_node(HOST, **options, config=Config(channel=settings)) as left,
        open_node(HOST, **options, config=Config(channel=settings)) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        await warm_up(here, there)
        yield here, there


async def warm_up(here: Channel, there: Channel) -> None:
    """Send until a large message goes by shared memory."""
    for _ in range(1000):
        if here.statistics().shared_memory_sent:
            return
        await here.send(LARGE)
        await there.receive()
    pytest.fail("no message went by shared memory")


async def echo(channel: Channel) -> None:
    async for message in channel:
        await channel.send(message)


def shared(channel: Channel) -> int:
    return channel.statistics().shared_memory_sent


LAST: Final = 1_000_000


def segments_mapped() -> int:
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:sphtp")


async def test_a_system_that_forbids_unix_sockets_has_no_shared_memory(monkeypatch):
    def forbid(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", forbid)
        with open_rendezvous(is_wanted=True) as found:
            assert found == (None, 0)


@pytest.mark.parametrize("call", ["eventfd", "memfd_create"])
async def test_a_segment_without_enough_descriptors_keeps_none(monkeypatch, call):
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(OSError, match="Too many open files"):
            OutboundSegment(DATA_START + PAGE)
    gc.collect()
    assert os.listdir("/proc/self/fd") == before


async def test_small_and_large_messages_keep_the_order_of_their_lane():
    async with connected() as (here, there):
        before = shared(here)
        arrays = before + 62
        for step in range(60):
            await here.send([step], lane=step % 2)
            await here.send(LARGE + step, lane=step % 2)
        await here.send_many([60, LARGE + 60, 61, {"rows": LARGE + 61}, LARGE[:9] + 62])
        assert shared(here) > before + 50
        lanes: dict[int, list[Any]] = {0: [], 1: []}
        for _ in range(120):
            message = await there.receive()
            step = message[0] if isinstance(message, list) else round(float(message[0]))
            lanes[step % 2].append((step, type(message)))
            if not isinstance(message, list):
                assert np.array_equal(message, LARGE + step)
                assert message.flags.writeable
                assert message.flags.owndata
        kinds = (list, np.ndarray)
        for lane, came in lanes.items():
            assert came == [(step, kind) for step in range(lane, 60, 2) for kind in kinds]
        assert await there.receive() == 60
        assert np.array_equal(await there.receive(), LARGE + 60)
        assert await there.receive() == 61
        assert np.array_equal((await there.receive())["rows"], LARGE + 61)
        assert np.array_equal(await there.receive(), LARGE[:9] + 62)
        assert there.statistics().shared_memory_received == shared(here)
        sent, received = here.statistics(), there.statistics()
        assert received.shared_memory_bytes_received == sent.shared_memory_bytes_sent
        # The bytes of the arrays, a few of their shape and type, and a few small messages.
        large = arrays * LARGE.nbytes
        assert large <= sent.shared_memory_bytes_sent < 1.1 * large
        assert sent.bytes_sent < sent.shared_memory_bytes_sent
        assert there.undecodable == 0


@pytest.mark.parametrize("seed", [0, 1, *soaked([2, 3])])
async def test_every_mixture_keeps_its_order_while_messages_expire(seed: int):
    random = Random(seed)
    async with connected() as (here, there), trio.open_nursery() as nursery:
        kept: dict[int, list[int]] = {0: [], 1: []}
        came: dict[int, list[int]] = {0: [], 1: []}

        async def read() -> None:
            while True:
                message = await there.receive()
                number, lane = (int(message[0]), int(message[1]))
                came[lane].append(number)
                if random.random() < 0.1:
                    await trio.sleep(0.001)
                if number == LAST and all(numbers[-1:] == [LAST] for numbers in came.values()):
                    return

        nursery.start_soon(read)
        for number in [*range(300), LAST]:
            for lane in (0, 1):
                size = random.choice((2, 2, 300, 20_000))
                message = np.full(size, float(number))
                message[1] = lane
                how = random.random() if number < LAST else 0.0
                if how < 0.8:
                    await here.send(message, lane=lane)
                elif how < 0.9:
                    await here.post(message, lane=lane)
                else:
                    await here.post(message, lane=lane, expiry=random.choice((0.0, 1e-4, 1.0)))
                    continue
                kept[lane].append(number)
            if random.random() < 0.1:
                await trio.sleep(random.choice((0.0, 0.001)))
    for lane in (0, 1):
        assert came[lane] == sorted(came[lane]), f"seed {seed}"
        assert set(kept[lane]) <= set(came[lane]), f"seed {seed}"
    assert there.undecodable == 0


@pytest.mark.parametrize(
    "message",
    [
        "tä" * 50_000,
        b"\x01" * 100_000,
        bytearray(100_000),
        memoryview(LARGE.data),
        [1.5] * 20_000,
        LARGE.reshape(-1, 5).T,
        LARGE.astype(">c16"),
        {"many": [LARGE, LARGE.astype("i4")]},
    ],
    ids=lambda value: type(value).__name__,
)
async def test_any_message_arrives_as_it_would_without(message: Any):
    async with connected() as (here, there):
        before = shared(here)
        await here.send(message)
        received = await there.receive()
        assert shared(here) == before + 1
        if isinstance(message, bytearray | memoryview):
            message = bytes(message)
        np.testing.assert_equal(received, message)


@dataclass
class Rows:
    number: int
    rows: Any


async def test_typed_messages_go_by_shared_memory():
    factory = MessageFactory([Rows])
    async with (
        open_node(HOST, config=Config(channel=SETTINGS, messages=factory)) as left,
        open_node(HOST, config=Config(channel=SETTINGS, messages=factory)) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        while not shared(here):
            await here.send(Rows(1, LARGE))
            received = await there.receive()
            assert received.number == 1
            assert np.array_equal(received.rows, LARGE)


async def test_receipts_say_the_same():
    async with connected() as (here, there):
        before = shared(here)
        receipt = await here.post(LARGE, redundancy=1)
        size = receipt.progress.total
        assert size > LARGE.nbytes
        assert await receipt.wait() is Outcome.DELIVERED
        assert receipt.progress == (size, size)
        assert shared(here) == before + 1
        # What may be given up goes by UDP, and what is sent once fits one packet or is refused.
        assert await (await here.post(LARGE + 1, expiry=10)).wait() is Outcome.DELIVERED
        with pytest.raises(MessageTooLargeError):
            await here.post(np.zeros(3_000_000), delivery=Delivery.UNRELIABLE)
        with pytest.raises(MessageTooLargeError):
            await here.send(np.zeros(3_000_000))
        assert shared(here) == before + 1
        assert here.post_nowait(LARGE + 2).outcome is None
        here.send_nowait(LARGE + 3)
        assert shared(here) == before + 3
        for step in range(4):
            assert np.array_equal(await there.receive(), LARGE + step)


@pytest.mark.parametrize("busy_poll", [0.0, 0.01])
async def test_a_side_that_polls_for_a_reply_is_not_woken(
    monkeypatch: pytest.MonkeyPatch, busy_poll: float
):
    """Each round has two messages, each of which would wake a side that sleeps."""
    counted_time(monkeypatch)
    rounds, woken, wake = 50, [], os.eventfd_write

    def count(event: int, value: int) -> None:
        woken.append(event)
        wake(event, value)

    async with connected(replace(SETTINGS, busy_poll=busy_poll)) as (here, there):
        await warm_up(there, here)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, there)
            monkeypatch.setattr(os, "eventfd_write", count)
            for step in range(rounds):
                await here.send(LARGE + step)
                assert (await here.receive())[0] == step
            nursery.cancel_scope.cancel()
    if busy_poll:
        assert len(woken) < rounds / 2
    else:
        assert len(woken) > rounds


async def test_lone_small_messages_go_by_shared_memory_and_crowds_in_packets():
    async with connected() as (here, there):
        before = shared(here)
        for step in range(20):
            await here.send(step)
            assert await there.receive() == step
        assert shared(here) == before + 20
        # Some of a crowd leave at once, and the others together.
        for step in range(1000):
            await here.send(step)
        assert [await there.receive() for _ in range(1000)] == list(range(1000))
        assert shared(here) < before + 200
        # One that waits for room, or for an ack, stays in order with those beside it.
        for step in range(300):
            await here.send(step if step % 7 else LARGE + step)
            if not step % 5:
                await trio.lowlevel.checkpoint()
        for step in range(300):
            received = await there.receive()
            assert (received if step % 7 else received[0]) == step
        receipt = await here.post("packet")
        assert await there.receive() == "packet"
        assert await receipt.wait()


async def test_who_receives_after_each_message_sends_it_in_the_call_itself(monkeypatch):
    """Also within the time in which others are corked; but a burst after each is corked again."""
    # No turn of the loop ends within a burst: the few messages behind its end would leave at once.
    stopped_time(monkeypatch)
    async with connected() as (here, there), trio.open_nursery() as nursery:

        async def echo() -> None:
            async for message in there:
                await there.send(message)

        nursery.start_soon(echo)
        for step in range(3):
            await here.send(step)
            assert await here.receive() == step
        before = shared(here)
        await here.send("alone")
        assert shared(here) == before + 1
        assert await here.receive() == "alone"
        for burst in range(3):
            before = shared(here)
            for step in range(40):
                await here.send(step)
            assert [await here.receive() for _ in range(40)] == list(range(40))
            # The first burst after a lone message still begins with a few that leave at once.
            assert shared(here) - before <= (8 if burst == 0 else 1)
        nursery.cancel_scope.cancel()


async def test_only_small_messages_in_quick_succession_make_a_segment():
    made: list[int] = []
    has_room = False

    def offer(of: ChannelMemory, own: Rendezvous, peer: Rendezvous, most: int) -> bool:
        made.append(most)
        return has_room

    rendezvous = Rendezvous(1, 2)
    connection: Any = SimpleNamespace(rendezvous=(rendezvous, rendezvous))
    memory = ChannelMemory(offer, SETTINGS)
    now = 0.0
    for _ in range(1000):
        now += 0.1
        memory.count_small(connection, now)
    assert not made
    for _ in range(127):
        now += 0.001
        memory.count_small(connection, now)
    assert not made
    for _ in range(127):
        now += 0.001
        memory.count_small(connection, now)
    # There were as many as may be.
    assert made == [shared_memory.MOST_FOR_SMALL]
    has_room = True
    for _ in range(1000):
        now += 0.001
        memory.count_small(connection, now)
    assert made == [shared_memory.MOST_FOR_SMALL] * 2
    assert shared_memory.MOST_FOR_SMALL < shared_memory.MOST_SEGMENTS


async def test_an_empty_message_arrives():
    """Its payload is raw bytes here; a message type without fields has an empty one, too."""
    config = Config(channel=SETTINGS, messages=RawMessages())
    async with (
        open_node(HOST, config=config) as left,
        open_node(HOST, config=config) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        await warm_up(here, there)
        for number in range(400):
            payload = b"" if number % 2 else b"%d" % number
            await here.send(payload)
            assert await there.receive() == payload
        assert shared(here) > 180
        assert there.undecodable == 0


async def test_each_of_several_readers_gets_what_one_of_them_took_from_the_ring(
    monkeypatch: pytest.MonkeyPatch,
):
    """The ring wakes one reader, and another one that polls empties it for both."""
    counted_time(monkeypatch)
    settings = replace(SETTINGS, busy_poll=0.01, timeout=1000, keepalive=500)
    async with connected(settings) as (here, there):
        await warm_up(there, here)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, there)
            for step in range(20):
                await here.send(LARGE + step)
                assert (await here.receive())[0] == step
            nursery.cancel_scope.cancel()
        for _ in range(20):
            got: list[float] = []

            async def read(got: list[float] = got) -> None:
                got.append((await here.receive())[0])

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked()
                await here.send(LARGE)
                nursery.start_soon(read)
                await trio.lowlevel.checkpoint()
                there.send_nowait(LARGE + 1)
                there.send_nowait(LARGE + 2)
            assert sorted(got) == [1, 2]
            await there.receive()


async def test_no_more_channels_than_the_most_have_a_segment(monkeypatch: pytest.MonkeyPatch):
    """Of two senders to one node, the second is refused; so is a second channel of one sender."""

    async def send(here: Channel, there: Channel) -> int:
        for _ in range(20):
            await here.send(LARGE)
            assert len(await there.receive()) == len(LARGE)
        return shared(here)

    monkeypatch.setattr(shared_memory, "MOST_SEGMENTS", 1)
    config = Config(channel=SETTINGS)
    async with (
        open_node(HOST, config=config) as left,
        open_node(HOST, config=config) as right,
        open_node(HOST, config=config) as elsewhere,
        left.open_channel(*right.address) as first,
        await right.accept() as there,
        elsewhere.open_channel(*right.address) as second,
        await right.accept() as other,
        left.open_channel(*elsewhere.address) as third,
        await elsewhere.accept() as last,
    ):
        await warm_up(first, there)
        assert await send(second, other) == 0
        assert await send(third, last) == 0


async def test_a_cancelled_wait_that_polls_loses_no_message():
    async with connected(replace(SETTINGS, busy_poll=0.01)) as (here, there):
        await warm_up(there, here)
        replies: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, there)
            for step in range(90):
                await here.send(LARGE + step)
                with trio.move_on_after(0 if step % 3 else 5):
                    replies.append((await here.receive())[0])
            while len(replies) < 90:
                replies.append((await here.receive())[0])
            nursery.cancel_scope.cancel()
    assert replies == list(range(90))


async def test_a_full_segment_falls_back_and_is_used_again():
    async with connected(SMALL) as (here, there):
        before = shared(here)
        for step in range(12):
            await here.send(LARGE + step)
        full = shared(here) - before
        assert 0 < full <= 2
        for step in range(12):
            assert np.array_equal(await there.receive(), LARGE + step)
        assert there.undecodable == 0
        for step in range(12):
            await here.send(LARGE + step)
            assert np.array_equal(await there.receive(), LARGE + step)
        assert shared(here) >= before + full + 11


async def test_a_cancelled_send_keeps_no_memory_and_sends_nothing():
    async with connected(SMALL) as (here, there):
        for _ in range(3):
            await here.send(LARGE)
        for _ in range(10):
            with trio.CancelScope() as scope:
                scope.cancel()
                await here.send(LARGE + 1)
        for _ in range(3):
            assert np.array_equal(await there.receive(), LARGE)
        before = shared(here)
        for step in range(10):
            await here.send(LARGE + step)
            assert np.array_equal(await there.receive(), LARGE + step)
        assert shared(here) == before + 10


async def test_what_was_sent_is_read_after_the_end_and_nothing_is_left():
    files = len(os.listdir("/proc/self/fd"))
    async with (
        open_node(HOST, config=Config(channel=SETTINGS)) as left,
        open_node(HOST, config=Config(channel=SETTINGS)) as right,
        left.open_channel(*right.address) as here,
    ):
        async with await right.accept() as there:
            await warm_up(here, there)
            assert segments_mapped() == 2
            for step in range(3):
                await here.send(LARGE + step)
            await here.aclose()
            for step in range(3):
                assert np.array_equal(await there.receive(), LARGE + step)
            with pytest.raises(trio.EndOfChannel):
                await there.receive()
        assert segments_mapped() == 0
    assert len(os.listdir("/proc/self/fd")) == files


async def test_a_segment_that_comes_behind_the_end_of_its_channel_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
):
    receive_files = shared_memory.receive_files
    coming, ended = trio.Event(), trio.Event()

    async def receive_late(there: trio.socket.SocketType) -> tuple[list[int], bytes]:
        received = await receive_files(there)
        coming.set()
        await ended.wait()
        return received

    monkeypatch.setattr(shared_memory, "receive_files", receive_late)
    async with (
        open_node(HOST, config=Config(channel=SETTINGS)) as left,
        open_node(HOST, config=Config(channel=SETTINGS)) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        await here.send(LARGE)
        await there.receive()
        await coming.wait()
        here.abort("enough")
        with pytest.raises(trio.BrokenResourceError):
            await there.receive()
        ended.set()
        await until(lambda: segments_mapped() == 0)


async def test_a_segment_waits_for_a_channel_that_is_accepted_late():
    async with (
        open_node(HOST, config=Config(channel=SETTINGS)) as left,
        open_node(HOST, config=Config(channel=SETTINGS)) as right,
        left.open_channel(*right.address) as here,
    ):
        number = 0
        while not shared(here):
            await here.send(LARGE + number)
            number += 1
            await trio.sleep(0.001)
        async with await right.accept() as there:
            for step in range(number):
                assert np.array_equal(await there.receive(), LARGE + step)


async def test_arrays_are_views_where_the_reader_asks_for_it():
    settings = ChannelSettings(linger=0.05, shared_memory=512 * 1024, array_views=True)
    async with connected(settings) as (here, there):
        before = shared(here)
        await here.send(LARGE)
        await here.send(LARGE + 1)
        held = await there.receive()
        assert not held.flags.owndata
        assert not held.flags.writeable
        assert held.flags.aligned
        part = held[5:10]
        del held
        assert np.array_equal(await there.receive(), LARGE + 1)
        # One region is held by a part of its array: what does not fit goes by UDP.
        for step in range(5):
            await here.send(LARGE + step)
            assert np.array_equal(await there.receive(), LARGE + step)
        assert np.array_equal(part, LARGE[5:10])
        assert shared(here) >= before + 2
    # The memory stays for as long as somebody looks at it.
    gc.collect()
    assert segments_mapped() == 1
    assert np.array_equal(part, LARGE[5:10])
    del part
    gc.collect()
    assert segments_mapped() == 0


@pytest.mark.parametrize("side", [0, 1])
async def test_a_peer_that_does_without_gets_everything_by_udp(side: int):
    without = ChannelSettings(linger=0.05, shared_memory=0)
    settings = [SETTINGS, SETTINGS]
    settings[side] = without
    async with (
        open_node(HOST, config=Config(channel=settings[0])) as left,
        open_node(HOST, config=Config(channel=settings[1])) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        for step in range(20):
            await here.send(LARGE + step)
            assert np.array_equal(await there.receive(), LARGE + step)
            await there.send(LARGE)
            await here.receive()
        assert shared(here) == shared(there) == 0


async def test_a_bad_network_is_tried_out_with_all_that_is_sent():
    async with (
        open_node(HOST, config=Config(impairment=Impairment(loss=0.01), seed=1)) as left,
        open_node(HOST) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        for _ in range(10):
            await here.send(LARGE)
            await there.receive()
        assert shared(here) == 0


async def test_the_clear_and_channels_opened_at_once_share_too():
    async with (
        open_node(HOST, config=Config(channel=SETTINGS, security=None)) as left,
        open_node(HOST, config=Config(channel=SETTINGS, security=None)) as right,
    ):
        channels: list[Channel] = []

        async def dial(one: Any, other: Any) -> None:
            async with one.open_channel(*other.address) as channel:
                channels.append(channel)
                if len(channels) == 2:
                    await warm_up(*channels)
                    await warm_up(*reversed(channels))
                    ready.set()
                await ready.wait()

        ready = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dial, left, right)
            nursery.start_soon(dial, right, left)


# A peer that lies


def sealed_file(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    file = os.memfd_create("sphtp", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


async def test_what_may_shrink_is_not_mapped_and_not_kept(tmp_path: Path):
    size, files = DATA_START + PAGE, len(os.listdir("/proc/self/fd"))
    plain = tmp_path / "plain"
    plain.write_bytes(bytes(size))
    reader, writer = os.pipe()
    os.close(writer)
    for file in (
        sealed_file(size, fcntl.F_SEAL_GROW),
        sealed_file(size - PAGE),
        os.open(plain, os.O_RDWR),
        reader,
    ):
        with pytest.raises((RemoteError, OSError)):
            InboundSegment((file,), SegmentTerms(b"m" * 16, size), 1000)
    assert len(os.listdir("/proc/self/fd")) == files


async def test_a_descriptor_out_of_bounds_opens_nothing():
    size, marker = DATA_START + 4 * PAGE, b"m" * 16
    segment = InboundSegment((sealed_file(size),), SegmentTerms(marker, size), PAGE)
    good = encode_descriptor(marker, Region(0, 1, DATA_START, 10))
    assert segment.is_descriptor(good)
    assert not segment.is_descriptor(b"n" * DESCRIPTOR_SIZE)
    assert not segment.is_descriptor(marker)
    region, payload = segment.open_untrusted(good)
    assert bytes(payload) == bytes(10)
    payload.release()
    segment.free(region)
    for region in (Region(0, 1, size - 5, 10), Region(0, 1, 0, 10), Region(0, 1, DATA_START, 5000)):
        with pytest.raises(RemoteError):
            segment.open_untrusted(encode_descriptor(marker, region))
    segment.close()


@pytest.mark.parametrize(
    "head",
    [
        b"\xc9\xff\xff\xff\xffN",
        b"\xc1",
        b"\xc9",
        b"\xc8\x00\x2cN<f\x08\x01",
        b"\xdb\x00\x00\x00\x09",
    ],
)
async def test_garbage_in_memory_is_a_malformed_message(head: bytes):
    for memory in (memoryview(head), memoryview(head + bytes(40))):
        assert PLAIN.decode_shared_untrusted(memory, is_copied=True) == []


async def test_words_of_the_peer_free_nothing_but_its_own_regions():
    segment = OutboundSegment(DATA_START + 8 * PAGE)
    with mmap.mmap(segment.file, segment.size) as peer:
        parts = pack_parts(b"x" * 3 * PAGE)
        first, second = segment.store(parts), segment.store(parts)
        assert first is not None
        assert second is not None
        assert segment.store(parts) is None
        peer[:DATA_START] = b"\xff" * DATA_START
        assert segment.store(parts) is None
        assert segment.unread == 2
        peer[:4] = (1).to_bytes(4, sys.byteorder)
        assert segment.unread == 1
        assert segment.store(parts) is not None
    segment.close()


def open_common(size: int, number: int) -> tuple[CommonSegment, list[OutboundSegment]]:
    common = CommonSegment(size)
    return common, [OutboundSegment(size, common) for _ in range(number)]


def map_inbound(sender: OutboundSegment, common: CommonSegment) -> InboundSegment:
    files = os.dup(sender.file), os.dup(common.file)
    return InboundSegment(files, SegmentTerms(sender.marker, sender.size, common.size), 8 * PAGE)


def for_many(byte: bytes, size: int = 3 * PAGE, number: int = 0) -> Parts:
    parts = pack_parts(byte * size)
    parts.step = number
    return parts


async def test_what_goes_to_several_is_copied_once_and_kept_until_all_have_read_it():
    size, files = DATA_START + 8 * PAGE, len(os.listdir("/proc/self/fd"))
    common, senders = open_common(size, 3)
    readers = [map_inbound(sender, common) for sender in senders]

    def send(byte: bytes) -> list[bytes | None]:
        parts = for_many(byte)
        return [sender.store(parts) for sender in senders]

    def read(reader: InboundSegment, descriptor: bytes | None) -> Region:
        assert descriptor is not None
        region, payload = reader.open_untrusted(descriptor)
        assert region.is_common
        with payload:
            assert payload.readonly
            assert PLAIN.decode_shared_untrusted(payload, is_copied=True) == [b"a" * 3 * PAGE]
        return region

    first = send(b"a")
    regions = [read(reader, one) for reader, one in zip(readers, first, strict=True)]
    assert (len({region.start for region in regions}), len(common)) == (1, 1)
    send(b"a")
    # There is no room for a third, but in the segments of their own.
    send(b"b")
    assert (len(common), [sender.unread for sender in senders]) == (2, [1, 1, 1])
    for reader, region in zip(readers[:2], regions[:2], strict=True):
        reader.free(region)
    # Those who have freed it say nothing for the one who has not.
    assert [sender.unread for sender in senders] == [1, 1, 1]
    send(b"c")
    assert len(common) == 2
    read(readers[2], first[2])
    # One whose channel has ended may read for ever what it has not freed.
    senders.pop().close()
    send(b"d")
    assert len(common) == 2
    read(readers[2], first[2])
    # No peer can change what another one reads.
    with pytest.raises(PermissionError):
        mmap.mmap(common.file, size)
    for sender in senders:
        sender.close()
    # It goes with the last of its channels.
    assert common.is_closed
    for reader in readers:
        reader.close()
    gc.collect()
    assert segments_mapped() == 0
    assert len(os.listdir("/proc/self/fd")) == files


async def test_what_a_peer_has_left_unread_costs_its_own_room_and_no_more():
    size = DATA_START + 8 * PAGE
    common, (stays, *leaving) = open_common(size, 4)
    reader = map_inbound(stays, common)

    def send(*senders: OutboundSegment) -> Region:
        parts = for_many(b"x", PAGE // 2)
        (descriptor, *_) = [sender.store(parts) for sender in senders]
        assert descriptor is not None
        region, payload = reader.open_untrusted(descriptor)
        payload.release()
        reader.free(region)
        return region

    for left, sender in enumerate(leaving, 1):
        send(stays, sender)
        sender.close()
        # Nothing is walked over, and nothing grows.
        assert len({send(stays).start for _ in range(20)}) == 1
        assert len(common) == left + 1
    # Half a page is lost with each. Channels have another segment when a quarter of it is.
    assert not common.is_worn_out
    stays.close()
    reader.close()
    common, (stays, leaves) = open_common(size, 2)
    parts = for_many(b"x", 5 * PAGE)
    for sender in (stays, leaves):
        assert sender.store(parts) is not None
    leaves.close()
    assert stays.store(for_many(b"x", PAGE)) is not None
    assert common.is_worn_out
    assert not common.is_closed
    stays.close()


async def test_the_ring_holds_as_many_entries_as_it_has_and_no_more():
    common, (sender,) = open_common(DATA_START + 8 * PAGE, 1)
    receiver = map_inbound(sender, common)
    descriptor, taken = sender.store(for_many(b"x", 8)), list[int]()
    assert descriptor is not None

    def take(_: int, number: int, __: bytes) -> bool:
        taken.append(number)
        return True

    for number in range(SLOTS):
        assert not sender.is_ring_full
        sender.push(descriptor, 0, number)
    assert sender.is_ring_full
    receiver.take_entries_untrusted(take)
    assert (taken, sender.is_ring_full) == ([*range(SLOTS)], False)
    for segment in (sender, receiver):
        segment.close()
    assert common.is_closed


def notices(senders: int = 1) -> tuple[list[OutboundSegment], list[InboundSegment]]:
    common, outbound = open_common(DATA_START + 64 * PAGE, senders)
    return outbound, [map_inbound(sender, common) for sender in outbound]


def read(segment: InboundSegment, least: int, before: float) -> bytes | None:
    opened = segment.take_notice_untrusted(least, before)
    if opened is None:
        return None
    region, payload = opened
    with payload:
        (value,) = PLAIN.decode_shared_untrusted(payload, is_copied=True)
    segment.free(region)
    return bytes(value)


def close_all(*segments: OutboundSegment | InboundSegment) -> None:
    for segment in segments:
        segment.close()


async def test_a_notice_is_taken_when_its_number_is_wanted():
    (sender,), (receiver,) = notices()
    assert not receiver.has_notice(5)
    assert sender.post(for_many(b"a", 8, 5))
    assert sender.post(for_many(b"b", 8, 6))
    # A later notice waits, and is not overtaken.
    assert receiver.has_notice(5)
    assert not receiver.has_notice(4)
    assert read(receiver, 4, 5) is None
    assert read(receiver, 5, 6) == b"a" * 8
    assert not receiver.has_notice(5)
    assert read(receiver, 5, 6) is None
    # Its place is free for another one.
    assert sender.post(for_many(b"c", 8, 9))
    assert read(receiver, 6, math.inf) == b"b" * 8
    assert read(receiver, 7, math.inf) == b"c" * 8
    assert read(receiver, 7, math.inf) is None
    # A segment of one channel alone has nowhere to put a payload for several.
    alone = OutboundSegment(DATA_START + PAGE)
    assert not alone.post(for_many(b"a", 8, 1))
    close_all(sender, receiver, alone)


async def test_notices_of_steps_that_are_over_are_skipped_and_their_regions_are_free():
    (sender,), (receiver,) = notices()
    for number in range(0, 300, 3):
        assert sender.post(for_many(b"a", 3 * PAGE, number))
        assert sender.post(for_many(b"b", 3 * PAGE, number + 1))
        # There is no third cell.
        assert not sender.post(for_many(b"c", 8, number + 2))
        assert read(receiver, number + 1, math.inf) == b"b" * 3 * PAGE
        assert read(receiver, number + 1, math.inf) is None
    for number in (1000, 1001):
        assert sender.post(for_many(b"a", 8, number))
    assert not receiver.has_notice(1002)
    assert sender.post(for_many(b"c", 8, 1002))
    assert receiver.has_notice(1002)
    close_all(sender, receiver)


@pytest.mark.parametrize("word", [1, 2, 3, 2**31, 2**32 - 1])
async def test_nonsense_in_the_cells_of_notices_opens_nothing(word: int):
    size = DATA_START + 4 * PAGE
    file = sealed_file(size)
    with mmap.mmap(file, size) as memory:
        segment = InboundSegment((file,), SegmentTerms(b"m" * 16, size), PAGE)
        start = 4 * NOTICES
        memory[start : start + 8 * NOTICE_WORDS] = word.to_bytes(4, "little") * 2 * NOTICE_WORDS
        freed = memory[: 4 * SLOTS]
        for least in (0, 2**63, 2**64 - 1):
            segment.has_notice(least)
            for _ in range(8):
                with suppress(RemoteError):
                    assert segment.take_notice_untrusted(least, math.inf) is None
        # Also what is skipped frees no region that cannot be.
        assert memory[: 4 * SLOTS] == freed
        segment.close()


async def test_copies_for_several_use_the_memory_that_all_have_freed():
    outbound, inbound = notices(3)
    starts = set[int]()
    for number in range(40):
        parts = for_many(b"x", PAGE, number)
        assert all(sender.post(parts) for sender in outbound)
        for receiver in inbound:
            opened = receiver.take_notice_untrusted(number, number + 1)
            assert opened is not None
            region, payload = opened
            starts.add(region.start)
            payload.release()
            receiver.free(region)
    assert len(starts) == 1
    # One that does not read keeps its memory, and costs the others none.
    *_, slow = inbound
    held = []
    for number in range(40, 80):
        parts = for_many(b"y", PAGE, number)
        if not all(sender.post(parts) for sender in outbound):
            break
        for receiver in inbound:
            opened = receiver.take_notice_untrusted(number, number + 1)
            assert opened is not None
            if receiver is slow:
                held.append(opened)
            else:
                opened[1].release()
                receiver.free(opened[0])
    assert len({region.start for region, _ in held}) == len(held) == 32
    for region, payload in held:
        assert bytes(payload).endswith(b"y" * PAGE)
        payload.release()
        slow.free(region)
    assert all(sender.post(for_many(b"z", PAGE, 100)) for sender in outbound)
    close_all(*outbound, *inbound)
