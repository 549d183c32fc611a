"""A peer that sends requests as no peer of ours would: malformed, too many, or never read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio

from sphtp import Channel, Config, Node, Request
from sphtp.config import ChannelSettings
from sphtp.core.requests.table import MOST_REQUESTS
from sphtp.core.requests.wire import (
    SERVICE_LINE,
    CancelMessage,
    ErrorMessage,
    ErrorReason,
    GoodbyeMessage,
    ReplyMessage,
    RequestMessage,
    decode_message_untrusted,
    encode_message,
)
from sphtp.shell import requests
from sphtp.shell.config import DEFAULTS
from sphtp.shell.lifetime import running
from sphtp.shell.requests import GONE, MOST_FROM_PEER
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import RawMessages, open_node
from tests.shell.test_requests import LEFT, RIGHT, Party, load, party

pytestmark = within_20_seconds


class RequestBytes(RawMessages):
    """The messages of somebody who says that his are requests."""

    def describe(self) -> list[str]:
        return [SERVICE_LINE]


@dataclass
class Scene:
    """A party that serves, a channel of somebody else to it, and an honest peer."""

    party: Party
    mallory: Node
    channel: Channel
    honest: Party

    async def works(self) -> None:
        assert await self.honest.ask(RIGHT, "load", 1) == {"for": LEFT, "value": 1}


SHORT = Config(channel=ChannelSettings(linger=0.05, send_buffer=64, receive_buffer=64))
"""Channels on which few messages wait."""


@asynccontextmanager
async def scene(handler: Any = load, config: Config = DEFAULTS) -> AsyncIterator[Scene]:
    async with (
        open_node(peer_id=LEFT) as left,
        open_node(peer_id=RIGHT, config=config) as right,
        open_node(peer_id=5, config=replace(config, messages=RequestBytes())) as mallory,
    ):
        nodes = {LEFT: left, RIGHT: right}
        honest, here = party(left, nodes), party(right, nodes)
        async with running(honest.requests.run), running(here.requests.run):
            await honest.requests.wait_started()
            await here.requests.wait_started()
            async with (
                here.serving("load", load),
                here.serving("slow", handler),
                mallory.open_channel(*right.address) as channel,
            ):
                yield Scene(here, mallory, channel, honest)
                channel.abort()


def request(number: int, name: str = "load", value: bytes = b"\x01") -> bytes:
    return encode_message(RequestMessage(number, name, value))


NONSENSE = {
    "empty": [b""],
    "kind": [b"\x77"],
    "cut": [request(1)[:7]],
    "reply": [encode_message(ReplyMessage(1, b""))],
    "error": [encode_message(ErrorMessage(1, ErrorReason.BUSY))],
    "goodbyes": 2 * [encode_message(GoodbyeMessage())],
    "twice": 2 * [request(1, "slow")],
}


async def forever(_: Request) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("messages", NONSENSE.values(), ids=NONSENSE)
async def test_what_is_not_allowed_ends_the_channel_that_brought_it(messages: list[bytes]) -> None:
    async with scene(forever) as at:
        await at.channel.send_many(messages)
        await until(lambda: at.party.requests.statistics().malformed == 1)
        await until(lambda: at.party.requests.channels == 0)
        await at.works()


async def test_a_value_that_is_no_message_is_an_error_and_no_more() -> None:
    async with scene() as at:
        await at.channel.send(request(1, value=b"\xc1"))
        answer = decode_message_untrusted(await at.channel.receive())
        assert answer == ErrorMessage(1, ErrorReason.MALFORMED)
        await at.works()


async def test_more_at_once_than_the_bound_end_the_channel_and_all_of_its_handlers() -> None:
    async with scene(forever) as at:
        with suppress(*GONE):
            await at.channel.send_many([request(it, "slow") for it in range(MOST_REQUESTS + 1)])
            while True:
                await at.channel.receive()
        await until(lambda: at.party.requests.open_requests == 0)
        assert at.party.requests.statistics().received == MOST_REQUESTS
        await at.works()


async def test_who_reads_no_answer_gets_no_more_handled_than_the_bound() -> None:
    async def large(_: Request) -> bytes:
        await trio.lowlevel.checkpoint()
        return bytes(20_000)

    async with scene(large, SHORT) as at, trio.open_nursery() as nursery:
        nursery.start_soon(flood, at.channel)
        await until(lambda: at.party.requests.statistics().malformed == 1)
        await at.works()
        nursery.cancel_scope.cancel()
    # Beside those that it does not read, which wait in the buffers of the channel.
    assert at.party.requests.statistics().received < MOST_REQUESTS + 4 * 64


async def flood(channel: Channel) -> None:
    """Ask and cancel by turns, and read nothing."""
    number = 0
    with suppress(*GONE):
        while True:
            await channel.send(request(number, "slow"))
            await channel.send(encode_message(CancelMessage(number)))
            number += 1


async def test_requests_of_many_bytes_are_refused_while_others_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "MOST_BYTES", 100_000)
    async with scene(forever) as at:
        value = b"\xc6" + (60_000).to_bytes(4, "big") + bytes(60_000)
        await at.channel.send(request(1, "slow", value))
        await at.channel.send(request(2, "slow", value))
        answer = decode_message_untrusted(await at.channel.receive())
        assert answer == ErrorMessage(2, ErrorReason.BUSY)
        await at.channel.send(encode_message(CancelMessage(1)))
        answer = decode_message_untrusted(await at.channel.receive())
        assert answer == ErrorMessage(1, ErrorReason.CANCELLED)
        await at.channel.send(request(3, "load", value))
        assert isinstance(decode_message_untrusted(await at.channel.receive()), ReplyMessage)


async def test_the_time_that_a_request_has_ends_its_handler_without_a_cancel() -> None:
    async with scene(forever) as at:
        await at.channel.send(encode_message(RequestMessage(1, "slow", b"\x01", 0.02)))
        answer = decode_message_untrusted(await at.channel.receive())
        assert answer == ErrorMessage(1, ErrorReason.CANCELLED)


async def test_a_peer_has_no_more_channels_than_it_needs() -> None:
    async with scene() as at:
        right = at.party.node.address
        for _ in range(5):
            async with at.mallory.open_channel(*right) as channel:
                await channel.send(request(1))
                await channel.receive()
                assert at.party.requests.channels <= MOST_FROM_PEER
        await at.works()
