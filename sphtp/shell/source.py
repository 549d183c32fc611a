"""The public source: it sends messages to all subscribers of its topics."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import trio

from sphtp.core.stream.statistics import SourceStatistics
from sphtp.errors import StateError
from sphtp.shell.encoding import Encoding
from sphtp.shell.hosted_streams import HostedSource, StreamReceiver


class Source(trio.abc.AsyncResource):
    """A source of one topic or more, which sends each message to all subscribers of its topic.

    A message is any value that a channel carries. The source keeps messages for repairs within
    ``window`` and ``window_age`` of ``StreamSettings``, and for late joiners within ``retention``.
    Made by ``Client.publish`` and ``Node.open_source``.
    """

    def __init__(
        self, hosted: HostedSource, encoding: Encoding, touched: Callable[[], None]
    ) -> None:
        self._hosted = hosted
        self._encoding = encoding
        self._touched = touched
        self._is_closed = False

    @property
    def topics(self) -> Sequence[str]:
        """The topics of the source; a message belongs to the first unless its call names one."""
        return self._hosted.topics

    @property
    def receivers(self) -> Sequence[StreamReceiver]:
        """The receivers that have joined, each with its lag and its room."""
        return self._hosted.receivers(trio.current_time())

    def statistics(self) -> SourceStatistics:
        """Return the statistics of this source since it opened."""
        return self._hosted.source.statistics()

    async def wait_for_receivers(self, count: int = 1) -> None:
        """Wait until at least ``count`` receivers are there.

        A receiver gets messages from before it joined only by ``late_join`` or ``after``. Raises
        ``trio.ClosedResourceError`` if this source is closed.
        """
        await trio.lowlevel.checkpoint()
        while len(self._hosted.hosted_receivers) < count:
            self._check_open()
            await self._hosted.changed.park()

    async def send(self, value: Any, *, topic: str | None = None) -> int:
        """Send a message; return its number. The messages of a topic have consecutive numbers.

        Waits while the send queue is full. A cancelled call has sent nothing.

        Raises:
            MessageTooLargeError: the message is over ``max_message``.
            trio.ClosedResourceError: this source was closed.
            StateError: this source has no such topic.
            TypeError, OverflowError, WireError: as ``Channel.send``.
        """
        payload = self._encoding.encode(value, None)
        # The message leaves before other tasks have a turn, as with Trio's own sockets.
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._wait_for_room()
        number = self._queue([payload], topic)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return number

    def send_nowait(self, value: Any, *, topic: str | None = None) -> int:
        """Send a message as ``send`` does, or raise ``trio.WouldBlock`` where it would wait."""
        payload = self._encoding.encode(value, None)
        self._check_open()
        if not self._hosted.source.room:
            raise trio.WouldBlock
        return self._queue([payload], topic)

    async def send_many(self, values: Iterable[Any], *, topic: str | None = None) -> list[range]:
        """Send messages in order, much faster than one by one; return their numbers.

        The numbers are one range, unless other tasks have sent messages of the topic meanwhile.

        Waits and raises as ``send`` does. A cancelled call has sent the messages before the one for
        which it waited. If one of the messages is too large or cannot be encoded, none is sent.
        """
        payloads = self._encoding.encode_many(values, None)
        await trio.lowlevel.checkpoint()
        # The queue measures one batch at a time. Measure all before any is sent.
        ends, start = list(accumulate(self._hosted.source.measure(payloads), initial=0)), 0
        numbers = list[range]()
        while start < len(payloads):
            await self._wait_for_room()
            # At least one message, and at the end the one that exceeds the room.
            stop = bisect_left(ends, ends[start] + self._hosted.source.room, lo=start + 1)
            first = self._queue(payloads[start:stop], topic)
            if numbers and numbers[-1].stop == first:
                first = numbers.pop().start
            start = stop
            numbers.append(range(first, self._hosted.source.end(self._number(topic))))
        return numbers

    async def aclose(self) -> None:
        """Send the waiting messages, and repair losses until all receivers have all messages.

        The repairs end ``linger`` seconds after the last message at the latest. Then the source
        ends, and the receivers get the end over their channels. A cancelled call ends the source at
        once; receivers report messages that still waited as lost.
        """
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        self._is_closed = True
        if self._hosted.is_abandoned:
            await trio.lowlevel.checkpoint()
            return
        self._hosted.close(trio.current_time())
        self._touched()
        self._hosted.changed.unpark_all()
        try:
            await trio.lowlevel.checkpoint()
            while not self._hosted.is_over:
                await self._hosted.changed.park()
        finally:
            self._hosted.end()

    def _queue(self, payloads: Sequence[bytes], topic: str | None) -> int:
        now, number = trio.current_time(), self._number(topic)
        first = self._hosted.source.send_many(now, number, payloads)
        self._touched()
        return first

    def _number(self, topic: str | None) -> int:
        try:
            return 0 if topic is None else self.topics.index(topic)
        except ValueError:
            raise StateError(f"this source has no topic {topic!r}; it has {self.topics}") from None

    async def _wait_for_room(self) -> None:
        self._check_open()
        while not self._hosted.source.room:
            await self._hosted.changed.park()
            self._check_open()

    def _check_open(self) -> None:
        if self._is_closed or self._hosted.is_abandoned:
            raise trio.ClosedResourceError("this source is closed")
