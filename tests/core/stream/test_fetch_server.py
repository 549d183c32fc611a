"""The answering side: what is kept, what is gone, in bounded frames, at its rate."""

from collections.abc import Sequence
from functools import partial

import pytest

from sphtp.core.stream.late_join_wire import (
    MOST_FRAME,
    MOST_REQUESTS,
    Answer,
    AskRequest,
    EndAnswer,
    FetchRequest,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    RequestKey,
    decode_answer_untrusted,
    encode_ask,
    encode_fetch,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import RunRecord
from sphtp.core.stream.retention import FRAME, FetchServer, HistoryLookup, KeptMessages
from sphtp.errors import RemoteError
from tests.core.stream.archives import Shelf
from tests.core.stream.topics import PART, TOPIC, Script

SESSION = 0xABCD
REQUEST_KEY = RequestKey(SESSION, TOPIC, 1)


class Rows:
    """A history that is one block."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.payloads = payloads

    def bounds(self, now: float, topic: int) -> tuple[int, int]:
        return 0, len(self.payloads) - 1

    def find(self, now: float, topic: int, first: int, last: int) -> HistoryLookup:
        return HistoryLookup([KeptMessages(first, 1, self.payloads[first : last + 1])], None)


def answers(server: FetchServer, now: float = 0.0) -> list[Answer]:
    frames = list(iter(partial(server.poll_transmit, now), None))
    assert all(len(frame) <= MOST_FRAME for frame in frames)
    return list(map(decode_answer_untrusted, frames))


def fetch(*spans: Span) -> bytes:
    return encode_fetch(FetchRequest(REQUEST_KEY, spans))


def small() -> Script:
    script = Script()
    script.whole(2)
    script.large(3)
    script.whole(1)
    return script


def test_it_tells_what_there_is() -> None:
    server = FetchServer(Shelf(small(), low=2), SESSION, 4, PART)
    server.handle_frame_untrusted(encode_ask(AskRequest(REQUEST_KEY)))
    assert answers(server) == [InfoAnswer(REQUEST_KEY, 2, 4)]
    assert answers(server) == []


def test_it_answers_with_what_was_asked_for_only() -> None:
    script = small()
    server = FetchServer(Shelf(script), SESSION, 4, PART)
    server.handle_frame_untrusted(fetch(Span(1, 2), Span(3, 9)))
    parts = [script.datagrams[place][0] for place in (1, 2, 3)]
    assert answers(server) == [
        MessagesAnswer(REQUEST_KEY, RunRecord(TOPIC, 1, [b"m1"])),
        *(MessagesAnswer(REQUEST_KEY, part) for part in parts),
        MessagesAnswer(REQUEST_KEY, RunRecord(TOPIC, 3, [b"m3"])),
        EndAnswer(REQUEST_KEY),
    ]


def test_it_says_what_is_gone() -> None:
    server = FetchServer(Shelf(small(), low=3), SESSION, 4, PART)
    server.handle_frame_untrusted(fetch(Span(0, 5)))
    assert answers(server) == [
        GoneAnswer(REQUEST_KEY, Span(0, 2)),
        MessagesAnswer(REQUEST_KEY, RunRecord(TOPIC, 3, [b"m3"])),
        EndAnswer(REQUEST_KEY),
    ]


@pytest.mark.parametrize(
    "payloads",
    [[b"x" * 1000] * 300, [b""] * 100, [b"x", *[b""] * 30_000], [b"", b"x" * 65_000] * 8],
    ids=["long", "empty", "almost empty", "varied"],
)
def test_many_messages_take_several_frames(payloads: list[bytes]) -> None:
    server = FetchServer(Rows(payloads), SESSION, 4, PART)
    server.handle_frame_untrusted(fetch(Span(10, len(payloads) - 1)))
    found = answers(server)
    assert found.pop() == EndAnswer(REQUEST_KEY)
    number, received = 10, list[bytes]()
    for answer in found:
        assert isinstance(answer, MessagesAnswer)
        assert isinstance(answer.record, RunRecord)
        assert answer.record.first == number
        received += answer.record.payloads
        number += len(answer.record.payloads)
    assert received == payloads[10:]


def test_messages_without_bytes_share_a_frame() -> None:
    server = FetchServer(Rows([b""] * 100), SESSION, 4, PART)
    server.handle_frame_untrusted(fetch(Span(0, 99)))
    record = RunRecord(TOPIC, 0, [b""] * 100)
    assert answers(server) == [MessagesAnswer(REQUEST_KEY, record), EndAnswer(REQUEST_KEY)]


@pytest.mark.parametrize(
    "request_key",
    [REQUEST_KEY._replace(session=1), REQUEST_KEY._replace(topic=4)],
    ids=["session", "topic"],
)
def test_it_knows_one_session_and_its_topics(request_key: RequestKey) -> None:
    server = FetchServer(Shelf(small()), SESSION, 4, PART)
    with pytest.raises(RemoteError, match="unknown topic"):
        server.handle_frame_untrusted(encode_ask(AskRequest(request_key)))


def test_questions_that_wait_are_bounded() -> None:
    server = FetchServer(Shelf(small()), SESSION, 4, PART)
    for _ in range(MOST_REQUESTS):
        server.handle_frame_untrusted(encode_ask(AskRequest(REQUEST_KEY)))
    with pytest.raises(RemoteError, match="wait for their answers"):
        server.handle_frame_untrusted(encode_ask(AskRequest(REQUEST_KEY)))


def test_it_keeps_to_its_rate() -> None:
    payloads = [b"x" * 1000] * 1000
    rate = 1_000_000.0
    server = FetchServer(Rows(payloads), SESSION, 4, PART, rate)
    server.handle_frame_untrusted(fetch(Span(0, 999)))
    now, sent = 0.0, 0
    while True:
        for frame in iter(partial(server.poll_transmit, now), None):
            sent += len(frame)
            assert sent <= rate * now + 2 * FRAME + 2000
        due = server.poll_timeout()
        if due is None:
            break
        assert due > now
        now = due
    assert sent > 1_000_000
    assert 0.8 < now < 1.0
