"""The bus on real sockets: loopback, port 0, no sleeping."""

import errno
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from sphtp.errors import BusAddressInUseError, BusError, MessageTooLargeError, SettingsError
from sphtp.shell.bus_dialing import MAX_MESSAGE_SIZE, RECEIVE_SIZE, PubSocket, SubSocket
from sphtp.shell.bus_handshakes import AcceptLimits, Handshakes
from sphtp.shell.bus_listening import SHARE, ListeningPubSocket, ListeningSubSocket
from sphtp.shell.lifetime import running
from tests.deadline import within_20_seconds
from tests.shell.strangers import PUB, SUB, connect, frame, greeting, is_ended

ANY = "tcp://127.0.0.1:0"


pytestmark = within_20_seconds


def connected() -> tuple[trio.Event, Callable[[], None]]:
    event = trio.Event()
    return event, event.set


@asynccontextmanager
async def linked(subscriber: SubSocket) -> AsyncIterator[ListeningPubSocket]:
    """A publisher to which the subscriber has connected."""
    event, on_connected = connected()
    with ListeningPubSocket(on_connected=on_connected) as publisher:
        async with running(publisher.run):
            subscriber.dial(publisher.listen(ANY))
            await event.wait()
            yield publisher


async def collect(subscriber: SubSocket, count: int) -> list[bytes]:
    messages: list[bytes] = []
    while len(messages) < count:
        messages += await subscriber.receive_batch()
    return messages


async def test_listening_on_port_0_tells_the_real_port() -> None:
    with ListeningPubSocket() as publisher:
        url = publisher.listen(ANY)
    assert url.startswith("tcp://127.0.0.1:")
    assert int(url.rpartition(":")[2]) > 0


async def test_a_host_name_stays_as_it_was_written() -> None:
    with ListeningPubSocket() as publisher:
        assert publisher.listen("tcp://localhost:0").startswith("tcp://localhost:")


async def test_messages_arrive_in_order_and_only_the_subscribed_ones() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"a")
        async with linked(subscriber) as publisher:
            for number in range(100):
                publisher.send(b"a%d" % number)
                publisher.send(b"b%d" % number)
            assert await collect(subscriber, 100) == [b"a%d" % number for number in range(100)]


async def test_the_default_buffers_hold_a_mass_start() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher:
            for number in range(5000):
                publisher.send(b"%d" % number)
            assert await collect(subscriber, 5000) == [b"%d" % number for number in range(5000)]


async def test_a_batch_is_no_larger_than_its_limit() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher:
            for _ in range(10):
                publisher.send(b"x")
            sizes: list[int] = []
            while sum(sizes) < 10:
                sizes.append(len(await subscriber.receive_batch(limit=3)))
    assert max(sizes) <= 3


async def test_after_unsubscribing_a_topic_is_silent() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"a")
        subscriber.subscribe(b"b")
        async with linked(subscriber) as publisher:
            subscriber.unsubscribe(b"a")
            publisher.send(b"a1")
            publisher.send(b"b1")
            assert await subscriber.receive_batch() == [b"b1"]


async def test_unsubscribing_what_was_not_subscribed_is_an_error() -> None:
    with SubSocket() as subscriber, pytest.raises(BusError, match="nothing"):
        subscriber.unsubscribe(b"nothing")


async def test_a_publisher_may_dial_a_listening_subscriber_that_comes_later() -> None:
    with ListeningSubSocket() as first:
        url = first.listen(ANY)
    event, on_connected = connected()
    with PubSocket(on_connected=on_connected) as publisher, ListeningSubSocket() as second:
        publisher.dial(url)
        second.subscribe(b"")
        second.listen(url)
        async with running(lambda: said_until_heard(publisher, event)):
            assert await second.receive_batch() == [b"hello"]


async def said_until_heard(publisher: PubSocket, event: trio.Event) -> None:
    await event.wait()
    publisher.send(b"hello")


async def test_a_subscriber_reconnects_when_the_publisher_is_restarted() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as first:
            url = first.urls[0]
        event, on_connected = connected()
        with ListeningPubSocket(on_connected=on_connected) as restarted:
            restarted.listen(url)
            async with running(restarted.run):
                await event.wait()
                restarted.send(b"again")
                assert await subscriber.receive_batch() == [b"again"]


