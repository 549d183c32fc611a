"""Channels between two nodes, over real sockets on loopback."""

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgpack
import pytest
import trio

import sphtp
from sphtp import Delivery, Outcome
from sphtp.config import ChannelSettings, Impairment
from sphtp.core.packing import READ_BYTES
from sphtp.errors import MessageTooLargeError
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import RawMessages, open_node

pytestmark = within_20_seconds

BRISK = ChannelSettings(
    resend_time=0.03,
    keepalive=0.05,
    timeout=0.3,
    connect_timeout=0.3,
    linger=0.1,
    close_timeout=0.3,
)


@asynccontextmanager
async def connected(loss: float = 0.0, settings: ChannelSettings = BRISK, messages=None):
    """Two nodes, and both sides of a channel between them."""
    if loss:
        # Opening takes three round trips, and each of them may take several tries.
        settings = replace(settings, connect_timeout=5)
    async with (
        open_node(
            config=sphtp.Config(
                channel=settings, impairment=Impairment(loss=loss), seed=1, messages=messages
            )
        ) as left,
        open_node(
            config=sphtp.Config(channel=settings, impairment=Impairment(loss=loss), seed=2)
        ) as right,
    ):
        with trio.fail_after(20):
            async with left.open_channel(*right.address) as here, await right.accept() as there:
                yield here, there


async def receive_all(channel) -> list[object]:
    return [message async for message in channel]


async def test_messages_arrive_in_order_both_ways():
    async with connected() as (here, there):
        for number in range(100):
            await here.send({"number": number})
            await there.send([number, "text", b"bytes", None, 0.5])
        assert [(await there.receive())["number"] for _ in range(100)] == list(range(100))
        assert [(await here.receive())[0] for _ in range(100)] == list(range(100))


@pytest.mark.parametrize("loss", [0.0, 0.05])
async def test_large_messages_arrive_whole_in_small_datagrams(loss):
    """They leave and come many at a time, and loss takes single ones out."""
    settings = ChannelSettings(max_datagram=1200, linger=0.05)
    sent = [bytes([number]) * 65_536 for number in range(20)]
    async with connected(loss, settings) as (here, there), trio.open_nursery() as nursery:
        nursery.start_soon(here.send_many, sent)
        assert [await there.receive() for _ in sent] == sent


async def test_messages_of_every_size_arrive_under_loss():
    sizes = [0, 1, 1000, 1170, 1200, 5000, 100_000]
    async with connected(loss=0.2) as (here, there):
        async with trio.open_nursery() as nursery:

            async def send_all():
                for size in sizes:
                    await here.send(bytes(size))

            nursery.start_soon(send_all)
            assert [len(await there.receive()) for _ in sizes] == sizes
        assert here.statistics().lost > 0


async def test_closing_drains_and_ends_the_other_side_once_all_is_read():
    async with connected(loss=0.2) as (here, there):
        for number in range(50):
            await here.send(number)
        await here.aclose()
        assert [message async for message in there] == list(range(50))
        with pytest.raises(trio.EndOfChannel):
            await there.receive()
        with pytest.raises(trio.BrokenResourceError):
            await there.send("too late")


async def test_what_is_closed_here_is_closed():
    async with connected() as (here, _):
        await here.aclose()
        await here.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await here.send(1)
        with pytest.raises(trio.ClosedResourceError):
            await here.receive()


async def test_closing_wakes_a_receiver():
    async with connected() as (here, _), trio.open_nursery() as nursery:

        async def receive():
            with pytest.raises(trio.ClosedResourceError):
                await here.receive()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await here.aclose()


async def test_aborting_tells_the_peer_why():
    async with connected() as (here, there):
        here.abort("out of spheres")
        with pytest.raises(trio.BrokenResourceError, match="out of spheres"):
            await there.receive()


async def test_a_node_that_closes_tells_its_peers():
    async with open_node(config=sphtp.Config(channel=BRISK)) as left:
        async with open_node(config=sphtp.Config(channel=BRISK)) as right:
            channel = left.open_channel(*right.address)
            here = await channel.__aenter__()
        with trio.fail_after(5), pytest.raises(trio.BrokenResourceError, match="its node closed"):
            await here.receive()
        await channel.__aexit__(None, None, None)


