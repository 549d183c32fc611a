"""A stream as users hold it: messages of a topic, and word of those that are lost."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import trio

from sphtp.core.stream.delivery.items import End
from sphtp.core.stream.events import Batch, Loss
from sphtp.core.stream.subscription import SubscriptionStatistics
from sphtp.shell.encoding import Encoding
from sphtp.shell.streams.attendance import Attendance


class Stream(trio.abc.ReceiveChannel[Any]):
    """What a source of another node sends on one topic: each message once, or a ``Loss``.

    ``async for item in stream`` yields messages and, in their places, ``Loss`` events with range
    and reason. It ends when the source has closed. Made by ``subscribe``.
    """

    def __init__(self, topic: str, attendance: Attendance, encoding: Encoding) -> None:
        self.topic = topic
        self._attendance = attendance
        self._encoding = encoding
        self._items: deque[Any] = deque()
        self._is_over = self._is_closed = False
        self._undecodable = 0

    @property
    def undecodable(self) -> int:
        """Messages dropped because they are not what a message can be."""
        return self._undecodable

    def statistics(self) -> SubscriptionStatistics:
        """Return the figures so far."""
        return self._attendance.subscription.statistics()

    async def receive(self) -> Any:
        """Wait for the next message or ``Loss``.

        Raises:
            trio.EndOfChannel: the source has closed, or vanished, and everything is told.
            trio.ClosedResourceError: this stream was closed.
        """
        return (await self.receive_many(1))[0]

    async def receive_many(self, limit: int = 4096) -> list[Any]:
        """Wait for messages and losses, and take those that are there: at least one.

        Raises as ``receive``.
        """
        await trio.lowlevel.checkpoint()
        while not self._gather(limit):
            self._check_open()
            if self._is_over:
                raise trio.EndOfChannel("the source has closed")
            await self._attendance.changed.park()
        self._check_open()
        return [self._items.popleft() for _ in range(min(limit, len(self._items)))]

    def receive_nowait(self) -> Any:
        """Take the next message or ``Loss``; raises ``trio.WouldBlock`` when there is none now."""
        self._check_open()
        if self._gather(1):
            return self._items.popleft()
        if self._is_over:
            raise trio.EndOfChannel("the source has closed")
        raise trio.WouldBlock

    async def aclose(self) -> None:
        """Leave the stream; whoever waits in ``receive`` is told."""
        self._is_closed = True
        self._attendance.changed.unpark_all()
        await trio.lowlevel.checkpoint()

    def _gather(self, limit: int) -> bool:
        """Take what there is, as far as it is needed; false when that is nothing."""
        subscription, had = self._attendance.subscription, len(self._items)
        while len(self._items) < limit and (item := subscription.poll_item()) is not None:
            match item:
                case Batch(_, payloads, _):
                    self._items.extend(self._decode(payloads))
                case Loss():
                    self._items.append(item)
                case End():
                    self._is_over = True
        if len(self._items) > had and subscription.handle_read(trio.current_time()):
            self._attendance.touch()
        return bool(self._items)

    def _decode(self, payloads: Sequence[bytes]) -> list[Any]:
        values = self._encoding.decode_many_untrusted(payloads)
        self._undecodable += len(payloads) - len(values)
        return values

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this stream is closed")
