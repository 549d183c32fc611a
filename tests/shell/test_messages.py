"""Types of messages on channels, over real sockets on loopback."""

import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, cast

import pytest
import trio

import sphtp
from sphtp.messages import (
    BitMessage,
    Compressed,
    Compression,
    Limit,
    MessageFactory,
    PlainMessages,
    Range,
)
from tests.deadline import within_20_seconds
from tests.shell.nodes import RawMessages, open_node

pytestmark = within_20_seconds

# A node stays for as long as its peer may ask again.
BRISK = sphtp.config.ChannelSettings(linger=0.05)


@dataclass
class Step:
    number: Annotated[int, Range(0, 1000)]
    note: Annotated[str, Limit(5000)] = ""


@dataclass
class Plain:
    number: int
    time: float


@dataclass
class Shot(BitMessage):
    angle: Annotated[float, Compressed(-180.0, 180.0, 0.5)] = 0.0
    power: Annotated[int, Range(0, 100)] = 0


@dataclass
class Stranger:
    number: int


TYPES = MessageFactory([Step, Plain, Shot])
SQUEEZED = MessageFactory([Step, Plain, Shot], compression=Compression(max_size=10_000))


@asynccontextmanager
async def connected(left=TYPES, right=TYPES):
    async with (
        open_node(config=sphtp.Config(messages=left, channel=BRISK, seed=1)) as one,
        open_node(config=sphtp.Config(messages=right, channel=BRISK, seed=2)) as other,
        one.open_channel(*other.address) as here,
        await other.accept() as there,
    ):
        yield here, there


RAW, RAW_SQUEEZED = RawMessages(TYPES), RawMessages(SQUEEZED)


@pytest.mark.parametrize("types", [TYPES, SQUEEZED])
async def test_what_is_sent_is_received_by_type(types):
    sent = [Step(7, "seven"), Shot(12.5, 80), Plain(1, 0.5), Shot(), Step(1000, "x" * 5000)]
    async with connected(types, types) as (here, there):
        for message in sent:
            await here.send(message)
        assert [await there.receive() for _ in sent] == sent
        await there.send_many(sent)
        received = list[object]()
        while len(received) < len(sent):
            received += await here.receive_many()
        assert received == sent
        here.send_nowait(sent[0])
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert there.receive_nowait() == sent[0]
        with pytest.raises(trio.WouldBlock):
            there.receive_nowait()


async def test_many_of_one_kind_arrive_in_order():
    for make in (lambda n: Plain(n, n / 2), lambda n: Step(n % 1000), lambda n: Shot(0.0, n % 101)):
        sent = [make(number) for number in range(3000)]
        async with connected() as (here, there), trio.open_nursery() as nursery:
            nursery.start_soon(here.send_many, sent)
            received = list[object]()
            while len(received) < len(sent):
                received += await there.receive_many()
            assert received == sent


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Stranger(1), "Stranger is not a registered type of message"),
        ({"number": 1}, "dict is not a registered type of message"),
        (Step(1001), "number: 1001 is outside 0..1000"),
        (Step(1, "x" * 5001), "note: 5001 over the limit of 5000"),
        (Plain(1, cast("Any", "late")), "time: float wanted, str given"),
        (Shot(0.0, 101), "power: 101 is outside 0..100"),
    ],
)
async def test_what_does_not_fit_is_refused_before_anything_is_sent(message, why):
    async with connected() as (here, there):
        with pytest.raises(sphtp.errors.WireError, match=why):
            await here.send(message)
        with pytest.raises(sphtp.errors.WireError, match=why):
            here.send_nowait(message)
        with pytest.raises(sphtp.errors.WireError, match=why):
            await here.send_many([Step(1), message, Step(2)])
        assert here.statistics().messages_sent == 0
        await here.send(Step(3))
        assert await there.receive() == Step(3)


@pytest.mark.parametrize("call", ["receive", "receive_many", "receive_nowait"])
async def test_what_the_network_brings_and_does_not_fit_is_dropped_and_counted(call):
    wrong = [
        b"",
        b"\x03",
        b"\xff" * 9,
        TYPES.encode(Step(1)) + b"\0",
        TYPES.encode(Step(1))[:-1],
        # A Step out of bounds, and one of the wrong types: prefix, array of two, values.
        TYPES.encode(Step(1))[:1] + b"\x92\xcd\x03\xe9\xa0",
        TYPES.encode(Step(1))[:1] + b"\x92\xa0\xa0",
    ]
    async with connected(RAW) as (here, there):
        await here.send_many([*wrong, TYPES.encode(Shot(1.0, 2))])
        if call == "receive_nowait":
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert there.receive_nowait() == Shot(1.0, 2)
        else:
            received = await getattr(there, call)()
            assert received in (Shot(1.0, 2), [Shot(1.0, 2)])
        assert there.statistics().undecodable == there.undecodable == len(wrong)
        await there.send(Step(1))
        assert await here.receive() == TYPES.encode(Step(1))