async def test_a_peer_that_vanishes_is_named(sockets):
    async with connected() as (here, there):
        sockets.behind(here).hold()
        with pytest.raises(trio.BrokenResourceError, match=r"127\.0\.0\.1:\d+ vanished"):
            await here.receive()
        with pytest.raises(trio.BrokenResourceError, match="vanished"):
            await here.send(1)
        there.abort()


async def test_nobody_there_is_an_error_that_says_who_was_dialled():
    async with open_node(config=sphtp.Config(channel=BRISK)) as gone:
        host, port = gone.address
    async with open_node(config=sphtp.Config(channel=BRISK)) as node:
        with pytest.raises(sphtp.UnreachableError, match=f"{host}:{port} did not answer within"):
            async with node.open_channel(host, port):
                raise AssertionError("nobody is there")


async def test_a_peer_with_another_id_refuses():
    async with open_node(peer_id=5) as right, open_node(peer_id=3) as left:
        with pytest.raises(sphtp.RefusedError, match="another peer than the one wanted"):
            async with left.open_channel(*right.address, peer_id=7):
                raise AssertionError("it is not 7")


async def test_both_dial_at_once_and_share_one_channel():
    async with open_node(peer_id=3) as left, open_node(peer_id=5) as right:
        ready = trio.Event()
        ends: list[int] = []

        async def dial(node, other):
            async with node.open_channel(*other.address, peer_id=other.peer_id) as channel:
                await channel.send(node.peer_id)
                ends.append(await channel.receive())
                if len(ends) == 2:
                    ready.set()
                await ready.wait()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(dial, left, right)
                nursery.start_soon(dial, right, left)
        assert sorted(ends) == [3, 5]
        for node in (left, right):
            with pytest.raises(trio.TooSlowError), trio.fail_after(0):
                await node.accept()


