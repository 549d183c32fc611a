"""Every decoder of streams by itself; what was decoded is encoded and decoded again."""

from collections.abc import Callable, Mapping
from typing import Final

from sphtp.core.stream.late_join_wire import (
    Answer,
    AskRequest,
    EndAnswer,
    Framing,
    GoneAnswer,
    InfoAnswer,
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
from sphtp.core.stream.membership import Join, Welcome, decode_member_untrusted, encode_member
from sphtp.core.stream.records import (
    Record,
    RunRecord,
    decode_records_untrusted,
    encode_fragment,
    encode_run,
)
from sphtp.core.stream.sealing import SealCounters, TcpSeal, fetch_keys
from sphtp.core.stream.wire import (
    FEEDBACK_HEADER,
    STREAM_HEADER,
    Ncf,
    SessionMessage,
    StatusMessage,
    StreamData,
    decode_body_untrusted,
    decode_feedback_header_untrusted,
    decode_feedback_untrusted,
    decode_stream_header_untrusted,
    encode_data,
    encode_nak,
    encode_ncf,
    encode_session,
    encode_status,
    feedback_header,
    stream_header,
)
from sphtp.errors import RemoteError
from tests.fuzz.choices import Script

LEADS: Final = (5, 0, 2**31, 2**32 - 1, 2**32 + 7, 2**40)
"""What is known of a window when a body comes."""

KEY: Final = bytes(range(32))
SALTS: Final = bytes(32)


def front(data: bytes) -> None:
    """The first bytes of a datagram of a stream, from either side."""
    for decode, encode, size in (
        (decode_stream_header_untrusted, stream_header, STREAM_HEADER.size),
        (decode_feedback_header_untrusted, feedback_header, FEEDBACK_HEADER.size),
    ):
        try:
            decoded = decode(data)
        except RemoteError:
            continue
        assert encode(*decoded) == data[:size]


def body(data: bytes) -> None:
    """What a source says."""
    lead = Script(data).pick(LEADS)
    said = decode_body_untrusted(data[1:], lead)
    window = said.window
    assert window.trail <= window.lead + 1
    match said:
        case StreamData():
            assert window.trail <= said.sqn <= window.lead
            again = encode_data(said.sqn, window, bytes(said.records))
            assert decode_body_untrusted(again, lead)[1:] == said[1:]
        case SessionMessage():
            assert decode_body_untrusted(encode_session(said), lead) == said
        case Ncf():
            assert decode_body_untrusted(encode_ncf(said), lead) == said


def feedback(data: bytes) -> None:
    """What a receiver says."""
    lead = Script(data).pick(LEADS)
    said = decode_feedback_untrusted(data[1:], lead)
    again = encode_status(said) if isinstance(said, StatusMessage) else encode_nak(said)
    assert decode_feedback_untrusted(again, lead) == said


def records(data: bytes) -> None:
    """What a datagram holds."""
    decoded = decode_records_untrusted(data)
    assert decode_records_untrusted(b"".join(map(_record, decoded))) == decoded
    assert sum(len(it.payloads) for it in decoded if isinstance(it, RunRecord)) <= len(data)


def _record(record: Record) -> bytes:
    return encode_run(record) if isinstance(record, RunRecord) else encode_fragment(record)


def member(data: bytes) -> None:
    """What is said of membership."""
    said = decode_member_untrusted(data)
    # What is no UTF-8 becomes longer when it is written, and there is a limit.
    texts = [said.topic] if isinstance(said, Join) else []
    texts += [said.group] if isinstance(said, Welcome) else []
    if all(len(text.encode()) <= 255 for text in texts):
        assert decode_member_untrusted(encode_member(said)) == said


def request(data: bytes) -> None:
    """What a receiver asks of the history."""
    asked = decode_request_untrusted(data)
    assert (encode_ask(asked) if isinstance(asked, AskRequest) else encode_fetch(asked)) == data


def answer(data: bytes) -> None:
    """What the history answers."""
    said = decode_answer_untrusted(data)
    assert decode_answer_untrusted(_answer(said)) == said


def _answer(said: Answer) -> bytes:
    match said:
        case InfoAnswer():
            return encode_info(said)
        case GoneAnswer():
            return encode_gone(said)
        case EndAnswer():
            return encode_done(said)
        case _:
            return encode_msg(said)


def framing(data: bytes) -> None:
    """Frames on a connection, cut anyhow: they are those of the whole."""
    whole = Framing().feed_untrusted(data[1:])
    step, pieces, found = 1 + Script(data).below(256), Framing(), list[bytes]()
    for at in range(1, len(data), step):
        found += pieces.feed_untrusted(data[at : at + step])
    assert found == whole
    assert data[1:].startswith(b"".join(map(prefixed, whole)))


def seal(data: bytes) -> None:
    """Frames that are sealed, and the bytes in their place: only the sealed ones are opened."""
    outgoing, incoming = fetch_keys(KEY, SALTS)
    tally = SealCounters()
    there, here = TcpSeal(outgoing, incoming, tally), TcpSeal(incoming, outgoing, tally)
    sealed = there.seal(data or b"\0")
    assert here.open_untrusted(sealed) == (data or b"\0")
    for frame in (sealed, sealed[:-1], data):
        try:
            here.open_untrusted(frame)
        except RemoteError:
            continue
        raise AssertionError("a frame that nobody sealed, or that was seen before, was opened")


STREAMS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "stream-front": front,
    "stream-body": body,
    "stream-feedback": feedback,
    "stream-records": records,
    "stream-member": member,
    "stream-request": request,
    "stream-answer": answer,
    "stream-framing": framing,
    "stream-seal": seal,
}
