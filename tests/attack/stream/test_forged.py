"""Datagrams that nobody who takes part has sent, or has sent before."""

import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio

from sphtp import Source, Subscription
from sphtp.core.datagrams import Kind
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import RunRecord, encode_run
from sphtp.core.stream.wire import (
    BodyFlag,
    Nak,
    Ncf,
    NcfReason,
    SessionMessage,
    StatusMessage,
    Window,
    encode_data,
    encode_nak,
    encode_ncf,
    encode_session,
    encode_status,
    feedback_header,
    stream_header,
)
from sphtp.streams import MulticastGroup
from tests.attack.stream.wire import (
    TOPIC,
    Scene,
    Way,
    is_of_stream,
    kind_of,
    opened,
    somebody,
    streaming,
)
from tests.deadline import until, within_20_seconds
from tests.shell.streams.joined import overheard

pytestmark = within_20_seconds

FAR = 5000


@asynccontextmanager
async def straight(group: MulticastGroup | None = None) -> AsyncIterator[Scene]:
    """A source and its receiver in the clear, with nobody between them."""
    with overheard() as joined:
        async with (
            opened(None) as here,
            opened(None) as there,
            here.open_source(TOPIC, group=group) as source,
            there.subscribe(*here.address, topic=TOPIC) as stream,
        ):
            yield Scene(here, there, source, stream, joined[0])


def lies(lead: int) -> Iterator[bytes]:
    """What would do most harm if a source said it."""
    forged = encode_run(RunRecord(0, 50, [b"\xa6forged"]))
    window = Window(lead + FAR, lead + FAR)
    yield encode_data(lead + 1, Window(lead + 1, 1), forged)
    yield encode_data(lead + FAR, window, forged)
    yield encode_session(SessionMessage(BodyFlag.NONE, window, 1000, [(0, 2**40)]))
    yield encode_session(SessionMessage(BodyFlag.CLOSED, Window(lead, lead + 1), 1001, []))
    yield encode_ncf(Ncf(Window(lead, 1), NcfReason.NO_RETRY, 0.0, [Span(1, lead)]))


def false_feedback(lead: int) -> Iterator[bytes]:
    """What would do most harm if a receiver said it."""
    yield encode_nak(Nak([Span(1, lead)]))
    yield encode_status(StatusMessage(lead, 0))
    yield encode_status(StatusMessage(lead, 2**32 - 1))


async def send_all(source: Source, stream: Subscription, numbers: Iterable[int]) -> list[Any]:
    """Send numbers one by one, then close; return all that the stream tells."""

    async def send() -> None:
        for number in numbers:
            await source.send(number)
        await source.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        return [item async for item in stream]


async def test_whoever_carries_a_sealed_stream_can_change_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Altered, cut, lengthened, repeated, given to another session, under another key."""
    way, random = Way(monkeypatch), Random(seed)

    def meddle(datagram: bytes) -> Iterator[bytes]:
        if not is_of_stream(datagram):
            return
        at = random.randrange(len(datagram))
        yield datagram[:at] + bytes([datagram[at] ^ 1 << random.randrange(8)]) + datagram[at + 1 :]
        yield datagram[: random.randrange(len(datagram))]
        yield datagram + b"?"
        yield datagram
        yield random.choice(way.captured)

    async with streaming() as (here, there, source, stream, _):
        way.meddle = meddle
        assert await send_all(source, stream, range(400)) == list(range(400)), f"seed {seed}"
        figures = (here.statistics(), there.statistics())
        assert all(it.stream_forged and it.stream_replayed for it in figures)
        assert stream.statistics().transport.malformed == 0
        assert source.statistics().feedback_invalid == 0


async def test_a_capture_holds_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Way(monkeypatch)
    async with streaming() as (_, _, source, stream, _):
        await source.send("nobody else's business")
        assert await stream.receive() == "nobody else's business"
    assert way.of_kind(Kind.STREAM)
    assert not any(b"business" in it or TOPIC.encode() in it for it in way.captured)


async def test_without_keys_nobody_speaks_on_a_sealed_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither from elsewhere nor in the source's own place."""
    way = Way(monkeypatch)
    async with streaming() as scene:
        _, there, source, stream, _ = scene
        await source.send(0)
        assert await stream.receive() == 0
        front = stream_header(scene.welcome.session, 0)
        said = [front + body for body in lies(scene.lead)]
        said += [front + bytes(8) + it[len(front) :] + bytes(16) for it in said]
        with somebody() as send:
            for datagram in said:
                send(datagram, there.address)
        await until(lambda: there.statistics().stream_foreign == len(said))
        way.meddle = lambda datagram: said if kind_of(datagram) == Kind.STREAM else ()
        assert await send_all(source, stream, range(1, 100)) == list(range(1, 100))
        figures = there.statistics()
        assert figures.stream_forged + figures.stream_replayed >= len(said)
        assert stream.statistics().transport.malformed == 0


async def test_in_the_clear_nobody_is_believed_who_speaks_from_elsewhere() -> None:
    """Forged leads, trails and ends, NAKs and STATUS: true ids, and another address."""
    async with straight() as scene:
        here, there, source, stream, _ = scene
        await source.send(0)
        assert await stream.receive() == 0
        welcome, before, lead = scene.welcome, source.statistics(), scene.lead
        front = feedback_header(welcome.session, welcome.receiver)
        with somebody() as send:
            for body in lies(lead):
                send(stream_header(welcome.session, 0) + body, there.address)
            for body in false_feedback(lead):
                send(front + body, here.address)
        await until(lambda: there.statistics().stream_foreign == len(list(lies(lead))))
        await until(lambda: here.statistics().stream_unknown == len(list(false_feedback(lead))))
        after = source.statistics()
        assert after.nak_packets_received == before.nak_packets_received
        assert after.repairs_sent == before.repairs_sent
        assert await send_all(source, stream, range(1, 100)) == list(range(1, 100))
        assert stream.statistics().transport.lost == 0


async def test_in_the_clear_a_group_is_believed_from_the_host_of_its_source_only() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    group = MulticastGroup("239.86.84.81", port, "127.0.0.1")
    async with straight(group) as scene:
        _, there, source, stream, _ = scene
        await source.send(0)
        assert await stream.receive() == 0
        lead, session = scene.lead, scene.welcome.session
        with somebody("127.0.0.2") as send:
            for body in lies(lead):
                send(stream_header(session, 0) + body, group.address)
        await until(lambda: there.statistics().stream_foreign == len(list(lies(lead))))
        assert await send_all(source, stream, range(1, 100)) == list(range(1, 100))


async def test_a_capture_played_again_to_another_session_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was said on a source before it was restarted, under the name of the new one."""
    way = Way(monkeypatch)
    async with streaming() as (_, _, source, stream, _):
        assert await send_all(source, stream, range(50)) == list(range(50))
    old = way.of_kind(Kind.STREAM)
    async with streaming(seed=3) as scene:
        _, there, source, stream, _ = scene
        way.meddle = lambda datagram: old if is_of_stream(datagram) else ()
        await source.send("new")
        assert await stream.receive() == "new"
        session = scene.welcome.session
        way.meddle = lambda datagram: (
            [stream_header(session, it[5]) + it[6:] for it in old] if is_of_stream(datagram) else ()
        )
        await source.send("newer")
        assert await stream.receive() == "newer"

        def kept_out() -> int:
            figures = there.statistics()
            return figures.stream_forged + figures.stream_replayed

        await until(lambda: kept_out() >= len(old))
