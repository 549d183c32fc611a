"""The answering side of late join and off-transport recovery: one per connection.

It answers as fast as it is asked for frames, and no faster than its rate; so a receiver that reads
slowly costs nothing but its connection, and one that asks for everything leaves room for others.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from sphtp.core.stream.fetch.wire import (
    MOST_REQUESTS,
    Ask,
    Done,
    Fetch,
    Gone,
    Info,
    Msg,
    decode_request_untrusted,
    encode_done,
    encode_gone,
    encode_info,
    encode_msg,
)
from sphtp.core.stream.records import RUN_OVERHEAD, Fragment, Record, Run
from sphtp.core.stream.source.history import Found, Kept
from sphtp.core.token_bucket import Pacer
from sphtp.errors import RemoteError

FRAME: Final = 65_536
"""Bytes of messages after which a frame takes no more."""
MOST_IN_FRAME: Final = 8192
"""Messages in one frame."""


class Archive(Protocol):
    """What a source keeps of its topics: its ``History``."""

    def bounds(self, now: float, topic: int) -> tuple[int, int]:
        """Return the lowest and the highest number; of none the lowest is one above the highest."""
        ...

    def find(self, now: float, topic: int, first: int, last: int) -> Found:
        """Return the messages that have a number from ``first`` to ``last``, and what is gone."""
        ...


class FetchServer:
    """Answers one connection from ``archive``, whose topics are numbered below ``topics``.

    ``part`` is the size of the source's fragments, ``rate`` in bytes/s what the connection may
    take; None does not hold back. Times in seconds.
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
        self._requests = deque[Ask | Fetch]()
        self._frames: Iterator[bytes] = iter(())
        self._answers: Mapping[type, Callable[[float, Any], Iterator[bytes]]] = {
            Ask: self._inform,
            Fetch: self._fetch,
        }

    def handle_frame_untrusted(self, frame: bytes) -> None:
        """Take a question.

        Raises ``RemoteError`` when it makes no sense, is about another session or a topic that
        there is not, or is one too many: the connection is of no more use.
        """
        request = decode_request_untrusted(frame)
        session, topic, _ = request.question
        if session != self._session or topic >= self._topics:
            raise RemoteError(f"nothing is known of topic {topic} of session {session:08x}")
        if len(self._requests) >= MOST_REQUESTS:
            raise RemoteError(f"{MOST_REQUESTS} questions wait for their answers")
        self._requests.append(request)

    def poll_transmit(self, now: float) -> bytes | None:
        """Return the next frame to send; None when there is none, or it is not time."""
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
        """When there may be a frame again; None when that does not depend on time."""
        return self._due

    def _next_frame(self, now: float) -> bytes | None:
        while (frame := next(self._frames, None)) is None and self._requests:
            request = self._requests.popleft()
            self._frames = self._answers[type(request)](now, request)
        return frame

    def _inform(self, now: float, ask: Ask) -> Iterator[bytes]:
        low, high = self._archive.bounds(now, ask.question.topic)
        yield encode_info(Info(ask.question, low, high + 1))

    def _fetch(self, now: float, fetch: Fetch) -> Iterator[bytes]:
        question = fetch.question
        for first, last in fetch.spans:
            found = self._archive.find(now, question.topic, first, last)
            if found.gone is not None:
                yield encode_gone(Gone(question, found.gone))
            for kept in found.kept:
                for record in self._records(question.topic, kept):
                    yield encode_msg(Msg(question, record))
        yield encode_done(Done(question))

    def _records(self, topic: int, kept: Kept) -> Iterator[Record]:
        if kept.parts == 1:
            return _cut_run(topic, kept)
        return self._cut_messages(topic, kept)

    def _cut_messages(self, topic: int, kept: Kept) -> Iterator[Fragment]:
        """Cut messages as the source did, so that parts of either way fit together."""
        size, parts = self._part, kept.parts
        for number, payload in enumerate(kept.payloads, kept.first):
            for part in range(parts):
                piece = payload[part * size : (part + 1) * size]
                yield Fragment(topic, number, part, parts, piece)


def _cut_run(topic: int, kept: Kept) -> Iterator[Run]:
    start, stop = 0, len(kept.payloads)
    while start < stop:
        end = _end_of_frame(kept.payloads, start, stop)
        yield Run(topic, kept.first + start, kept.payloads[start:end])
        start = end


def _end_of_frame(payloads: Sequence[bytes], start: int, stop: int) -> int:
    end, size = start, 0
    most = min(stop, start + MOST_IN_FRAME)
    while end < most and size < FRAME:
        # Nobody believes in a record that has more messages than bytes.
        if not size and end - start == RUN_OVERHEAD:
            break
        size += len(payloads[end])
        end += 1
    return end
