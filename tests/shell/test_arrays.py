"""Arrays and other buffers through channels and streams, over real sockets on loopback."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import pytest

from sphtp import Config
from sphtp.core.arrays import EXTENSION
from sphtp.messages import Compression, MessageFactory, PlainMessages
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node

pytestmark = within_20_seconds

HOST = "127.0.0.1"
POSITIONS = np.linspace(0.0, 1.0, 50_000).reshape(-1, 2)


@asynccontextmanager
async def connected(messages: Any = None):
    """Both sides of a channel between two nodes."""
    config = Config(messages=messages)
    async with (
        open_node(HOST, config=config) as left,
        open_node(HOST, config=config) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
    ):
        yield here, there


def assert_same(received: Any, sent: np.ndarray[Any, Any]) -> None:
    assert (received.dtype.str, received.shape) == (sent.dtype.str, sent.shape)
    assert received.tobytes() == sent.tobytes()
    assert received.flags.writeable
    assert received.flags.owndata


async def test_arrays_arrive_as_arrays_alone_and_in_messages():
    async with connected() as (here, there):
        sent = POSITIONS.copy()
        await here.send(sent)
        sent[:] = 0.0
        await here.send({"step": 3, "positions": POSITIONS, "ids": [np.arange(3, dtype=">u2")]})
        await here.send(memoryview(POSITIONS.data))
        await here.send_many([POSITIONS[:5], 7, POSITIONS.T[0]])
        assert_same(await there.receive(), POSITIONS)
        message = await there.receive()
        assert message["step"] == 3
        assert_same(message["positions"], POSITIONS)
        assert_same(message["ids"][0], np.arange(3, dtype=">u2"))
        assert await there.receive() == POSITIONS.tobytes()
        assert_same(await there.receive(), POSITIONS[:5])
        assert await there.receive() == 7
        assert_same(await there.receive(), np.ascontiguousarray(POSITIONS.T[0]))


@dataclass
class Step:
    number: int
    state: Any


@pytest.mark.parametrize(
    ("messages", "made"),
    [
        (MessageFactory([Step]), lambda state: Step(1, state)),
        (PlainMessages(compression=Compression()), lambda state: [1, state]),
    ],
    ids=["factory", "compressed"],
)
async def test_types_of_messages_and_compression_carry_them_too(messages: Any, made: Any):
    async with connected(messages=messages) as (here, there):
        await here.send(made(POSITIONS))
        received = await there.receive()
        state = received.state if isinstance(received, Step) else received[1]
        assert_same(state, POSITIONS)


async def test_streams_carry_them():
    async with (
        open_node(HOST) as sending,
        open_node(HOST) as receiving,
        sending.open_source("state") as source,
        receiving.subscribe(*sending.address, topic="state") as stream,
    ):
        await source.wait_for_receivers()
        await source.send(POSITIONS)
        await source.send({"x": POSITIONS})
        assert_same(await stream.receive(), POSITIONS)
        message: Any = await stream.receive()
        assert_same(message["x"], POSITIONS)


async def test_what_is_no_array_is_counted_and_the_next_one_arrives():
    async with connected() as (here, there):
        await here.send(msgpack.ExtType(EXTENSION, b"<f\x08\x01\xff\xff\xff\xff"))
        await here.send([msgpack.ExtType(EXTENSION, b""), b"x" * 50_000])
        await here.send(np.arange(3))
        assert_same(await there.receive(), np.arange(3))
        assert there.undecodable == 2


async def test_an_array_that_cannot_be_carried_is_refused_and_nothing_is_sent():
    async with connected() as (here, there):
        with pytest.raises(TypeError, match="items of type object"):
            await here.send([np.array([None])])
        await here.send(1)
        assert await there.receive() == 1
        assert here.statistics().messages_sent == 1
