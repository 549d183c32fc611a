"""How a node's sources take receivers in, each over a channel that its user never sees."""

from contextlib import suppress
from typing import Final

import trio

from sphtp.core.stream.membership import (
    Join,
    Member,
    Refused,
    decode_member_untrusted,
    encode_member,
)
from sphtp.errors import RemoteError
from sphtp.shell.channel import Channel
from sphtp.shell.streams.desk import StreamDesk
from sphtp.shell.streams.hosting import Hosting

PATIENCE: Final = 5.0
"""Seconds within which whoever opened such a channel has to say what it wants."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)
"""How a channel tells that it has ended, on either side."""


class Reception:
    """Serves the channels by which receivers join the sources of a desk."""

    def __init__(self, desk: StreamDesk) -> None:
        self._desk = desk
        self._arrived, self._arriving = trio.open_memory_channel[Channel](64)

    async def run(self) -> None:
        """Serve whoever comes."""
        async with trio.open_nursery() as nursery:
            async for channel in self._arriving:
                nursery.start_soon(self._serve, channel)

    def admit(self, channel: Channel) -> None:
        """Serve one more; raises ``trio.WouldBlock`` when too many wait already."""
        self._arrived.send_nowait(channel)

    async def _serve(self, channel: Channel) -> None:
        # What its peer says wrong, or does not say, ends the channel.
        with suppress(*GONE, RemoteError, trio.TooSlowError):
            async with channel:
                with trio.fail_after(PATIENCE):
                    join = await hear_untrusted(channel)
                if isinstance(join, Join):
                    await self._answer(channel, join.topic)

    async def _answer(self, channel: Channel, topic: str) -> None:
        hosting = self._desk.find_topic(topic)
        if hosting is None:
            await say(channel, Refused(f"this node has no source of the topic {topic!r}"))
        elif hosting.is_full:
            await say(channel, Refused(f"the topic {topic!r} has all receivers that it may have"))
        else:
            await _attend(channel, hosting, topic)


async def _attend(channel: Channel, hosting: Hosting, topic: str) -> None:
    """Keep a receiver for as long as its channel lives."""
    welcome = hosting.welcome(trio.current_time(), topic, channel)
    try:
        with hosting.until_over():
            await say(channel, welcome)
            hosting.touched()
            while True:
                await hear_untrusted(channel)
    finally:
        _rekey(hosting, welcome.receiver)
        hosting.touched()


def _rekey(hosting: Hosting, receiver: int) -> None:
    """Forget a receiver, and tell the others the key that it does not get."""
    key = hosting.dismiss(trio.current_time(), receiver)
    if key is None:
        return
    message = encode_member(key)
    for attendee in hosting.attendees:
        # One that is ending, or takes nothing, is on its way out.
        with suppress(*GONE, trio.WouldBlock):
            attendee.channel.send_nowait(message)


async def say(channel: Channel, message: Member) -> None:
    """Send a message of membership."""
    await channel.send(encode_member(message))


async def hear_untrusted(channel: Channel) -> Member:
    """Wait for the next one; raises ``RemoteError`` for what is none."""
    data = await channel.receive()
    if not isinstance(data, bytes):
        raise RemoteError("what is said of membership is bytes")
    return decode_member_untrusted(data)
