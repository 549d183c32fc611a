"""A stream as users hold it: messages of a topic, and word of those that are lost."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import trio

from sphtp.core.packing import READ_BYTES
from sphtp.core.stream.delivery.items import Item
from sphtp.core.stream.events import Batch, EndReason, Loss, StreamEnd
from sphtp.core.stream.subscription import SubscriptionStatistics
from sphtp.shell.encoding import Encoding, check_limit
from sphtp.shell.streams.attendance import Attendance

AHEAD: Final = 64
"""Messages that are decoded at once for who receives one by one."""


class StreamMessage(NamedTuple):
    """A message, and the number that the source's ``send`` returned for it."""

    number: int
    value: Any


class Stream(trio.abc.ReceiveChannel[Any]):
    """What a source of another node sends on one topic: each message once, or a ``Loss``.

    ``async for item in stream`` yields messages and, in their places, ``Loss`` events with range
    and reason. It ends when the source has closed, and raises ``trio.BrokenResourceError`` when
    that vanished or began anew: ``ended`` says which. Made by ``subscribe``.
    """

    def __init__(
        self, topic: str, attendance: Attendance, encoding: Encoding, *, is_numbered: bool = False
    ) -> None:
        self.topic = topic
        self._attendance = attendance
        self._encoding = encoding
        # What is decoded; of the batch that is being read, what is not; and the item behind it, if
        # that is known.
        self._items = deque[Any]()
        self._batch: Iterator[bytes] = iter(())
        self._item: Item | None = None
        # The numbers of messages that were taken and not decoded yet, and that of the next one.
        self._numbers = list[int]() if is_numbered else None
        self._next = 0
        self._ended: StreamEnd | None = None
        self._is_closed = False
        self._undecodable = 0

    @property
    def session(self) -> int:
        """The source's session, to which the numbers of messages belong."""
        return self._attendance.session

    @property
    def ended(self) -> StreamEnd | None:
        """Why and where the stream ended, once all of it was received; None until then."""
        return None if self._items else self._ended

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
            trio.EndOfChannel: the source has closed, and everything is told.
            trio.BrokenResourceError: the source vanished or began anew, and everything that is
                known of it is told; ``ended`` and the message say which.
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
        had, size = len(items), 0
        while len(items) < most and size < READ_BYTES:
            if payloads := self._take_payloads(most - len(items)):
                size += sum(map(len, payloads))
                items.extend(self._decode(payloads))
            elif type(self._item) is Loss:
                items.append(self._item)
                self._item = None
            else:
                if type(self._item) is StreamEnd:
                    self._ended = self._item
                break
        if len(items) > had and self._attendance.subscription.handle_read(trio.current_time()):
            self._attendance.touch()

    def _take_payloads(self, most: int) -> list[bytes]:
        """Take messages up to the next item that is none."""
        poll_item = self._attendance.subscription.poll_item
        payloads = list(islice(self._batch, most))
        self._count(len(payloads))
        size = sum(map(len, payloads))
        while len(payloads) < most and size < READ_BYTES:
            if self._item is None:
                self._item = poll_item()
            if type(self._item) is not Batch:
                break
            had, self._next = len(payloads), self._item.first
            self._batch, self._item = iter(self._item.payloads), None
            more = list(islice(self._batch, most - had))
            self._count(len(more))
            size += sum(map(len, more))
            payloads += more
        return payloads

    def _count(self, taken: int) -> None:
        """Note the numbers of messages that were taken, if they are wanted."""
        if self._numbers is not None:
            self._numbers += range(self._next, self._next + taken)
            self._next += taken

    def _decode(self, payloads: Sequence[bytes]) -> Sequence[Any]:
        values: Sequence[Any] = self._encoding.decode_many_untrusted(payloads)
        self._undecodable += len(payloads) - len(values)
        if self._numbers is not None:
            values = self._number(payloads, values)
            self._numbers.clear()
        return values

    def _number(self, payloads: Sequence[bytes], values: Sequence[Any]) -> list[StreamMessage]:
        numbers, decode = self._numbers or (), self._encoding.decode_many_untrusted
        if len(values) == len(numbers):
            return list(map(StreamMessage, numbers, values))
        # Some are not what a message can be; which of them has to be seen one by one.
        return [
            StreamMessage(number, value)
            for number, payload in zip(numbers, payloads, strict=True)
            for value in decode([payload])
        ]

    def _check_going_on(self) -> None:
        if self._ended is None:
            return
        if self._ended.reason is EndReason.CLOSED:
            raise trio.EndOfChannel(self._ended.reason.value)
        raise trio.BrokenResourceError(self._ended.reason.value)

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this stream is closed")
