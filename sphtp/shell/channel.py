"""A channel as users hold it: messages to one peer and from it."""

from collections.abc import Callable
from typing import Any

import msgpack
import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.events import Closed, CloseReason, Opened
from sphtp.core.channel.statistics import ChannelStatistics
from sphtp.errors import RefusedError, UnreachableError


class Channel(trio.abc.Channel[Any]):
    """Reliable messages in order, and unreliable ones, between this node and one peer.

    A message is anything that msgpack carries: None, booleans, numbers, text, bytes, lists and
    maps. A channel is closed by leaving its ``async with`` block, which waits until everything
    sent has arrived. Several tasks may send, and several receive.
    """

    def __init__(self, connection: Connection, touched: Callable[[], None]) -> None:
        self._connection = connection
        self._touched = touched
        self._changed = trio.lowlevel.ParkingLot()
        self._is_open = False
        self._closing = False
        # Whether somebody has been told that messages may be lost.
        self._has_told = False
        self._undecodable = 0

    @property
    def peer_id(self) -> int:
        """The peer's id in the cluster, 0 when it has none."""
        return self._connection.peer_id

    @property
    def peer_address(self) -> tuple[str, int] | None:
        """Where the peer sends from; None before it answered."""
        return self._connection.address

    @property
    def undecodable(self) -> int:
        """Messages dropped because they are not msgpack."""
        return self._undecodable

    def statistics(self) -> ChannelStatistics:
        """Return the figures so far; they stay when the channel has closed."""
        return self._connection.statistics()

    async def send(self, value: Any, *, reliable: bool = True) -> None:
        """Send a message; waits while too many messages are unacknowledged.

        Cancelled, it has sent nothing. An unreliable message is sent once, in one packet, and never
        waits.

        Raises:
            MessageTooLargeError: over the limit of the channel or, unreliable, of one packet.
            trio.ClosedResourceError: this channel was closed on this side.
            trio.BrokenResourceError: the peer closed it or vanished; the message says which.
            TypeError, OverflowError: msgpack cannot carry the value.
        """
        payload = msgpack.packb(value)
        await trio.lowlevel.checkpoint()
        self._check_sendable()
        if not reliable:
            self._connection.send_unreliable(payload)
        else:
            while not self._connection.has_room(len(payload)):
                await self._changed.park()
                self._check_sendable()
            self._connection.send(payload)
        self._touched()

    async def receive(self) -> Any:
        """Wait for the next message.

        Messages that arrived before the channel ended are still received after it.

        Raises:
            trio.ClosedResourceError: this channel was closed on this side.
            trio.EndOfChannel: the peer closed it, and everything it sent has been received.
            trio.BrokenResourceError: the peer vanished or gave up; the message says which.
        """
        await trio.lowlevel.checkpoint()
        while True:
            if self._closing:
                raise trio.ClosedResourceError("this channel is closed")
            payload = self._connection.receive()
            if payload is None:
                self._check_receivable()
                await self._changed.park()
                continue
            self._touched()
            try:
                return msgpack.unpackb(payload, strict_map_key=False)
            except (ValueError, TypeError, msgpack.UnpackException):
                self._undecodable += 1

    async def aclose(self) -> None:
        """Wait until everything sent has arrived, then close. Cancelled, it aborts.

        Raises:
            trio.BrokenResourceError: messages may not have arrived, because the peer vanished,
                closed first, or took nothing for ``close_timeout``. Not raised where ``send`` or
                ``receive`` have said so before.
        """
        if self._closing:
            await trio.lowlevel.checkpoint()
            return
        self._closing = True
        self._connection.close(trio.current_time())
        self._touched()
        self._changed.unpark_all()
        try:
            await trio.lowlevel.checkpoint()
            while (closed := self._connection.closed) is None:
                await self._changed.park()
        except trio.Cancelled:
            self.abort("closed without waiting")
            raise
        self._check_delivered(closed)

    def abort(self, why: str = "aborted") -> None:
        """Close at once; the peer is told why, once, and what is not acknowledged may be lost."""
        self._closing = True
        self._connection.abort(trio.current_time(), why)
        self._touched()
        self._changed.unpark_all()

    def _detach(self) -> None:
        """The node is closing, and all its channels with it."""
        self._closing = True
        self._changed.unpark_all()

    def _check_delivered(self, closed: Closed) -> None:
        if self._connection.statistics().waiting and not self._has_told:
            raise trio.BrokenResourceError(closed.text)

    async def _wait_open(self) -> None:
        while not self._is_open:
            closed = self._connection.closed
            if closed is not None:
                raise _failure(closed)
            await self._changed.park()

    def _wake(self) -> None:
        while (event := self._connection.poll_event()) is not None:
            self._is_open |= isinstance(event, Opened)
        self._changed.unpark_all()

    def _check_sendable(self) -> None:
        if self._closing:
            raise trio.ClosedResourceError("this channel is closed")
        if self._connection.closed is not None:
            self._has_told = True
            raise trio.BrokenResourceError(self._connection.closed.text)

    def _check_receivable(self) -> None:
        closed = self._connection.closed
        if closed is None:
            return
        if closed.reason is CloseReason.DONE:
            raise trio.EndOfChannel(closed.text)
        self._has_told = True
        raise trio.BrokenResourceError(closed.text)


def _failure(closed: Closed) -> Exception:
    if closed.reason is CloseReason.REFUSED:
        return RefusedError(closed.text, "refused")
    return UnreachableError(closed.text)