async def test_dialling_twice_connects_once() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher:
            subscriber.dial(publisher.urls[0])
            publisher.send(b"once")
            publisher.send(b"end")
            assert await collect(subscriber, 2) == [b"once", b"end"]


async def test_hanging_up_ends_the_connection_and_dialling_again_restores_it() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        reached, renewed = trio.Event(), trio.Event()
        steps = iter([reached, renewed])
        with ListeningPubSocket(on_connected=lambda: next(steps).set()) as publisher:
            url = publisher.listen(ANY)
            async with running(publisher.run):
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
    with ListeningPubSocket() as first, ListeningPubSocket() as second:
        url = first.listen(ANY)
        with pytest.raises(BusAddressInUseError, match=url):
            second.listen(url)


@pytest.mark.parametrize(
    "url", ["tcp://127.0.0.1:99999", "tcp://127.0.0.1", "nonsense", "carrier-pigeon://loft:1"]
)
async def test_an_address_that_cannot_be_is_named_when_listening(url: str) -> None:
    with ListeningPubSocket() as publisher, pytest.raises(BusError, match=f"listen on {url}"):
        publisher.listen(url)


@pytest.mark.parametrize("url", ["nonsense", "carrier-pigeon://loft"])
async def test_a_malformed_address_is_named_when_dialling(url: str) -> None:
    with PubSocket() as publisher, pytest.raises(BusError, match=f"dial {url}"):
        publisher.dial(url)


async def test_the_largest_message_passes_and_a_larger_one_is_refused_at_send() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher:
            with pytest.raises(MessageTooLargeError, match=f"{MAX_MESSAGE_SIZE + 1} bytes"):
                publisher.send(bytes(MAX_MESSAGE_SIZE + 1))
            publisher.send(bytes(MAX_MESSAGE_SIZE))
            assert await subscriber.receive_batch() == [bytes(MAX_MESSAGE_SIZE)]


async def test_an_oversize_message_from_a_stranger_is_dropped_and_others_still_arrive() -> None:
    with ListeningSubSocket(max_size=100) as subscriber:
        subscriber.subscribe(b"")
        url = subscriber.listen(ANY)
        async with await said(url, frame(bytes(101))):
            assert await subscriber.receive_batch() == []
            assert subscriber.ended == 1
        async with await said(url, frame(b"good")):
            assert await subscriber.receive_batch() == [b"good"]


async def said(url: str, data: bytes) -> trio.SocketStream:
    """Return a connection of a publisher that has said something."""
    stream = await connect(url)
    await stream.send_all(greeting(PUB) + data)
    return stream


async def test_a_message_too_large_to_be_sent_still_arrives_to_be_counted() -> None:
    with ListeningSubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with (
            await said(subscriber.listen(ANY), b"") as stranger,
            trio.open_nursery() as tasks,
        ):
            for size in (MAX_MESSAGE_SIZE + 1, RECEIVE_SIZE):
                tasks.start_soon(stranger.send_all, frame(bytes(size)))
                assert await subscriber.receive_batch() == [bytes(size)]
            assert subscriber.ended == 0
            await stranger.send_all(frame(bytes(RECEIVE_SIZE + 1))[:9])
            assert await subscriber.receive_batch() == []
            assert subscriber.ended == 1


async def test_an_empty_message_is_a_message() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher:
            for message in (b"a", b"", b"b"):
                publisher.send(message)
            assert await collect(subscriber, 3) == [b"a", b"", b"b"]


async def test_connections_beyond_the_limit_are_refused_until_there_is_room() -> None:
    handshakes = Handshakes(AcceptLimits(max_connections=1))
    with ListeningSubSocket(handshakes) as subscriber:
        subscriber.subscribe(b"")
        url = subscriber.listen(ANY)
        async with await said(url, frame(b"first")) as first, await connect(url) as second:
            assert await subscriber.receive_batch() == [b"first"]
            async with running(subscriber.receive_batch):
                await is_ended(second)
            assert subscriber.counters.refused == 1
            await first.aclose()
            assert await subscriber.receive_batch() == []
        async with await said(url, frame(b"room")):
            assert await subscriber.receive_batch() == [b"room"]


