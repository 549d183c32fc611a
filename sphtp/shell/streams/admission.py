"""How a node's sources take receivers in, each over a channel that its user never sees."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import trio

from sphtp.core.stream.membership import (
    Join,
    JoinRefused,
    Member,
    decode_member_untrusted,
    encode_member,
)
from sphtp.errors import RemoteError
from sphtp.shell.channel import Channel
from sphtp.shell.lifetime import running
from sphtp.shell.streams.dispatcher import StreamDispatcher
from sphtp.shell.streams.hosted_source import HostedSource


class PendingReceivers:
    """At most ``most`` at once, for ``patience`` seconds each; the one who came first makes room.

    Who means well is done within a round trip, and is shut out only by a flood that is faster.
    """

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        # In the order of their coming.
        self._scopes: dict[trio.CancelScope, None] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Let the block be the time of one; raises ``trio.TooSlowError`` when that is over."""
        with trio.CancelScope(deadline=trio.current_time() + self._patience) as scope:
            self._scopes[scope] = None
            if len(self._scopes) > self._most:
                self._dismiss(next(iter(self._scopes)))
            try:
                yield
            finally:
                self._scopes.pop(scope, None)
        if scope.cancelled_caught:
            raise trio.TooSlowError

    def _dismiss(self, oldest: trio.CancelScope) -> None:
        del self._scopes[oldest]
        oldest.cancel()


PATIENCE: Final = 5.0
"""Seconds within which whoever opened such a channel has to say what it wants."""
MOST_STRANGERS: Final = 64
"""Channels whose peers have not said it yet, or take their time to hear that it cannot be."""

GATHERING: Final = 0.05
"""Seconds from a receiver's leaving to the key that it does not get."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)
"""How a channel tells that it has ended, on either side."""


class ReceiverAdmission:
    """Serves the channels by which receivers join the sources of a desk."""

    def __init__(self, dispatcher: StreamDispatcher) -> None:
        self._dispatcher = dispatcher
        self._strangers = PendingReceivers(MOST_STRANGERS, PATIENCE)
        self._arrived, self._arriving = trio.open_memory_channel[Channel](64)
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Serve whoever comes."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            async for channel in self._arriving:
                nursery.start_soon(self._serve, channel)

    def admit(self, channel: Channel) -> None:
        """Serve one more; raises ``trio.WouldBlock`` when too many wait already."""
        self._arrived.send_nowait(channel)

    async def _serve(self, channel: Channel) -> None:
        # What its peer says wrong, or does not say, ends the channel.
        with suppress(*GONE, RemoteError, trio.TooSlowError):
            async with channel:
                joined = await self._receive(channel)
                if joined is not None:
                    await self._attend(channel, *joined)

    async def _receive(self, channel: Channel) -> tuple[HostedSource, Join] | None:
        """Hear what a peer wants of which source here; None if it was refused."""
        try:
            with self._strangers.one():
                join = await receive_message_untrusted(channel)
                if not isinstance(join, Join):
                    return None
                hosting = self._dispatcher.find_topic(join.topic)
                if hosting is not None and not hosting.is_full:
                    return hosting, join
                if hosting is not None:
                    hosting.source.counters.receivers_refused += 1
                await send_message(channel, _refusal(hosting, join.topic))
                await channel.aclose()
        except trio.TooSlowError:
            # It would not answer a good-bye, either.
            channel.abort("too slow to join")
        return None

    async def _attend(self, channel: Channel, hosting: HostedSource, join: Join) -> None:
        """Keep a receiver for as long as its channel lives, and tell it where the stream ends."""
        welcome = hosting.welcome(trio.current_time(), join, channel)
        try:
            with hosting.until_over():
                await send_message(channel, welcome)
                hosting.touched()
                async with running(partial(_tell_closing, hosting, join.topic, channel)):
                    with suppress(*GONE, RemoteError):
                        while True:
                            await receive_message_untrusted(channel)
                return
            # Even of a source that was cancelled: what has not left will not.
            await send_message(channel, hosting.last_word(join.topic))
        finally:
            is_first = hosting.dismiss(trio.current_time(), welcome.receiver)
            if is_first and self._nursery is not None:
                self._nursery.start_soon(_renew_key, hosting)


async def _tell_closing(hosting: HostedSource, topic: str, channel: Channel) -> None:
    """Say END as soon as nothing more will leave: then there is time to ask for what is missing."""
    with suppress(*GONE):
        await send_message(channel, await hosting.closing(topic))


def _refusal(hosting: HostedSource | None, topic: str) -> JoinRefused:
    if hosting is None:
        return JoinRefused(f"this node has no source of the topic {topic!r}")
    return JoinRefused(f"the topic {topic!r} has all receivers that it may have")


async def _renew_key(hosting: HostedSource) -> None:
    """Seal with a key that those who left do not have: one for all who leave at about one time."""
    await trio.sleep(GATHERING)
    key = hosting.renew_key()
    if key is None:
        return
    message = encode_member(key)
    for attendee in hosting.attendees:
        try:
            attendee.channel.send_nowait(message)
        except trio.WouldBlock:
            attendee.channel.abort("it does not take the key of the stream")
        except GONE:
            continue  # on its way out


async def send_message(channel: Channel, message: Member) -> None:
    """Send a message of membership."""
    await channel.send(encode_member(message))


async def receive_message_untrusted(channel: Channel) -> Member:
    """Wait for the next one; raises ``RemoteError`` for what is none."""
    data = await channel.receive()
    if not isinstance(data, bytes):
        raise RemoteError("what is said of membership is bytes")
    return decode_member_untrusted(data)
