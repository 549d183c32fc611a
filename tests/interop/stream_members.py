"""The named fields of membership and of the history's connection, as our own types and back."""

from collections.abc import Callable
from typing import Any

from sphtp.core.stream.bodies import Window
from sphtp.core.stream.fetch import wire
from sphtp.core.stream.fetch.wire import FrameKind, Framing, Question
from sphtp.core.stream.membership import (
    VERSION,
    Closing,
    Join,
    Member,
    MemberKind,
    Refused,
    StreamKey,
    Welcome,
    decode_member_untrusted,
    encode_member,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import decode_records_untrusted
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
    MemberKind.REFUSED: lambda named: Refused(named["text"]),
    MemberKind.KEY: key_of,
    MemberKind.END: lambda named: Closing(
        Window(named["after"] - 1, named["trail"]), named["next"]
    ),
}

MEMBER_NAMES: dict[type, tuple[MemberKind, Callable[[Any], Named]]] = {
    Join: (MemberKind.JOIN, name_join),
    Welcome: (MemberKind.WELCOME, name_welcome),
    Refused: (MemberKind.REFUSED, lambda refused: {"text": refused.text}),
    StreamKey: (MemberKind.KEY, name_key),
    Closing: (MemberKind.END, name_closing),
}


# History


def read_frame(data: bytes) -> Named:
    """Read a frame with its length, of either side, and name its fields."""
    (frame,) = Framing().feed_untrusted(data) or [b""]
    asks = frame[:1] in {bytes([FrameKind.ASK]), bytes([FrameKind.FETCH])}
    decode = wire.decode_request_untrusted if asks else wire.decode_answer_untrusted
    said: Any = decode(frame)
    kind, name = FRAME_NAMES[type(said)]
    return {"kind": int(kind), **said.question._asdict(), **name(said)}


def write_frame(named: Named) -> bytes:
    """Write a frame with its length of these named fields."""
    question = Question(named["session"], named["topic"], named["number"])
    return wire.prefixed(FRAMES[FrameKind(named["kind"])](question, named))


def name_spans(fetch: wire.Fetch) -> Named:
    return {"ranges": [{"first": first, "further": last - first} for first, last in fetch.spans]}


def write_fetch(question: Question, named: Named) -> bytes:
    spans = [Span(one["first"], one["first"] + one["further"]) for one in named["ranges"]]
    return wire.encode_fetch(wire.Fetch(question, spans))


def write_msg(question: Question, named: Named) -> bytes:
    (record,) = decode_records_untrusted(write_record(named["record"]))
    return wire.encode_msg(wire.Msg(question, record))


def write_gone(question: Question, named: Named) -> bytes:
    return wire.encode_gone(wire.Gone(question, Span(named["first"], named["last"])))


FRAMES: dict[FrameKind, Callable[[Question, Named], bytes]] = {
    FrameKind.ASK: lambda question, _: wire.encode_ask(wire.Ask(question)),
    FrameKind.FETCH: write_fetch,
    FrameKind.INFO: lambda question, named: wire.encode_info(
        wire.Info(question, named["low"], named["next"])
    ),
    FrameKind.MSG: write_msg,
    FrameKind.GONE: write_gone,
    FrameKind.END: lambda question, _: wire.encode_done(wire.Done(question)),
}

FRAME_NAMES: dict[type, tuple[FrameKind, Callable[[Any], Named]]] = {
    wire.Ask: (FrameKind.ASK, lambda _: {}),
    wire.Fetch: (FrameKind.FETCH, name_spans),
    wire.Info: (FrameKind.INFO, lambda info: {"low": info.low, "next": info.next}),
    wire.Msg: (FrameKind.MSG, lambda msg: {"record": name_record(msg.record)}),
    wire.Gone: (FrameKind.GONE, lambda gone: gone.span._asdict()),
    wire.Done: (FrameKind.END, lambda _: {}),
}
