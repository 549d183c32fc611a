"""A receiver that left keeps what it was given: keys, ids, addresses. They are worth nothing."""

from collections import deque

import pytest

from sphtp import Source, Subscription
from sphtp.core.datagrams import Datagrams, Kind
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.sealing import FeedbackSeal, SealCounters, StreamUnsealer
from sphtp.core.stream.wire import STREAM_HEADER, Nak, StatusMessage, encode_nak, encode_status
from tests.attack.stream.wire import TOPIC, Scene, Way, opened, somebody, streaming
from tests.deadline import until, within_20_seconds
from tests.shell.streams.joined import Joined, overheard
from tests.sockets import Sockets

pytestmark = within_20_seconds

GREEDY = encode_nak(Nak([Span(1, 50)]))


def opened_with(scene_key: StreamUnsealer, datagrams: list[bytes]) -> list[bytes]:
    """What of a capture can be read."""
    return [body for it in datagrams for body in scene_key.open(it, len(it))]


def first_key(joined: Joined) -> StreamUnsealer:
    """Opens what is sealed with the key that a receiver was given."""
    return StreamUnsealer(joined.welcome.key, SealCounters())


async def wait_for_another_key(way: Way, source: Source, stream: Subscription) -> None:
    """Until the source seals with another one than at first: soon after somebody has left."""
    while not way.of_kind(Kind.STREAM) or not way.of_kind(Kind.STREAM)[-1][STREAM_HEADER.size - 1]:
        await source.send("and")
        assert await stream.receive() == "and"


async def test_who_has_left_cannot_read_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Way(monkeypatch)
    async with streaming() as (here, _, source, stream, _), opened() as third:
        with overheard() as joined:
            async with third.subscribe(*here.address, topic=TOPIC) as brief:
                kept = first_key(joined[0])
                await source.send("before")
                assert await stream.receive() == await brief.receive() == "before"
        await wait_for_another_key(way, source, stream)
        assert opened_with(kept, way.of_kind(Kind.STREAM)), "it could read while it was there"
        way.captured.clear()
        for number in range(50):
            await source.send(number)
            assert await stream.receive() == number
        assert len(way.of_kind(Kind.STREAM)) >= 50
        assert opened_with(kept, way.of_kind(Kind.STREAM)) == []


async def test_the_last_one_to_leave_cannot_read_what_is_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is left who could be told of another key; there is one all the same."""
    way = Way(monkeypatch)
    async with streaming() as scene:
        here, there, source, _, first = scene
        kept, address = first_key(first), first.channel.peer_address
        assert address is not None
        await scene.leave()
        is_heard = False
        while not is_heard:
            with overheard() as joined:
                async with there.subscribe(*address, topic=TOPIC) as next_one:
                    key = joined[0].welcome.key
                    if key is not None and key.number:
                        way.captured.clear()
                        await source.send("for the next")
                        assert await next_one.receive() == "for the next"
                        is_heard = True
        assert way.of_kind(Kind.STREAM)
        assert opened_with(kept, way.of_kind(Kind.STREAM)) == []
        assert here.statistics().stream_malformed == 0


async def leave(scene: Scene) -> FeedbackSeal:
    """Let the receiver leave; return what it seals with."""
    welcome = scene.welcome
    await scene.leave()
    await until(lambda: len(scene.source.receivers) == 0)
    return FeedbackSeal(welcome.session, welcome.receiver, welcome.receiver_key)


async def test_who_has_left_is_not_heard() -> None:
    async with streaming() as scene:
        await scene.source.send_many(range(500))
        seal = await leave(scene)
        before = scene.source.statistics()
        with somebody() as send:
            for _ in range(20):
                send(seal.seal(GREEDY), scene.here.address)
                send(seal.seal(encode_status(StatusMessage(1, 0))), scene.here.address)
        await until(lambda: scene.here.statistics().stream_unknown >= 40)
        after = scene.source.statistics()
        assert after.naks_received == before.naks_received
        assert after.repairs_sent == before.repairs_sent


async def test_who_is_in_is_heard_under_its_own_number_and_from_its_own_address_only(
    sockets: Sockets,
) -> None:
    """One receiver cannot NAK or report in the name of another."""
    with overheard() as joined:
        async with (
            streaming() as (here, there, source, _, _),
            opened() as third,
            third.subscribe(*here.address, topic=TOPIC),
        ):
            theirs, own = (it.welcome for it in joined)
            forged = FeedbackSeal(theirs.session, theirs.receiver, own.receiver_key)
            stolen = FeedbackSeal(own.session, own.receiver, own.receiver_key)
            for _ in range(10):
                sockets[third.address].send(
                    deque([Datagrams.of(here.address, forged.seal(GREEDY))])
                )
            with somebody() as send:
                for _ in range(10):
                    send(stolen.seal(GREEDY), here.address)
            await until(lambda: here.statistics().stream_unknown >= 20)
            assert source.statistics().naks_received == 0
            assert there.statistics().stream_malformed == 0
