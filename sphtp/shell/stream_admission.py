"""Admission of receivers to a node's sources, each over a channel of the service of streams."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

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
from sphtp.shell.stream_dispatcher import StreamDispatcher

if TYPE_CHECKING:
    from sphtp.shell.hosted_streams import HostedSource


class PendingReceivers:
    """Connections without a first message: at most ``most``, for ``patience`` seconds each.

    If there is one more, the oldest is dropped. An honest receiver sends its message within a round
    trip, so that only a faster flood can displace it.
    """

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        # In the order of their arrival.
        self._scopes: dict[trio.CancelScope, None] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count the block as one connection.

        Raises ``trio.TooSlowError`` if it is dropped, or takes longer than the patience.
        """
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
"""The most seconds from the opening of a channel to its JOIN."""
MOST_PENDING: Final = 64
"""The most channels on which a JOIN, or the ack of a refusal, is awaited."""

GATHERING: Final = 0.05
"""Seconds from the departure of a receiver to the next key."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)
"""The errors with which a channel ends, on either side."""


class ReceiverAdmission:
    """Serves the channels over which receivers join the sources of a dispatcher."""

    def __init__(self, dispatcher: StreamDispatcher) -> None:
        self._dispatcher = dispatcher
        self._pending = PendingReceivers(MOST_PENDING, PATIENCE)
        self._arrived, self._arriving = trio.open_memory_channel[Channel](64)
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Serve the admitted channels, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            async for channel in self._arriving:
                nursery.start_soon(self._serve, channel)

    def admit(self, channel: Channel) -> None:
        """Serve a channel. Raises ``trio.WouldBlock`` if too many wait already."""
        self._arrived.send_nowait(channel)

    async def _serve(self, channel: Channel) -> None:
        # A malformed message, or a missing one, ends the channel.
        with suppress(*GONE, RemoteError, trio.TooSlowError):
            async with channel:
                joined = await self._receive(channel)
                if joined is not None:
                    await self._serve_receiver(channel, *joined)

    async def _receive(self, channel: Channel) -> "tuple[HostedSource, Join] | None":
        """Receive a JOIN, and find its source; None if none came, or it was refused."""
        try:
            with self._pending.one():
                join = await receive_message_untrusted(channel)
                if not isinstance(join, Join):
                    return None
                hosted = self._dispatcher.find_topic(join.topic)
                if hosted is not None and not hosted.is_full:
                    return hosted, join
                if hosted is not None:
                    hosted.source.counters.receivers_refused += 1
                await send_message(channel, _refusal(hosted, join.topic))
                await channel.aclose()
        except trio.TooSlowError:
            # The peer would be as slow with the close.
            channel.abort("too slow to join")
        return None

    async def _serve_receiver(self, channel: Channel, hosted: "HostedSource", join: Join) -> None:
        """Keep a receiver as long as its channel lives, and send it the END of the stream."""
        welcome = hosted.welcome(trio.current_time(), join, channel)
        try:
            with hosted.until_over():
                await send_message(channel, welcome)
                hosted.touched()
                async with running(partial(_send_closing, hosted, join.topic, channel)):
                    with suppress(*GONE, RemoteError):
                        while True:
                            await receive_message_untrusted(channel)
                return
            # Also if the source was cancelled: no further datagram leaves.
            await send_message(channel, hosted.closing_now(join.topic))
        finally:
            is_first = hosted.remove_receiver(trio.current_time(), welcome.receiver)
            if is_first and self._nursery is not None:
                self._nursery.start_soon(_renew_key, hosted)


async def _send_closing(hosted: "HostedSource", topic: str, channel: Channel) -> None:
    """Send END as soon as all data has left, so that the receiver can request missing datagrams."""
    with suppress(*GONE):
        await send_message(channel, await hosted.closing(topic))


def _refusal(hosted: "HostedSource | None", topic: str) -> JoinRefused:
    if hosted is None:
        return JoinRefused(f"this node has no source of the topic {topic!r}")
    return JoinRefused(f"the topic {topic!r} has all receivers that it may have")


async def _renew_key(hosted: "HostedSource") -> None:
    """Send a new key to the present receivers, once for all receivers that leave together."""
    await trio.sleep(GATHERING)
    key = hosted.renew_key()
    if key is None:
        return
    message = encode_member(key)
    for known in hosted.hosted_receivers:
        try:
            known.channel.send_nowait(message)
        except trio.WouldBlock:
            known.channel.abort("it does not take the key of the stream")
        except GONE:
            continue  # the receiver is leaving


async def send_message(channel: Channel, message: Member) -> None:
    """Send a message of membership, such as JOIN or WELCOME."""
    await channel.send(encode_member(message))


async def receive_message_untrusted(channel: Channel) -> Member:
    """Wait for the next message of membership. Raises ``RemoteError`` if it is malformed."""
    data = await channel.receive()
    if not isinstance(data, bytes):
        raise RemoteError("a message of membership is bytes")
    return decode_member_untrusted(data)