async def test_send_waits_while_too_much_is_unacknowledged_and_cancelled_sends_nothing(sockets):
    settings = ChannelSettings(send_buffer=4, linger=0.1)
    async with connected(settings=settings) as (here, there):
        sockets.behind(here).hold()
        for number in range(4):
            await here.send(number)
        with trio.move_on_after(0) as scope:
            await here.send("never")
        assert scope.cancelled_caught
        sockets.behind(here).release()
        await here.send(4)
        assert [await there.receive() for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_cancelled_receive_loses_nothing():
    async with connected() as (here, there):
        await here.send("kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await there.receive()
        assert await there.receive() == "kept"


async def test_a_cancelled_close_aborts():
    async with connected() as (here, there):
        await here.send(bytes(5_000_000))  # for which one turn of the loop is not enough
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.aclose()
        with pytest.raises(trio.BrokenResourceError, match="closed without waiting"):
            await receive_all(there)


async def test_too_large_messages_are_refused_with_size_and_limit():
    settings = ChannelSettings(max_message=2000, max_datagram=1200)
    async with connected(settings=settings) as (here, _):
        with pytest.raises(
            sphtp.errors.MessageTooLargeError, match="2003 bytes; this channel takes 2000"
        ):
            await here.send(bytes(2000))
        with pytest.raises(sphtp.errors.MessageTooLargeError, match="one packet takes"):
            await here.post(bytes(1300), delivery=Delivery.UNRELIABLE)


async def test_where_one_of_many_is_too_large_none_is_sent():
    settings = ChannelSettings(max_message=1000)
    async with connected(settings=settings) as (here, _):
        for place in (0, 4095, 4096, 12_288):
            values = [b"a"] * 12_288 + [b"b"]
            values[place] = bytes(1001)
            with pytest.raises(sphtp.errors.MessageTooLargeError, match="1004 bytes"):
                await here.send_many(values)
        assert here.statistics().messages_sent == 0


async def test_unreliable_messages_arrive_on_a_good_network():
    async with connected() as (here, there):
        for number in range(20):
            await here.post(number, delivery=Delivery.UNRELIABLE)
        assert [await there.receive() for _ in range(20)] == list(range(20))


async def test_many_are_sent_and_received_at_once():
    async with connected() as (here, there), trio.open_nursery() as nursery:
        nursery.start_soon(here.send_many, range(20_000))
        received: list[int] = []
        while len(received) < 20_000:
            batch = await there.receive_many(3000)
            assert 1 <= len(batch) <= 3000
            received += batch
        assert received == list(range(20_000))


async def test_many_are_taken_behind_those_taken_ahead():
    async with connected() as (here, there):
        receipts = [here.post_nowait(number) for number in range(300)]
        for receipt in receipts:
            await receipt.wait()
        # The faster a program reads, the more is taken ahead of it.
        assert [await there.receive() for _ in range(4)] == list(range(4))
        assert await there.receive_many(200) == list(range(4, 204))
        assert await there.receive_many() == list(range(204, 300))


async def test_one_call_decodes_no_more_bytes_than_memory_allows():
    """It took 25 MiB, the objects of which may take 2 GB."""
    async with connected(settings=ChannelSettings(shared_memory=0)) as (here, there):
        receipts = [here.post_nowait(bytes(64 * 1024)) for _ in range(100)]
        for receipt in receipts:
            await receipt.wait()
        taken = 0
        while taken < 100:
            batch = await there.receive_many()
            assert sum(map(len, batch)) <= READ_BYTES + 64 * 1024
            taken += len(batch)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_at_which_nothing_is_ever_taken_is_refused(limit):
    """It would ask again and again, and let no other task run."""
    async with connected() as (here, there):
        with pytest.raises(sphtp.LocalError, match=f"limit is {limit}"):
            await there.receive_many(limit)
        await here.send("there is one")
        assert await there.receive() == "there is one"
        await here.send("and another")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(sphtp.LocalError):
            await there.receive_many(limit)
        assert await there.receive_many(1) == ["and another"]


async def test_without_waiting(sockets):
    async with connected(settings=ChannelSettings(send_buffer=2, linger=0.1)) as (here, there):
        with pytest.raises(trio.WouldBlock):
            there.receive_nowait()
        sockets.behind(here).hold()
        for number in range(2):
            here.send_nowait(number)
        with pytest.raises(trio.WouldBlock):
            here.send_nowait("no room")
        sockets.behind(here).release()
        assert await there.receive() == 0
        # Who waits for a message has it before others are taken off the socket.
        await trio.testing.wait_all_tasks_blocked()
        assert there.receive_nowait() == 1


async def test_a_receipt_says_what_became_of_a_message(sockets):
    async with connected() as (here, there):
        receipt = await here.post("followed")
        called: list[sphtp.Receipt] = []
        receipt.add_callback(called.append)
        assert await receipt.wait() is Outcome.DELIVERED
        assert 0 < receipt.latency < 1
        later = trio.Event()
        receipt.add_callback(lambda *_: later.set())
        await later.wait()
        assert called == [receipt]
        sockets.behind(here).hold()
        late = await here.post("late", expiry=0.02)
        lost = await here.post("never", delivery=Delivery.UNRELIABLE)
        assert await late.wait() is Outcome.EXPIRED
        assert late.latency is None
        here.abort()
        assert await lost.wait() is Outcome.CLOSED
        there.abort()


async def test_a_deadline_counts_while_there_is_no_room(sockets):
    """From the call on; and nothing of the message is sent."""
    async with connected(settings=ChannelSettings(send_buffer=2, linger=0.1)) as (here, there):
        sockets.behind(here).hold()
        for number in range(2):
            await here.send(number)
        called: list[sphtp.Receipt] = []
        with trio.fail_after(5):
            start = trio.current_time()
            receipt = await here.post("late", expiry=0.05)
            assert trio.current_time() - start >= 0.05
            receipt.add_callback(called.append)
            assert await receipt.wait() is Outcome.EXPIRED
            assert await (await here.post("at once or never", expiry=0)).wait() is Outcome.EXPIRED
        sockets.behind(here).release()
        await here.send("after")
        assert [await there.receive() for _ in range(3)] == [0, 1, "after"]
        assert called == [receipt]
        assert here.statistics().messages_sent == 3


@pytest.mark.parametrize("pause", ["checkpoint", "cancel_shielded_checkpoint"])
async def test_a_channel_that_ends_while_others_have_a_turn_gives_the_receipt(
    monkeypatch, pause, sockets
):
    """Not an error of the connection inside, which was asked after it had ended."""
    real = getattr(trio.lowlevel, pause)
    async with connected(settings=ChannelSettings(send_buffer=1, linger=0.1)) as (here, there):
        sockets.behind(here).hold()
        await here.send("full")

        async def others() -> None:
            here.abort()
            await real()

        monkeypatch.setattr(trio.lowlevel, pause, others)
        late = await here.post("late", expiry=0)
        monkeypatch.undo()
        here.abort()
        assert await late.wait() is Outcome.EXPIRED
        there.abort()


@pytest.mark.parametrize(
    "wish",
    [
        {"expiry": float("nan")},
        {"redundancy": -1},
        {"redundancy": 2, "delivery": Delivery.UNRELIABLE},
        {"redundancy": 1, "delivery": Delivery.SEQUENCED},
    ],
)
async def test_wishes_that_make_no_sense_are_refused(wish):
    async with connected() as (here, _):
        with pytest.raises(sphtp.LocalError, match=next(iter(wish))):
            await here.post("never", **wish)
        with pytest.raises(sphtp.LocalError, match=next(iter(wish))):
            here.post_nowait("never", **wish)
        assert here.statistics().messages_sent == 0


async def test_a_stopped_reader_holds_its_sender_and_is_not_dropped():
    settings = ChannelSettings(
        receive_buffer=4, send_buffer=4, timeout=0.5, keepalive=0.1, linger=0
    )
    async with connected(settings=settings) as (here, there):
        with trio.move_on_after(1.2) as scope:
            await here.send_many(range(100))
        assert scope.cancelled_caught
        assert here.statistics().waiting == 4
        assert [await there.receive() for _ in range(8)] == list(range(8))


async def test_a_value_that_msgpack_cannot_carry_is_a_type_error():
    async with connected() as (here, _):
        with pytest.raises(TypeError):
            await here.send(object())


DEEP = b"\x91" * 128 + b"\x90"
MALFORMED = [b"", b"\xc1", b"\x92\x01", b"\x01\x01", b"\x81\x90\x01", DEEP]


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_a_message_that_is_not_msgpack_is_dropped_and_counted(malformed):
    async with connected(messages=RawMessages()) as (here, there):
        await here.send(malformed)
        await here.send(msgpack.packb("next"))
        assert await there.receive() == "next"
        assert there.undecodable == 1


async def test_a_message_that_the_peer_would_drop_is_not_sent():
    async with connected() as (here, there):
        deep: list[Any] = []
        for _ in range(128):
            deep = [deep]
        with pytest.raises(MessageTooLargeError, match="deeper than max_depth, 128"):
            await here.send(deep)
        await here.send(deep[0])
        assert await there.receive() == deep[0]


async def test_maps_keep_keys_that_are_not_text():
    async with connected() as (here, there):
        await here.send({1: "one"})
        assert await there.receive() == msgpack.unpackb(
            msgpack.packb({1: "one"}), strict_map_key=False
        )


async def test_two_peers_without_a_server():
    async with open_node() as node:
        host, port = node.address
        with trio.fail_after(5):
            async with sphtp.open_channel(host, port) as channel, await node.accept() as other:
                await channel.send("hello")
                assert await other.receive() == "hello"


async def test_channels_that_nobody_accepts_are_bounded():
    settings = ChannelSettings(backlog=2, linger=0.1)
    async with (
        open_node(config=sphtp.Config(channel=settings)) as right,
        open_node(config=sphtp.Config(channel=BRISK)) as left,
        left.open_channel(*right.address),
        left.open_channel(*right.address) as second,
    ):
        await second.send("the second is open on both sides")
        with pytest.raises(sphtp.RefusedError, match="too many channels"):
            async with left.open_channel(*right.address):
                raise AssertionError("two are waiting already")
        assert right.statistics().refused_full > 0


async def test_a_node_that_is_cancelled_still_answers_a_close_that_came():
    settings = ChannelSettings(linger=0.2)
    async with open_node(config=sphtp.Config(channel=settings)) as left:
        with trio.CancelScope() as scope:
            async with open_node(config=sphtp.Config(channel=settings)) as right:
                async with left.open_channel(*right.address) as here:
                    there = await right.accept()
                    await here.send("all")
                assert await there.receive() == "all"
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught


async def test_a_leaving_node_takes_no_new_channels_and_does_not_wait_for_them():
    settings = ChannelSettings(linger=0.5, connect_timeout=0.5)
    left = open_node(config=sphtp.Config(channel=settings))
    async with left as dialler, open_node(config=sphtp.Config(channel=settings)) as other:
        async with open_node(config=sphtp.Config(channel=ChannelSettings(linger=0.2))) as leaver:
            async with other.open_channel(*leaver.address) as first:
                await leaver.accept()
            address = leaver.address
        assert first.statistics().waiting == 0
        with pytest.raises((sphtp.RefusedError, sphtp.UnreachableError)):
            async with dialler.open_channel(*address):
                raise AssertionError("it has left")


async def test_a_closed_node_ends_all_waiting():
    accepted: list[object] = []

    async def accept_all(node):
        with pytest.raises(trio.ClosedResourceError):
            await node.accept()
        with pytest.RaisesGroup(trio.ClosedResourceError):
            await node.serve_channels(accepted.append)
        accepted.append("ended")

    async with trio.open_nursery() as nursery:
        async with open_node() as right, open_node() as node:
            nursery.start_soon(accept_all, node)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.ClosedResourceError, match="this node is closed"):
            async with node.open_channel(*right.address):
                raise AssertionError("it is closed")
    assert accepted == ["ended"]


async def test_a_channel_whose_own_node_closed_is_closed_here():
    async with open_node(config=sphtp.Config(channel=BRISK)) as right:
        async with open_node(config=sphtp.Config(channel=BRISK)) as left:
            channel = left.open_channel(*right.address)
            here = await channel.__aenter__()
        with pytest.raises(trio.ClosedResourceError):
            await here.receive()
        with pytest.raises(trio.ClosedResourceError):
            await here.send(1)
        await channel.__aexit__(None, None, None)


async def test_closing_says_so_when_the_peer_closed_before_everything_arrived():
    settings = ChannelSettings(receive_buffer=4, resend_time=0.03, linger=0.1)
    async with connected(settings=settings) as (here, there):
        for number in range(20):
            await here.send(number)
        await there.aclose()
        with pytest.raises(trio.BrokenResourceError, match="closed the channel"):
            await here.aclose()
        await here.aclose()


async def test_one_bad_address_does_not_spoil_the_others():
    async with open_node() as right, open_node() as left:
        addresses = [("no such host", 1), ("::1", 9), right.address]
        async with left.services.open(None, addresses) as channel:
            assert channel.peer_address == right.address
        with pytest.raises(sphtp.UnreachableError, match="no address of no such host"):
            async with left.open_channel("no such host", 1):
                raise AssertionError("there is no such host")


async def test_cancelling_a_dial_leaves_nothing_behind(sockets):
    async with open_node() as right, open_node() as left:
        sockets[right.address].hold()
        with trio.move_on_after(0.05) as scope:
            async with left.open_channel(*right.address):
                raise AssertionError("nobody answers")
        assert scope.cancelled_caught
        before = left.statistics()
        sockets[right.address].release()
        await until(lambda: left.statistics().received > before.received)
        assert left.statistics().sent == before.sent, "the answer is for nobody"
