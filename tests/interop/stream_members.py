"""The named fields of membership and of the history's connection, as our own types and back."""

from collections.abc import Callable
from typing import Any

from sphtp.core.stream import late_join_wire
from sphtp.core.stream.late_join_wire import FetchFrameKind, Framing, RequestKey
from sphtp.core.stream.membership import (
    VERSION,
    Closing,
    Join,
    JoinRefused,
    Member,
    MemberKind,
    StreamKey,
    Welcome,
    decode_member_untrusted,
    encode_member,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import decode_records_untrusted
from sphtp.core.stream.wire import Window
from tests.interop.streams import Named, message_in, name_record, payload_of, write_record

# Membership

PLAIN = ("session", "receiver", "topic", "next", "reach", "history", "group", "port")


def read_member(payload: bytes) -> Named:
    """Read a message of membership, and name its fields."""
    message = decode_member_untrusted(message_in(payload))
    kind, name = MEMBER_NAMES[type(message)]
    return {"kind": int(kind), **name(message)}


def write_member(named: Named) -> bytes:
    """Write a message of membership of these named fields."""
    return payload_of(encode_member(MEMBERS[MemberKind(named["kind"])](named)))


def name_welcome(welcome: Welcome) -> Named:
    plain = {key: getattr(welcome, key) for key in PLAIN}
    window = {"after": welcome.window.lead + 1, "trail": welcome.window.trail}
    if welcome.key is None:
        return plain | window | {"seal": 0}
    receiver_key = {"receiver_key": welcome.receiver_key.hex()}
    return plain | window | {"seal": 1} | name_key(welcome.key) | receiver_key


def welcome_of(named: Named) -> Welcome:
    return Welcome(
        **{key: named[key] for key in PLAIN},
        window=Window(named["after"] - 1, named["trail"]),
        key=key_of(named) if named["seal"] else None,
        receiver_key=bytes.fromhex(named.get("receiver_key", "")),
    )


def name_join(join: Join) -> Named:
    return {
        "version": VERSION,
        "topic": join.topic,
        "session": join.session,
        "lacks": join.settled + 1,
    }


def name_closing(closing: Closing) -> Named:
    (lead, trail), following = closing
    return {"after": lead + 1, "trail": trail, "next": following}


def name_key(key: StreamKey) -> Named:
    return {"number": key.number, "key": key.key.hex(), "first": key.first}


def key_of(named: Named) -> StreamKey:
    return StreamKey(named["number"], bytes.fromhex(named["key"]), named["first"])


MEMBERS: dict[MemberKind, Callable[[Named], Member]] = {
    MemberKind.JOIN: lambda named: Join(named["topic"], named["session"], named["lacks"] - 1),
    MemberKind.WELCOME: welcome_of,
    MemberKind.REFUSED: lambda named: JoinRefused(named["text"]),
    MemberKind.KEY: key_of,
    MemberKind.END: lambda named: Closing(
        Window(named["after"] - 1, named["trail"]), named["next"]
    ),
}

MEMBER_NAMES: dict[type, tuple[MemberKind, Callable[[Any], Named]]] = {
    Join: (MemberKind.JOIN, name_join),
    Welcome: (MemberKind.WELCOME, name_welcome),
    JoinRefused: (MemberKind.REFUSED, lambda refused: {"text": refused.text}),
    StreamKey: (MemberKind.KEY, name_key),
    Closing: (MemberKind.END, name_closing),
}


# History


def read_frame(data: bytes) -> Named:
    """Read a frame with its length, of either side, and name its fields."""
    (frame,) = Framing().feed_untrusted(data) or [b""]
    asks = frame[:1] in {bytes([FetchFrameKind.ASK]), bytes([FetchFrameKind.FETCH])}
    decode = (
        late_join_wire.decode_request_untrusted if asks else late_join_wire.decode_answer_untrusted
    )
    said: Any = decode(frame)
    kind, name = FRAME_NAMES[type(said)]
    return {"kind": int(kind), **said.request_key._asdict(), **name(said)}


def write_frame(named: Named) -> bytes:
    """Write a frame with its length of these named fields."""
    request_key = RequestKey(named["session"], named["topic"], named["number"])
    return late_join_wire.prefixed(FRAMES[FetchFrameKind(named["kind"])](request_key, named))


def name_spans(fetch: late_join_wire.FetchRequest) -> Named:
    return {"ranges": [{"first": first, "further": last - first} for first, last in fetch.spans]}


def write_fetch(request_key: RequestKey, named: Named) -> bytes:
    spans = [Span(one["first"], one["first"] + one["further"]) for one in named["ranges"]]
    return late_join_wire.encode_fetch(late_join_wire.FetchRequest(request_key, spans))


def write_msg(request_key: RequestKey, named: Named) -> bytes:
    (record,) = decode_records_untrusted(write_record(named["record"]))
    return late_join_wire.encode_msg(late_join_wire.MessagesAnswer(request_key, record))


def write_gone(request_key: RequestKey, named: Named) -> bytes:
    return late_join_wire.encode_gone(
        late_join_wire.GoneAnswer(request_key, Span(named["first"], named["last"]))
    )


FRAMES: dict[FetchFrameKind, Callable[[RequestKey, Named], bytes]] = {
    FetchFrameKind.ASK: lambda request_key, _: late_join_wire.encode_ask(
        late_join_wire.AskRequest(request_key)
    ),
    FetchFrameKind.FETCH: write_fetch,
    FetchFrameKind.INFO: lambda request_key, named: late_join_wire.encode_info(
        late_join_wire.InfoAnswer(request_key, named["low"], named["next"])
    ),
    FetchFrameKind.MSG: write_msg,
    FetchFrameKind.GONE: write_gone,
    FetchFrameKind.END: lambda request_key, _: late_join_wire.encode_done(
        late_join_wire.EndAnswer(request_key)
    ),
}

FRAME_NAMES: dict[type, tuple[FetchFrameKind, Callable[[Any], Named]]] = {
    late_join_wire.AskRequest: (FetchFrameKind.ASK, lambda _: {}),
    late_join_wire.FetchRequest: (FetchFrameKind.FETCH, name_spans),
    late_join_wire.InfoAnswer: (
        FetchFrameKind.INFO,
        lambda info: {"low": info.low, "next": info.next},
    ),
    late_join_wire.MessagesAnswer: (
        FetchFrameKind.MSG,
        lambda msg: {"record": name_record(msg.record)},
    ),
    late_join_wire.GoneAnswer: (FetchFrameKind.GONE, lambda gone: gone.span._asdict()),
    late_join_wire.EndAnswer: (FetchFrameKind.END, lambda _: {}),
}
