"""What mutation of what comes on a stream starts from."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sphtp.core.stream.late_join_wire import (
    AskRequest,
    EndAnswer,
    FetchRequest,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    RequestKey,
    encode_ask,
    encode_done,
    encode_fetch,
    encode_gone,
    encode_info,
    encode_msg,
    prefixed,
)
from sphtp.core.stream.membership import (
    KEY_SIZE,
    Closing,
    Join,
    JoinRefused,
    Member,
    StreamKey,
    Welcome,
    encode_member,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord, encode_fragment, encode_run
from sphtp.core.stream.wire import (
    BodyFlag,
    Nak,
    Ncf,
    NcfReason,
    SessionMessage,
    StatusMessage,
    Window,
    encode_data,
    encode_nak,
    encode_ncf,
    encode_session,
    encode_status,
    feedback_header,
    stream_header,
)

WINDOW: Final = Window(5, 2)
SPANS: Final = (Span(2, 2), Span(4, 5))
REQUEST_KEY: Final = RequestKey(7, 1, 3)
KEY: Final = StreamKey(1, bytes(KEY_SIZE), 9)

RECORDS: Final[Iterable[Record]] = (
    RunRecord(1, 3, [b"one", b"two"]),
    RunRecord(1, 5, [b"", b"three"]),
    FragmentRecord(1, 9, 1, 3, b"part"),
)
MEMBERS: Final[Iterable[Member]] = (
    Join("positions"),
    Welcome(1, 2, 3, WINDOW, 4),
    Welcome(1, 2, 3, WINDOW, 4, 99, 4711, "239.1.2.3", 9000, KEY, bytes(KEY_SIZE)),
    JoinRefused("no"),
    KEY,
    Closing(WINDOW, 5),
)


def _fronts() -> Iterable[bytes]:
    yield stream_header(7, 1)
    yield feedback_header(7, 9)


def _records() -> Iterable[bytes]:
    for record in RECORDS:
        yield encode_run(record) if isinstance(record, RunRecord) else encode_fragment(record)


def _bodies() -> Iterable[bytes]:
    """What is known of the lead, and a body."""
    said = [encode_data(4, WINDOW, record, repair=True) for record in _records()]
    said.append(encode_session(SessionMessage(BodyFlag.CLOSING, WINDOW, 3, [(0, 7), (1, 2**40)])))
    said += [encode_ncf(Ncf(WINDOW, reason, 0.05, SPANS)) for reason in NcfReason]
    return (b"\0" + body for body in said)


def _feedback() -> Iterable[bytes]:
    yield b"\0" + encode_nak(Nak(SPANS))
    yield b"\0" + encode_status(StatusMessage(4, 65_536, is_fetching=True))


def _members() -> Iterable[bytes]:
    return map(encode_member, MEMBERS)


def _requests() -> Iterable[bytes]:
    yield encode_ask(AskRequest(REQUEST_KEY))
    yield encode_fetch(FetchRequest(REQUEST_KEY, SPANS))


def _answers() -> Iterable[bytes]:
    yield encode_info(InfoAnswer(REQUEST_KEY, 2, 9))
    yield from (encode_msg(MessagesAnswer(REQUEST_KEY, record)) for record in RECORDS)
    yield encode_gone(GoneAnswer(REQUEST_KEY, Span(0, 1)))
    yield encode_done(EndAnswer(REQUEST_KEY))


def _frames() -> Iterable[bytes]:
    """How they are cut, and frames."""
    yield b"\2" + b"".join(map(prefixed, _answers()))


def _callers() -> Iterable[bytes]:
    """Which of them calls, and what choices it then has."""
    for place in range(3):
        for data in (*_members(), *_answers(), bytes(range(1, 200))):
            yield bytes([place, 1]) + data


STREAM_STARTS: Final[Mapping[str, Callable[[], Iterable[bytes]]]] = {
    "stream-front": _fronts,
    "stream-body": _bodies,
    "stream-feedback": _feedback,
    "stream-records": _records,
    "stream-member": _members,
    "stream-request": _requests,
    "stream-answer": _answers,
    "stream-framing": _frames,
    "stream-seal": _requests,
    "stream-callers": _callers,
}
