"""Retention: messages that a source keeps for late join and off-transport recovery.

The history is separate from the transmission window. Each topic has a history of its own, so that a
busy topic takes no space from a quiet one. A history is bounded in bytes, age and number of
messages at the same time. Messages are kept whole, in blocks, and found by their numbers.

A ``FetchServer`` serves one connection, with the frames of ``late_join_wire``. It encodes a frame
only when the connection can take one, and no faster than its rate. So the frames for a slow
receiver take memory only in its connection. With a rate, a receiver that requests all messages
leaves capacity for the others.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from sphtp.core.stream.late_join_wire import (
    MOST_REQUESTS,
    AskRequest,
    EndAnswer,
    FetchRequest,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    decode_request_untrusted,
    encode_done,
    encode_gone,
    encode_info,
    encode_msg,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.transmission import NumberedMessages
from sphtp.core.token_bucket import Pacer
from sphtp.errors import RemoteError

BLOCK: Final = 256
"""The approximate number of messages in one block."""

GRAIN: Final = 1 / 64
"""The most by which the ages of messages in one block differ, as a share of the retention age."""


class KeptMessages(NamedTuple):
    """Messages with consecutive numbers from ``first`` on; or one, if sent in several ``parts``."""

    first: int
    parts: int
    payloads: Sequence[bytes]


class HistoryLookup(NamedTuple):
    """The result of a lookup: the messages that are kept, and the numbers of dropped ones."""

    kept: list[KeptMessages]
    gone: Span | None


class RetentionBlock:
    """Messages sent at about the same time. The first ``dropped`` of them are no longer kept."""

    __slots__ = ("begun", "dropped", "first", "parts", "payloads", "size")

    def __init__(self, begun: float, first: int, parts: int) -> None:
        self.begun = begun
        self.first = first
        self.parts = parts
        self.payloads = list[bytes]()
        self.dropped = 0
        self.size = 0
        """The bytes of the messages that are not dropped."""

    @property
    def low(self) -> int:
        """The lowest number that is not dropped."""
        return self.first + self.dropped

    def __len__(self) -> int:
        return len(self.payloads) - self.dropped

    def extend(self, payloads: Sequence[bytes], size: int) -> None:
        """Keep more messages, of ``size`` bytes together."""
        self.payloads += payloads
        self.size += size

    def drop(self, size: int, count: int) -> tuple[int, int]:
        """Drop the oldest messages, at least ``count`` of them and at least ``size`` bytes.

        Drop no more than necessary, or all messages if they are too few. Return the bytes and the
        number of dropped messages.
        """
        size_before, count_before = self.size, len(self)
        if size > size_before or count >= count_before:
            self.size, self.dropped, self.payloads = 0, 0, []
            return size_before, count_before
        size_left, count_left = size_before - max(size, 0), count_before - max(count, 0)
        while self.size > size_left or len(self) > count_left:
            self.size -= len(self.payloads[self.dropped])
            self.payloads[self.dropped] = b""
            self.dropped += 1
        return size_before - self.size, count_before - len(self)

    def cut(self, first: int, last: int) -> KeptMessages:
        """Return the messages with the numbers from ``first`` to ``last``."""
        start = max(first - self.first, self.dropped)
        stop = last - self.first + 1
        return KeptMessages(self.first + start, self.parts, self.payloads[start:stop])


class TopicHistory:
    """The retained messages of one topic."""

    def __init__(self, settings: StreamSettings) -> None:
        self.next = 0
        self.size = 0
        self.count = 0
        self._limit = settings.retention
        self._age = settings.retention_age
        self._most = settings.retention_count
        # The blocks before the head are empty. They are removed when they are more than half of the
        # list.
        self._blocks: list[RetentionBlock] = []
        self._firsts: list[int] = []
        self._head = 0

    @property
    def low(self) -> int:
        """The lowest number that is kept; the number of the next message if none is kept."""
        return self._blocks[self._head].low if self._head < len(self._blocks) else self.next

    def add(self, now: float, numbered: NumberedMessages) -> None:
        """Keep messages."""
        self.next = numbered.end
        if not self._limit:
            return
        payloads, lengths = numbered.payloads, numbered.lengths
        for at in range(0, len(payloads), BLOCK):
            block = self._block(now, numbered.first + at, numbered.parts)
            size = sum(lengths[at : at + BLOCK])
            block.extend(payloads[at : at + BLOCK], size)
            self.size += size
        self.count += len(payloads)
        self.expire(now)

    def expire(self, now: float) -> None:
        """Drop messages that are too old, or beyond the limits of bytes and number."""
        oldest = now - self._age
        while self._head < len(self._blocks):
            head = self._blocks[self._head]
            is_old = head.begun < oldest
            size, count = self.size - self._limit, self.count - self._most
            if not is_old and size <= 0 and count <= 0:
                break
            dropped = head.drop(size, len(head) if is_old else count)
            self.size -= dropped[0]
            self.count -= dropped[1]
            if not len(head):
                self._drop_head()

    def find(self, first: int, last: int) -> HistoryLookup:
        """Return the kept messages from ``first`` to ``last``, and the dropped numbers.

        Numbers of future messages are in neither.
        """
        last, low = min(last, self.next - 1), self.low
        gone = Span(first, min(last, low - 1))
        first = max(first, low)
        start = max(bisect_right(self._firsts, first) - 1, self._head)
        stop = bisect_right(self._firsts, last)
        kept = [block.cut(first, last) for block in self._blocks[start:stop] if first <= last]
        return HistoryLookup(kept, gone if gone.size > 0 else None)

    def _block(self, now: float, first: int, parts: int) -> RetentionBlock:
        """Return the block for messages with the numbers from ``first`` on."""
        if self._head < len(self._blocks):
            last = self._blocks[-1]
            is_young = now - last.begun <= self._age * GRAIN
            if is_young and last.parts == parts == 1 and len(last.payloads) < BLOCK:
                return last
        self._firsts.append(first)
        self._blocks.append(RetentionBlock(now, first, parts))
        return self._blocks[-1]

    def _drop_head(self) -> None:
        self._head += 1
        if 2 * self._head > len(self._blocks):
            del self._blocks[: self._head]
            del self._firsts[: self._head]
            self._head = 0


class History:
    """The retained messages of each topic of a source. Times are in seconds."""

    def __init__(self, settings: StreamSettings, topics: int) -> None:
        self._topics = [TopicHistory(settings) for _ in range(topics)]

    def add(self, now: float, topic: int, numbered: NumberedMessages) -> None:
        """Keep messages of a topic."""
        self._topics[topic].add(now, numbered)

    def expire(self, now: float) -> None:
        """Drop messages of all topics that are too old."""
        for topic in self._topics:
            topic.expire(now)

    def bounds(self, now: float, topic: int) -> tuple[int, int]:
        """Return the lowest and the highest number that are kept.

        If no message is kept, the lowest is one above the highest.
        """
        history = self._topics[topic]
        history.expire(now)
        return history.low, history.next - 1

    def find(self, now: float, topic: int, first: int, last: int) -> HistoryLookup:
        """Return the kept messages from ``first`` to ``last``, whole, and the dropped numbers.

        Numbers of future messages are in neither.
        """
        history = self._topics[topic]
        history.expire(now)
        return history.find(first, last)


FRAME: Final = 65_536
"""Bytes of messages after which a frame is full. The last message may exceed them."""
MOST_IN_FRAME: Final = 8192
"""The most messages in one frame."""


class Archive(Protocol):
    """The part of ``History`` that a ``FetchServer`` uses."""

    def bounds(self, now: float, topic: int) -> tuple[int, int]:
        """Return the lowest and the highest number that are kept.

        If no message is kept, the lowest is one above the highest.
        """
        ...

    def find(self, now: float, topic: int, first: int, last: int) -> HistoryLookup:
        """Return the kept messages from ``first`` to ``last``, and the dropped numbers."""
        ...


class FetchServer:
    """The server of one connection to the history ``archive`` of ``topics`` topics.

    ``part`` is the size of the source's fragments in bytes. ``rate`` is the limit of the connection
    in bytes per second; None sets no limit. Times are in seconds.
    """

    def __init__(
        self,
        archive: Archive,
        session: int,
        topics: int,
        part: int,
        rate: float | None = None,
    ) -> None:
        self._archive = archive
        self._session = session
        self._topics = topics
        self._part = part
        self._rate = rate
        self._pacer = Pacer(FRAME)
        self._due: float | None = None
        self._requests = deque[AskRequest | FetchRequest]()
        self._frames: Iterator[bytes] = iter(())

    def handle_frame_untrusted(self, frame: bytes) -> None:
        """Take a request.

        Raises ``RemoteError`` if the request is malformed, names another session or an unknown
        topic, or if too many requests wait. The caller then has to close the connection.
        """
        request = decode_request_untrusted(frame)
        session, topic, _ = request.request_key
        if session != self._session or topic >= self._topics:
            raise RemoteError(f"unknown topic {topic} of session {session:08x}")
        if len(self._requests) >= MOST_REQUESTS:
            raise RemoteError(f"{MOST_REQUESTS} requests wait for their answers")
        self._requests.append(request)

    def poll_transmit(self, now: float) -> bytes | None:
        """Return the next frame to send; None if no request waits, or the frame is not due."""
        if self._due is not None and now < self._due:
            return None
        frame = self._next_frame(now)
        self._due = None
        if frame is not None:
            self._pacer.sent(now, len(frame), self._rate)
            ready = self._pacer.ready_at(now, 1, self._rate)
            self._due = ready if ready > now else None
        return frame

    def poll_timeout(self) -> float | None:
        """Return the time from which on the next frame may leave; None if no time limits it."""
        return self._due

    def _next_frame(self, now: float) -> bytes | None:
        while (frame := next(self._frames, None)) is None and self._requests:
            request = self._requests.popleft()
            if isinstance(request, AskRequest):
                self._frames = self._inform(now, request)
            else:
                self._frames = self._fetch(now, request)
        return frame

    def _inform(self, now: float, ask: AskRequest) -> Iterator[bytes]:
        low, high = self._archive.bounds(now, ask.request_key.topic)
        yield encode_info(InfoAnswer(ask.request_key, low, high + 1))

    def _fetch(self, now: float, fetch: FetchRequest) -> Iterator[bytes]:
        request_key = fetch.request_key
        for first, last in fetch.spans:
            found = self._archive.find(now, request_key.topic, first, last)
            if found.gone is not None:
                yield encode_gone(GoneAnswer(request_key, found.gone))
            for kept in found.kept:
                for record in self._records(request_key.topic, kept):
                    yield encode_msg(MessagesAnswer(request_key, record))
        yield encode_done(EndAnswer(request_key))

    def _records(self, topic: int, kept: KeptMessages) -> Iterator[Record]:
        if kept.parts == 1:
            return _cut_run(topic, kept)
        return self._cut_messages(topic, kept)

    def _cut_messages(self, topic: int, kept: KeptMessages) -> Iterator[FragmentRecord]:
        """Cut messages as the source did, so that fragments from both transports fit together."""
        size, parts = self._part, kept.parts
        for number, payload in enumerate(kept.payloads, kept.first):
            for part in range(parts):
                piece = payload[part * size : (part + 1) * size]
                yield FragmentRecord(topic, number, part, parts, piece)


def _cut_run(topic: int, kept: KeptMessages) -> Iterator[RunRecord]:
    start, stop = 0, len(kept.payloads)
    while start < stop:
        end = _end_of_frame(kept.payloads, start, stop)
        yield RunRecord(topic, kept.first + start, kept.payloads[start:end])
        start = end


def _end_of_frame(payloads: Sequence[bytes], start: int, stop: int) -> int:
    end, size = start, 0
    most = min(stop, start + MOST_IN_FRAME)
    while end < most and size < FRAME:
        size += len(payloads[end])
        end += 1
    return end
