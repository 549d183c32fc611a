"""Frames of late join and off-transport recovery: there and back, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.late_join_wire import (
    MOST_FRAME,
    Answer,
    AskRequest,
    EndAnswer,
    FetchRequest,
    Framing,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    Request,
    RequestKey,
    decode_answer_untrusted,
    decode_request_untrusted,
    encode_ask,
    encode_done,
    encode_fetch,
    encode_gone,
    encode_info,
    encode_msg,
    prefixed,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import FragmentRecord, RunRecord
from sphtp.errors import RemoteError
from tests.cases import each

REQUEST_KEY = RequestKey(0xDEADBEEF, 3, 77)
TOP = (1 << 64) - 1

REQUESTS: list[tuple[Request, bytes]] = [
    (AskRequest(REQUEST_KEY), encode_ask(AskRequest(REQUEST_KEY))),
    *(
        (fetch, encode_fetch(fetch))
        for fetch in (
            FetchRequest(REQUEST_KEY, [Span(0, 0)]),
            FetchRequest(REQUEST_KEY, [Span(1, 5), Span(7, 7), Span(TOP, TOP)]),
        )
    ),
]
ANSWERS: list[tuple[Answer, bytes]] = [
    (InfoAnswer(REQUEST_KEY, 4, TOP), encode_info(InfoAnswer(REQUEST_KEY, 4, TOP))),
    (InfoAnswer(REQUEST_KEY, 4, 4), encode_info(InfoAnswer(REQUEST_KEY, 4, 4))),
    *(
        (msg, encode_msg(msg))
        for msg in (
            MessagesAnswer(REQUEST_KEY, RunRecord(3, 5, [b"one", b"two"])),
            MessagesAnswer(REQUEST_KEY, RunRecord(3, 5, [b"one", b"", b"three"])),
            MessagesAnswer(REQUEST_KEY, FragmentRecord(3, 9, 1, 4, b"part")),
        )
    ),
    (GoneAnswer(REQUEST_KEY, Span(2, TOP)), encode_gone(GoneAnswer(REQUEST_KEY, Span(2, TOP)))),
    (EndAnswer(REQUEST_KEY), encode_done(EndAnswer(REQUEST_KEY))),
]


@pytest.mark.parametrize(("request_", "frame"), REQUESTS, ids=lambda value: type(value).__name__)
def test_requests_come_back_whole_and_no_other_way(request_: Request, frame: bytes) -> None:
    assert decode_request_untrusted(frame) == request_
    for cut in range(len(frame)):
        with pytest.raises(RemoteError):
            decode_request_untrusted(frame[:cut])
    with pytest.raises(RemoteError):
        decode_request_untrusted(frame + b"\0")
    with pytest.raises(RemoteError, match="sends no answer"):
        decode_answer_untrusted(frame)


@each(("answer", "frame"), ANSWERS)
def test_answers_come_back_whole_and_no_other_way(answer: Answer, frame: bytes) -> None:
    assert decode_answer_untrusted(frame) == answer
    for cut in range(len(frame)):
        with pytest.raises(RemoteError):
            decode_answer_untrusted(frame[:cut])
    with pytest.raises(RemoteError):
        decode_answer_untrusted(frame + b"\0")
    with pytest.raises(RemoteError, match="sends no request"):
        decode_request_untrusted(frame)


@pytest.mark.parametrize(
    ("fetch", "message"),
    [
        (FetchRequest(REQUEST_KEY, []), "0 ranges"),
        (FetchRequest(REQUEST_KEY, [Span(i * 2, i * 2) for i in range(257)]), "257 ranges"),
        (FetchRequest(REQUEST_KEY, [Span(5, 6), Span(6, 7)]), "out of order"),
        (FetchRequest(REQUEST_KEY, [Span(0, 40_000), Span(50_000, 90_000)]), "80002 messages"),
    ],
    ids=["none", "many", "overlapping", "large"],
)
def test_a_fetch_is_bounded(fetch: FetchRequest, message: str) -> None:
    with pytest.raises(RemoteError, match=message):
        decode_request_untrusted(encode_fetch(fetch))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (encode_info(InfoAnswer(REQUEST_KEY, 5, 4)), "ends before"),
        (encode_gone(GoneAnswer(REQUEST_KEY, Span(5, 4))), "names no message"),
        (
            encode_msg(MessagesAnswer(REQUEST_KEY, RunRecord(4, 0, [b"other"]))),
            "one record, of the requested topic",
        ),
        (ANSWERS[2][1] + ANSWERS[2][1][11:], "one record, of the requested topic"),
    ],
    ids=["info", "gone", "topic", "records"],
)
def test_answers_that_make_no_sense_are_refused(frame: bytes, message: str) -> None:
    with pytest.raises(RemoteError, match=message):
        decode_answer_untrusted(frame)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_a_remote_error(data: bytes) -> None:
    for decode in (decode_request_untrusted, decode_answer_untrusted):
        try:
            decode(data)
        except RemoteError:
            continue


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(0, 150), max_size=6))
def test_frames_come_out_however_the_connection_cuts_them(
    frames: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(map(prefixed, frames))
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    framing, found = Framing(), list[bytes]()
    for start, end in zip(edges, [*edges[1:], len(data)], strict=True):
        found += framing.feed_untrusted(data[start:end])
    assert found == frames


def test_a_frame_that_is_too_long_is_refused_before_it_comes() -> None:
    framing = Framing()
    assert framing.feed_untrusted(prefixed(b"fine")) == [b"fine"]
    with pytest.raises(RemoteError, match=f"allowed is {MOST_FRAME}"):
        framing.feed_untrusted((MOST_FRAME + 1).to_bytes(4, "little"))
