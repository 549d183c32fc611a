"""The bus on real sockets: loopback, port 0, no sleeping."""

from collections.abc import Callable
from typing import Any

import pynng
import pytest
import trio

from sphtp.errors import MessageTooLargeError, SettingsError
from sphtp.shell.bus import (
    MAX_MESSAGE_SIZE,
    RECEIVE_SIZE,
    BusAddressInUseError,
    BusError,
    Publisher,
    Subscriber,
)
from tests.deadline import within_20_seconds

ANY = "tcp://127.0.0.1:0"


pytestmark = within_20_seconds


def connected() -> tuple[trio.Event, Callable[[], None]]:
    event = trio.Event()
    return event, event.set


async def linked(subscriber: Subscriber, **arguments: Any) -> Publisher:
    """Return a publisher to which the subscriber has connected."""
    event, on_connected = connected()
    publisher = Publisher(on_connected=on_connected, **arguments)
    subscriber.dial(publisher.listen(ANY))
    await event.wait()
    return publisher


async def collect(subscriber: Subscriber, count: int) -> list[bytes]:
    messages: list[bytes] = []
    while len(messages) < count:
        messages += await subscriber.receive_batch()
    return messages


async def test_listening_on_port_0_tells_the_real_port() -> None:
    with Publisher() as publisher:
        url = publisher.listen(ANY)
    assert url.startswith("tcp://127.0.0.1:")
    assert int(url.rpartition(":")[2]) > 0


async def test_a_host_name_stays_as_it_was_written() -> None:
    with Publisher() as publisher:
        assert publisher.listen("tcp://localhost:0").startswith("tcp://localhost:")


async def test_messages_arrive_in_order_and_only_the_subscribed_ones() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"a")
        with await linked(subscriber) as publisher:
            for number in range(100):
                publisher.send(b"a%d" % number)
                publisher.send(b"b%d" % number)
            assert await collect(subscriber, 100) == [b"a%d" % number for number in range(100)]


async def test_the_default_buffers_hold_a_mass_start() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        with await linked(subscriber) as publisher:
            for number in range(5000):
                publisher.send(b"%d" % number)
            assert await collect(subscriber, 5000) == [b"%d" % number for number in range(5000)]


async def test_a_batch_is_no_larger_than_its_limit() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        with await linked(subscriber) as publisher:
            for _ in range(10):
                publisher.send(b"x")
            sizes: list[int] = []
            while sum(sizes) < 10:
                sizes.append(len(await subscriber.receive_batch(limit=3)))
    assert max(sizes) <= 3


async def test_after_unsubscribing_a_topic_is_silent() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"a")
        subscriber.subscribe(b"b")
        with await linked(subscriber) as publisher:
            subscriber.unsubscribe(b"a")
            publisher.send(b"a1")
            publisher.send(b"b1")
            assert await subscriber.receive_batch() == [b"b1"]


async def test_unsubscribing_what_was_not_subscribed_is_an_error() -> None:
    with Subscriber() as subscriber, pytest.raises(BusError, match="nothing"):
        subscriber.unsubscribe(b"nothing")


async def test_a_publisher_may_dial_a_listening_subscriber_that_comes_later() -> None:
    with Subscriber() as first:
        url = first.listen(ANY)
    event, on_connected = connected()
    with Publisher(on_connected=on_connected) as publisher, Subscriber() as second:
        publisher.dial(url)
        second.subscribe(b"")
        second.listen(url)
        await event.wait()
        publisher.send(b"hello")
        assert await second.receive_batch() == [b"hello"]


async def test_a_subscriber_reconnects_when_the_publisher_is_restarted() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        with await linked(subscriber) as publisher:
            url = publisher.listen(ANY)
            subscriber.dial(url)
        event, on_connected = connected()
        with Publisher(on_connected=on_connected) as restarted:
            restarted.listen(url)
            await event.wait()
            restarted.send(b"again")
            assert await subscriber.receive_batch() == [b"again"]


async def test_dialling_twice_connects_once() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        event, on_connected = connected()
        with Publisher(on_connected=on_connected) as publisher:
            url = publisher.listen(ANY)
            subscriber.dial(url)
            subscriber.dial(url)
            await event.wait()
            publisher.send(b"once")
            publisher.send(b"end")
            assert await collect(subscriber, 2) == [b"once", b"end"]


async def test_hanging_up_ends_the_connection_and_dialling_again_restores_it() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        reached, renewed = trio.Event(), trio.Event()
        steps = iter([reached, renewed])
        with Publisher(on_connected=lambda: next(steps).set()) as publisher:
            url = publisher.listen(ANY)
            subscriber.dial(url)
            await reached.wait()
            subscriber.hang_up(url)
            subscriber.hang_up(url)
            publisher.send(b"to nobody")
            subscriber.dial(url)
            await renewed.wait()
            publisher.send(b"to somebody")
            assert (await subscriber.receive_batch())[-1] == b"to somebody"


