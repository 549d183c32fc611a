"""A stream as users hold it: messages of a topic, and word of those that are lost."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import trio

from sphtp.core.stream.delivery.items import End, Item
from sphtp.core.stream.events import Batch, Loss
from sphtp.core.stream.subscription import SubscriptionStatistics
from sphtp.shell.encoding import Encoding, check_limit
from sphtp.shell.streams.attendance import Attendance

AHEAD: Final = 64
"""Messages that are decoded at once for who receives one by one."""


class Stream(trio.abc.ReceiveChannel[Any]):
    """What a source of another node sends on one topic: each message once, or a ``Loss``.

    ``async for item in stream`` yields messages and, in their places, ``Loss`` events with range
    and reason. It ends when the source has closed. Made by ``subscribe``.
    """

    def __init__(self, topic: str, attendance: Attendance, encoding: Encoding) -> None:
        self.topic = topic
        self._attendance = attendance
        self._encoding = encoding
        # What is decoded; of the batch that is being read, what is not; and the item behind it, if
        # that is known.
        self._items = deque[Any]()
        self._batch: Iterator[bytes] = iter(())
        self._item: Item | None = None
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

        Raises as ``receive``, and ``LocalError`` where ``limit`` is less than one.
        """
        check_limit(limit)
        await trio.lowlevel.checkpoint()
        self._check_open()
        while not (items := self._take(limit)):
            self._check_going_on()
            await self._attendance.changed.park()
            self._check_open()
        return items

    def receive_nowait(self) -> Any:
        """Take the next message or ``Loss``; raises ``trio.WouldBlock`` when there is none now."""
        self._check_open()
        if items := self._take(1):
            return items[0]
        self._check_going_on()
        raise trio.WouldBlock

    async def aclose(self) -> None:
        """Leave the stream; whoever waits in ``receive`` is told."""
        self._is_closed = True
        self._attendance.changed.unpark_all()
        await trio.lowlevel.checkpoint()

    def _take(self, limit: int) -> list[Any]:
        """Take what there is, as far as it is wanted."""
        items = self._items
        if len(items) < limit:
            self._fill(limit if items else max(limit, AHEAD))
        if len(items) > limit:
            return [items.popleft() for _ in range(limit)]
        taken = list(items)
        items.clear()
        return taken

    def _fill(self, most: int) -> None:
        """Take what there is, and decode it: what came in several datagrams at once."""
        items, most = self._items, min(most, self._encoding.most_at_once)
        had = len(items)
        while len(items) < most:
            if payloads := self._take_payloads(most - len(items)):
                items.extend(self._decode(payloads))
            elif type(self._item) is Loss:
                items.append(self._item)
                self._item = None
            else:
                self._is_over = type(self._item) is End
                break
        if len(items) > had and self._attendance.subscription.handle_read(trio.current_time()):
            self._attendance.touch()

    def _take_payloads(self, most: int) -> list[bytes]:
        """Take messages up to the next item that is none."""
        poll_item = self._attendance.subscription.poll_item
        payloads = list(islice(self._batch, most))
        while len(payloads) < most:
            if self._item is None:
                self._item = poll_item()
            if type(self._item) is not Batch:
                break
            self._batch, self._item = iter(self._item.payloads), None
            payloads += islice(self._batch, most - len(payloads))
        return payloads

    def _decode(self, payloads: Sequence[bytes]) -> list[Any]:
        values = self._encoding.decode_many_untrusted(payloads)
        self._undecodable += len(payloads) - len(values)
        return values

    def _check_going_on(self) -> None:
        if self._is_over:
            raise trio.EndOfChannel("the source has closed")

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this stream is closed")