async def test_who_speaks_most_does_not_drown_the_others() -> None:
    """What must hold: what is taken at once is taken from all in turn, and in order."""
    with ListeningSubSocket() as subscriber:
        subscriber.subscribe(b"")
        url = subscriber.listen(ANY)
        flood = b"".join(frame(b"%d" % number) for number in range(1000))
        async with await said(url, flood), await said(url, frame(b"quiet")):
            batch = await subscriber.receive_arrivals()
            quiet = next(arrival for arrival in batch if arrival.data == b"quiet")
            assert batch.index(quiet) <= SHARE
            assert [each.data for each in batch if each != quiet] == [
                b"%d" % number for number in range(255)
            ]


async def test_a_subscriber_that_reads_too_slowly_misses_the_oldest() -> None:
    with ListeningPubSocket(buffer=4) as publisher:
        url = publisher.listen(ANY)
        async with running(publisher.run), await connect(url) as slow:
            await slow.send_all(greeting(SUB))
            while not publisher.connections:
                await trio.lowlevel.checkpoint()
            number = 0
            while publisher.discarded < 10:
                publisher.send(number.to_bytes(4, "big") + bytes(60_000))
                number += 1
            received = bytearray()
            while not received.endswith((number - 1).to_bytes(4, "big") + bytes(60_000)):
                received += await slow.receive_some()
            assert received[:8] == greeting(PUB)
            del received[:8]
            told = [
                int.from_bytes(received[at + 8 : at + 12], "big")
                for at in range(0, len(received), 60_012)
            ]
            assert len(told) == number - publisher.discarded
            assert told == sorted(told)
            assert told[-5:] == [told[-5], *range(number - 4, number)]


async def test_many_slow_subscribers_cost_little_more_than_one() -> None:
    """What waits for them is kept once, although each is at another place in it."""
    number, message = 8, bytes(60_000)
    with ListeningPubSocket() as publisher:
        url = publisher.listen(ANY)
        async with running(publisher.run), AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(await connect(url)) for _ in range(number)]
            for one in slow:
                await one.send_all(greeting(SUB))
            while publisher.connections < number:
                await trio.lowlevel.checkpoint()
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            for turn in range(3):
                aim = publisher.discarded + 80 * number
                while publisher.discarded < aim:
                    publisher.send(message)
                for place, one in enumerate(slow):
                    for _ in range(20 * turn + place):
                        await one.receive_some(65_536)
                await trio.testing.wait_all_tasks_blocked()
                assert tracemalloc.get_traced_memory()[0] < 8 << 20
            assert publisher.connections == number


@pytest.mark.parametrize("buffer", [0, 8193])
async def test_a_buffer_that_nng_does_not_have_names_what_is_allowed(buffer: int) -> None:
    with pytest.raises(SettingsError, match="1 to 8192"):
        PubSocket(buffer)
    with pytest.raises(SettingsError, match="1 to 8192"):
        SubSocket(buffer)


class ClosingBefore(trio.abc.Instrument):
    """Closes a socket when a task that waits for it is about to go on."""

    def __init__(self, subscriber: SubSocket, task: trio.lowlevel.Task) -> None:
        self._subscriber = subscriber
        self._task = task

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._subscriber.close()


async def test_closing_when_a_message_has_just_come_is_told_as_closing() -> None:
    tasks = list[trio.lowlevel.Task]()

    async def wait() -> None:
        tasks.append(trio.lowlevel.current_task())
        with pytest.raises(trio.ClosedResourceError):
            await subscriber.receive_batch()

    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher, trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            closing = ClosingBefore(subscriber, tasks[0])
            trio.lowlevel.add_instrument(closing)
            publisher.send(b"x")
        trio.lowlevel.remove_instrument(closing)


async def test_a_socket_that_the_system_refuses_names_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    with ListeningSubSocket() as subscriber, monkeypatch.context() as patched:
        patched.setattr(socket, "socket", refuse)
        with pytest.raises(BusError, match=f"cannot listen on {ANY}: Address family"):
            subscriber.listen(ANY)


async def test_receiving_can_be_cancelled_and_loses_nothing() -> None:
    with SubSocket() as subscriber:
        subscriber.subscribe(b"")
        async with linked(subscriber) as publisher:
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