async def test_a_port_in_use_is_named() -> None:
    with Publisher() as first, Publisher() as second:
        url = first.listen(ANY)
        with pytest.raises(BusAddressInUseError, match=url):
            second.listen(url)


async def test_a_port_that_cannot_be_is_named_when_listening() -> None:
    with Publisher() as publisher, pytest.raises(BusError, match="99999"):
        publisher.listen("tcp://127.0.0.1:99999")


@pytest.mark.parametrize("url", ["nonsense", "carrier-pigeon://loft"])
async def test_a_malformed_address_is_named(url: str) -> None:
    with Publisher() as publisher:
        with pytest.raises(BusError, match=f"listen on {url}"):
            publisher.listen(url)
        with pytest.raises(BusError, match=f"dial {url}"):
            publisher.dial(url)


async def test_the_largest_message_passes_and_a_larger_one_is_refused_at_send() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        with await linked(subscriber) as publisher:
            with pytest.raises(MessageTooLargeError, match=f"{MAX_MESSAGE_SIZE + 1} bytes"):
                publisher.send(bytes(MAX_MESSAGE_SIZE + 1))
            publisher.send(bytes(MAX_MESSAGE_SIZE))
            assert await subscriber.receive_batch() == [bytes(MAX_MESSAGE_SIZE)]


async def test_an_oversize_message_from_a_stranger_is_dropped_and_others_still_arrive() -> None:
    with Subscriber(max_size=100) as subscriber, pynng.Pub0() as stranger:
        subscriber.subscribe(b"")
        url = subscriber.listen(ANY)
        stranger.dial(url, block=True)
        stranger.send(bytes(101))
        event, on_connected = connected()
        with Publisher(on_connected=on_connected) as publisher:
            publisher.dial(url)
            await event.wait()
            publisher.send(b"good")
            assert await subscriber.receive_batch() == [b"good"]


async def test_a_message_too_large_to_be_sent_still_arrives_to_be_counted() -> None:
    with Subscriber() as subscriber, pynng.Pub0() as stranger:
        subscriber.subscribe(b"")
        stranger.dial(subscriber.listen(ANY), block=True)
        for size in (MAX_MESSAGE_SIZE + 1, RECEIVE_SIZE):
            stranger.send(bytes(size))
            assert await subscriber.receive_batch() == [bytes(size)]
        assert subscriber.ended == 0
        stranger.send(bytes(RECEIVE_SIZE + 1))
        while subscriber.ended == 0:
            await trio.lowlevel.checkpoint()


async def test_an_empty_message_is_a_message() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        with await linked(subscriber) as publisher:
            for message in (b"a", b"", b"b"):
                publisher.send(message)
            assert await collect(subscriber, 3) == [b"a", b"", b"b"]


async def test_connections_beyond_the_limit_are_refused_until_there_is_room() -> None:
    admit, admitted = trio.open_memory_channel[None](8)
    with (
        Subscriber() as first,
        Subscriber() as second,
        Publisher(max_pipes=1, on_connected=lambda: admit.send_nowait(None)) as publisher,
    ):
        first.subscribe(b"")
        second.subscribe(b"")
        url = publisher.listen(ANY)
        first.dial(url)
        await admitted.receive()
        second.dial(url)
        while not publisher.refused:
            await trio.lowlevel.checkpoint()
        publisher.send(b"no room for a second")
        assert await first.receive_batch() == [b"no room for a second"]
        first.close()
        await admitted.receive()
        publisher.send(b"room")
        assert await second.receive_batch() == [b"room"]


@pytest.mark.parametrize("buffer", [0, 8193])
async def test_a_buffer_that_nng_does_not_have_names_what_is_allowed(buffer: int) -> None:
    with pytest.raises(SettingsError, match="1 to 8192"):
        Publisher(buffer)
    with pytest.raises(SettingsError, match="1 to 8192"):
        Subscriber(buffer)


async def test_receiving_can_be_cancelled_and_loses_nothing() -> None:
    with Subscriber() as subscriber:
        subscriber.subscribe(b"")
        with await linked(subscriber) as publisher:
            with trio.CancelScope() as scope:
                scope.cancel()
                await subscriber.receive_batch()
            assert scope.cancelled_caught
            for number in range(200):
                publisher.send(b"%d" % number)
            received: list[bytes] = []
            while len(received) < 200:
                with trio.CancelScope() as scope:
                    scope.cancel()
                    received += await subscriber.receive_batch()
                received += await subscriber.receive_batch(limit=7)
            assert received == [b"%d" % number for number in range(200)]
