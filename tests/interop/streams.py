"""The named fields of the published examples of streams, and their bytes."""

from collections.abc import Callable, Sequence
from typing import Any

from sphtp.core.datagrams import Kind
from sphtp.core.packing import MALFORMED, pack, unpack
from sphtp.core.stream import wire
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import (
    FragmentRecord,
    Record,
    RecordKind,
    RunRecord,
    decode_records_untrusted,
    encode_fragment,
    encode_run,
)
from sphtp.core.stream.wire import BodyFlag, BodyType, NcfReason, Window
from sphtp.errors import RemoteError

Named = dict[str, Any]

SHORT = 1 << 32
# Whatever is near: the page names the low 32 bits.
REFERENCE = 1 << 40


# Records


def write_record(named: Named) -> bytes:
    """Write a record of these named fields."""
    if named["kind"] == RecordKind.FRAGMENT:
        payload = bytes.fromhex(named["payload"])
        place = named["first"], named["part"], named["parts"]
        return encode_fragment(FragmentRecord(named["topic"], *place, payload))
    payloads = [bytes.fromhex(payload) for payload in named["payloads"]]
    return encode_run(RunRecord(named["topic"], named["first"], payloads))


def name_record(record: Record) -> Named:
    """Name the fields of a record."""
    if isinstance(record, FragmentRecord):
        fields = record._asdict() | {"payload": record.payload.hex()}
        return {"kind": int(RecordKind.FRAGMENT), **fields}
    lengths = set(map(len, record.payloads))
    kind = RecordKind.RUN if len(lengths) == 1 and 0 not in lengths else RecordKind.VARIED
    payloads = [payload.hex() for payload in record.payloads]
    return {
        "kind": int(kind),
        "topic": record.topic,
        "first": record.first,
        "payloads": payloads,
    }


def read_record(data: bytes) -> Named:
    """Read the one record that there is."""
    (record,) = decode_records_untrusted(data)
    return name_record(record)


# What a source says


def read_stream(data: bytes) -> Named:
    """Read a STREAM in the clear, and name its fields."""
    session, key = wire.decode_stream_header_untrusted(data)
    body = wire.decode_body_untrusted(data[wire.STREAM_HEADER.size :], REFERENCE)
    front = {"kind": int(Kind.STREAM), "session": session, "key": key}
    return front | SAID[type(body)](body)


def name_data(data: wire.StreamData) -> Named:
    records = decode_records_untrusted(bytes(data.records))
    named = {"sqn": data.sqn % SHORT, "records": [name_record(record) for record in records]}
    return name_head(BodyType.DATA, data.flags, data.window) | named


def name_session(session: wire.SessionMessage) -> Named:
    tails = [{"topic": topic, "next": number} for topic, number in session.tails]
    head = name_head(BodyType.SESSION, session.flags, session.window)
    return head | {"number": session.number, "tails": tails}


def name_ncf(ncf: wire.Ncf) -> Named:
    after = round(ncf.retry_after * 1000)
    head = name_head(BodyType.NCF, BodyFlag.NONE, ncf.window)
    reason = {"reason": int(ncf.reason), "retry_after": after}
    return head | reason | {"ranges": name_ranges(ncf.spans)}


def name_head(kind: BodyType, flags: BodyFlag, window: Window) -> Named:
    numbers = {"lead": window.lead % SHORT, "trail": window.trail % SHORT}
    return {"type": int(kind), "flags": int(flags), **numbers}


def name_ranges(spans: Sequence[Span]) -> list[Named]:
    return [{"first": first % SHORT, "further": last - first} for first, last in spans]


SAID: dict[type, Callable[[Any], Named]] = {
    wire.StreamData: name_data,
    wire.SessionMessage: name_session,
    wire.Ncf: name_ncf,
}


def write_stream(named: Named) -> bytes:
    """Write a STREAM in the clear of these named fields."""
    front = wire.stream_header(named["session"], named["key"])
    return front + SAY[BodyType(named["type"])](named)


def write_data(named: Named) -> bytes:
    records = b"".join(map(write_record, named["records"]))
    repair = named["flags"] == BodyFlag.REPAIR
    return wire.encode_data(named["sqn"], window_of(named), records, repair=repair)


def write_session(named: Named) -> bytes:
    tails = [(tail["topic"], tail["next"]) for tail in named["tails"]]
    flags = BodyFlag(named["flags"])
    return wire.encode_session(wire.SessionMessage(flags, window_of(named), named["number"], tails))


def write_ncf(named: Named) -> bytes:
    reason, after = NcfReason(named["reason"]), named["retry_after"] / 1000
    return wire.encode_ncf(wire.Ncf(window_of(named), reason, after, spans_of(named)))


def window_of(named: Named) -> Window:
    return Window(named["lead"], named["trail"])


def spans_of(named: Named) -> list[Span]:
    return [Span(one["first"], one["first"] + one["further"]) for one in named["ranges"]]


SAY: dict[BodyType, Callable[[Named], bytes]] = {
    BodyType.DATA: write_data,
    BodyType.SESSION: write_session,
    BodyType.NCF: write_ncf,
}


# What a receiver says


def read_feedback(data: bytes) -> Named:
    """Read a FEEDBACK in the clear, and name its fields."""
    session, receiver = wire.decode_feedback_header_untrusted(data)
    body = wire.decode_feedback_untrusted(data[wire.FEEDBACK_HEADER.size :], REFERENCE)
    front = {"kind": int(Kind.FEEDBACK), "session": session, "receiver": receiver}
    if isinstance(body, wire.Nak):
        return front | {"type": int(BodyType.NAK), "flags": 0, "ranges": name_ranges(body.spans)}
    flags = BodyFlag.FETCHING * body.is_fetching | BodyFlag.CLOSING * body.knows_end
    numbers = {"lead": body.lead % SHORT, "room": body.room}
    return front | {"type": int(BodyType.STATUS), "flags": int(flags), **numbers}


def write_feedback(named: Named) -> bytes:
    """Write a FEEDBACK in the clear of these named fields."""
    front = wire.feedback_header(named["session"], named["receiver"])
    if named["type"] == BodyType.NAK:
        return front + wire.encode_nak(wire.Nak(spans_of(named)))
    is_fetching = bool(named["flags"] & BodyFlag.FETCHING)
    knows_end = bool(named["flags"] & BodyFlag.CLOSING)
    status = wire.StatusMessage(named["lead"], named["room"], is_fetching, knows_end)
    return front + wire.encode_status(status)


# What travels on a channel


def payload_of(message: bytes) -> bytes:
    """Return a message of membership as the payload that a channel carries."""
    payload: bytes = pack(message)
    return payload


def message_in(payload: bytes) -> bytes:
    """Return the message of membership in a payload; raises ``RemoteError`` when there is none."""
    try:
        message = unpack(payload)
    except MALFORMED as error:
        raise RemoteError("no msgpack") from error
    if not isinstance(message, bytes):
        raise RemoteError("what is said of membership is bytes")
    return message