async def test_one_that_does_not_fit_does_not_spoil_those_beside_it():
    good = [Plain(number, 0.5) for number in range(10)]
    payloads = TYPES.encode_many(good)
    payloads.insert(5, payloads[0][:1] + b"\x92\xa0\xa0")
    async with connected(RAW) as (here, there):
        await here.send_many(payloads)
        assert [await there.receive() for _ in good] == good
        assert there.undecodable == 1


async def test_large_messages_are_deflated_and_small_ones_where_asked():
    async with connected(SQUEEZED, SQUEEZED) as (here, there):
        for note, compress in (("x" * 5000, None), ("x" * 300, True), ("x" * 5000, False)):
            before = here.statistics().bytes_sent
            receipt = await here.post(Step(1, note), compress=compress)
            assert await there.receive() == Step(1, note)
            assert await receipt.wait() is sphtp.Outcome.DELIVERED
            took = here.statistics().bytes_sent - before
            assert (took < len(note)) == (compress is not False)


async def test_a_bomb_is_dropped():
    deflating = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    bomb = deflating.compress(bytes(50_000_000)) + deflating.flush()
    async with connected(RAW_SQUEEZED, SQUEEZED) as (here, there):
        await here.send_many([b"\x01" + bomb, b"\x01", SQUEEZED.encode(Step(1))])
        assert await there.receive() == Step(1)
        assert there.undecodable == 2


async def test_no_more_is_inflated_at_once_than_there_is_room_for():
    types = MessageFactory([Step], compression=Compression(max_size=2 << 20))
    async with connected(types, types) as (here, there):
        await here.send_many([Step(number) for number in range(5)])
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await there.receive_many() == [Step(0), Step(1)]
        assert await there.receive_many(1) == [Step(2)]
        assert await there.receive_many() == [Step(3), Step(4)]


async def test_untyped_messages_can_be_deflated_too():
    plain = PlainMessages(compression=Compression())
    async with connected(plain, plain) as (here, there):
        await here.send({"note": "x" * 5000})
        assert await there.receive() == {"note": "x" * 5000}
        assert here.statistics().bytes_sent < 5000


async def test_nothing_is_deflated_without_compression():
    async with connected() as (here, there):
        with pytest.raises(sphtp.errors.WireError, match="no compression"):
            await here.post(Step(1), compress=True)
        await here.post(Step(1), compress=False)
        assert await there.receive() == Step(1)
    async with connected(None, None) as (here, _):
        with pytest.raises(sphtp.errors.StateError, match="nothing is compressed"):
            await here.post(1, compress=True)
        with pytest.raises(sphtp.errors.StateError, match="nothing is compressed"):
            here.post_nowait(1, compress=True)


@dataclass
class Wider:
    number: Annotated[int, Range(0, 2000)]
    note: Annotated[str, Limit(5000)] = ""


Wider.__name__ = "Step"


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (
            TYPES,
            MessageFactory([Wider, Plain, Shot]),
            (
                r"Step: here msgpack Step\(number: integer\(0\.\.1000\), .*\), "
                r"there msgpack Step\(number: integer\(0\.\.2000\), .*\)"
            ),
        ),
        (TYPES, MessageFactory([Step, Shot]), r"Plain: here msgpack Plain\(.*\), there missing"),
        (MessageFactory([Step, Shot]), TYPES, r"Plain: here missing, there msgpack Plain\(.*\)"),
        (TYPES, SQUEEZED, r"\(compression\): here missing, there deflate, at most 10000 bytes"),
        (TYPES, None, r"there none\): Plain: here msgpack Plain\(.*\), there missing"),
        (None, TYPES, r"\(here none, .*\): Plain: here missing, there msgpack Plain\(.*\.\.\."),
    ],
)
async def test_other_types_are_refused_by_name(ours, theirs, why):
    async with (
        open_node(config=sphtp.Config(messages=ours)) as one,
        open_node(config=sphtp.Config(messages=theirs)) as other,
    ):
        with pytest.raises(sphtp.RefusedError, match=f"message types differ .*{why}") as caught:
            async with one.open_channel(*other.address):
                pytest.fail("a channel")
        assert caught.value.reason == "schema"
        assert other.statistics().refused_schema >= 1
        with pytest.raises(sphtp.RefusedError, match="message types differ"):
            async with sphtp.open_channel(*other.address, config=sphtp.Config(messages=ours)):
                pytest.fail("a channel")


async def test_a_channel_of_a_node_of_its_own_has_types():
    async with (
        open_node(config=sphtp.Config(messages=TYPES)) as node,
        trio.open_nursery() as nursery,
    ):

        async def echo() -> None:
            async with await node.accept() as channel:
                await channel.send(await channel.receive())

        nursery.start_soon(echo)
        async with sphtp.open_channel(
            *node.address, config=sphtp.Config(messages=TYPES)
        ) as channel:
            await channel.send(Shot(1.0, 2))
            assert await channel.receive() == Shot(1.0, 2)
