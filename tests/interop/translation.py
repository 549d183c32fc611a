"""The named fields of the published vectors, as values of our own types and back."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from sphtp.core.channel import frames as frame_types
from sphtp.core.channel.frames import Frame, FrameKind
from sphtp.core.clock import Stamp, Term, TimeRequest
from sphtp.core.control import codec as wire
from sphtp.core.control.codec import Field, Message, OfHolder, PackedField, Parameter, Part
from sphtp.core.control.records import (
    Candidate,
    Digest,
    GoneHolder,
    Holder,
    Member,
    PeerRecord,
    ServerAddress,
    Watch,
)
from sphtp.core.control.vocabulary import DataId, MemberState, Reason

Named = dict[str, Any]


TERM = ("timeline", "generation", "reference", "predecessor", "since")
SIGNED = ("key", "cluster", "certificate", "boot", "count", "signature")

# No command takes these, and so no machine reads them.
VOUCHER = PackedField[tuple[int, int, bytes]](DataId.VOUCHER, "<QQ16s")
SIGNATURE = PackedField[tuple[bytes, bytes, bytes, int, int, bytes]](
    DataId.SIGNATURE, "<32s32s64sQQ64s"
)


class Kind(NamedTuple):
    """How a parameter is named on the page."""

    field: Field[Any]
    build: Callable[[Named], Any]
    name: Callable[[Any], Named]


def parameter_of(named: Named) -> Parameter:
    """Return the parameter of these named fields; of an unknown id, its data is named."""
    kind = PARAMETERS.get(named["id"])
    if kind is None:
        return Parameter(named["id"], bytes.fromhex(named["data"]))
    return kind.field.of(kind.build(named))


def value_of(named: Named) -> Any:
    """Return the value of a parameter, in our type."""
    return PARAMETERS[named["id"]].build(named)


def name_parameter(parameter: Parameter) -> Named:
    """Name the fields of a parameter."""
    kind = PARAMETERS.get(parameter.id)
    if kind is None:
        return {"id": parameter.id, "data": parameter.data.hex()}
    value = kind.field.need(Message(0, 0, 0, (parameter,)))
    return {"id": parameter.id, **kind.name(value)}


def message_of(named: Named) -> Message:
    """Return the message of these named fields."""
    parameters = tuple(map(parameter_of, named["parameters"]))
    return Message(named["simulation"], named["sender"], named["command"], parameters)


def name_message(message: Message) -> Named:
    """Name the fields of a message."""
    return {
        "simulation": message.simulation,
        "sender": message.sender,
        "command": message.command,
        "parameters": [name_parameter(parameter) for parameter in message.parameters],
    }


def peer_of(named: Named) -> PeerRecord:
    """Return the record of these named fields."""
    candidates = tuple(_candidate_of(candidate) for candidate in named["candidates"])
    data = bytes.fromhex(named["data"])
    return PeerRecord(named["client"], named["nonce"], candidates, data, named["revision"])


def frame_of(named: Named) -> Frame:
    """Return the frame of these named fields."""
    return FRAMES[named["kind"]](named)


def name_frame(frame: Frame) -> Named:
    """Name the fields of a frame."""
    return FRAME_NAMES[type(frame)](frame)


def _number(field: Field[int], key: str) -> Kind:
    return Kind(field, lambda named: named[key], lambda value: {key: value})


def _data(field: Field[bytes]) -> Kind:
    return Kind(
        field, lambda named: bytes.fromhex(named["data"]), lambda value: {"data": value.hex()}
    )


def _names(field: Field[tuple[str, ...]], key: str) -> Kind:
    return Kind(field, lambda named: tuple(named[key]), lambda names: {key: list(names)})


def _beside(own: Kind, field: Field[Any]) -> tuple[Kind, Kind]:
    """Return the field of a client's own message, and the one beside its record."""
    return own, Kind(
        field,
        lambda n: OfHolder(n["client"], n["nonce"], own.build(n)),
        lambda told: {"client": told.id, "nonce": told.nonce, **own.name(told.value)},
    )


def _candidate_of(named: Named) -> Candidate:
    return Candidate(named["host"], named["port"])


def _name_candidate(candidate: Candidate) -> Named:
    return {"port": candidate.port, "host": candidate.host}


def _member_of(named: Named) -> Member:
    address = ServerAddress(named["pub"], named["sub"]) if "pub" in named else None
    return Member(named["server"], named["nonce"], address, MemberState(named["state"]))


def _name_member(member: Member) -> Named:
    address = member.address
    urls = {} if address is None else {"pub": address.pub, "sub": address.sub}
    return {"server": member.id, "nonce": member.nonce, "state": int(member.state), **urls}


def _name_peer(record: PeerRecord) -> Named:
    return {
        "client": record.id,
        "nonce": record.nonce,
        "revision": record.revision,
        "candidates": [_name_candidate(candidate) for candidate in record.candidates],
        "data": record.data.hex(),
    }


def _payloads_of(named: Named) -> list[bytes]:
    return [bytes.fromhex(payload) for payload in named["payloads"]]


def _messages_of(named: Named) -> frame_types.Messages:
    return frame_types.Messages(named["lane"], named["first_id"], _payloads_of(named))


def _unreliable_of(named: Named) -> frame_types.Unreliable:
    return frame_types.Unreliable(named["lane"], named["first_id"], _payloads_of(named))


def _fragment_of(named: Named) -> frame_types.Fragment:
    payload = bytes.fromhex(named["payload"])
    return frame_types.Fragment(
        named["lane"], named["message_id"], named["offset"], named["total"], payload
    )


def _name_payloads(frame: frame_types.Messages | frame_types.Unreliable) -> Named:
    payloads = [payload.hex() for payload in frame.payloads]
    return {"lane": frame.lane, "first_id": frame.first_id, "payloads": payloads}


def _name_messages(frame: frame_types.Messages) -> Named:
    kind = FrameKind.RUN if len(set(map(len, frame.payloads))) == 1 else FrameKind.MESSAGES
    return {"kind": int(kind), **_name_payloads(frame)}


def _name_fragment(frame: frame_types.Fragment) -> Named:
    return {
        "kind": 2,
        "lane": frame.lane,
        "message_id": frame.message_id,
        "offset": frame.offset,
        "total": frame.total,
        "payload": frame.payload.hex(),
    }


def _name_skip(frame: frame_types.Skip) -> Named:
    return {"kind": 8, "lane": frame.lane, "message_id": frame.message_id, "size": frame.size}


_KINDS = (
    _number(wire.VERSION, "version"),
    _number(wire.FEATURES, "features"),
    _number(wire.NONCE, "nonce"),
    Kind(wire.CANDIDATE, _candidate_of, _name_candidate),
    Kind(wire.STATE, lambda n: MemberState(n["state"]), lambda state: {"state": int(state)}),
    _number(wire.VIEW, "view"),
    Kind(wire.MEMBER, _member_of, _name_member),
    Kind(
        wire.ROSTER,
        lambda n: Digest(n["count"], n["mix"]),
        lambda digest: {"count": digest.count, "mix": digest.mix},
    ),
    Kind(wire.REASON, lambda n: Reason(n["reason"]), lambda reason: {"reason": int(reason)}),
    _number(wire.REVISION, "revision"),
    _data(wire.BLOB),
    Kind(wire.PEER, peer_of, _name_peer),
    Kind(
        wire.ACKED,
        lambda n: Holder(n["client"], n["nonce"]),
        lambda holder: {"client": holder.id, "nonce": holder.nonce},
    ),
    Kind(
        wire.PART,
        lambda n: Part(n["index"], n["count"]),
        lambda part: {"index": part.index, "count": part.count},
    ),
    _data(wire.TEXT),
    _number(wire.PEER_ID, "client"),
    Kind(
        wire.GONE,
        lambda n: GoneHolder(n["client"], n["nonce"], Reason(n["reason"])),
        lambda gone: {"client": gone.id, "nonce": gone.nonce, "reason": int(gone.reason)},
    ),
    _number(wire.TARGET, "server"),
    *_beside(
        Kind(wire.KEY, lambda n: bytes.fromhex(n["key"]), lambda key: {"key": key.hex()}),
        wire.PEER_KEY,
    ),
    *_beside(_names(wire.TOPICS, "topics"), wire.PEER_TOPICS),
    *_beside(Kind(wire.NAME, itemgetter("name"), lambda name: {"name": name}), wire.PEER_NAME),
    *_beside(_names(wire.GROUPS, "groups"), wire.PEER_GROUPS),
    Kind(
        wire.WATCH,
        lambda n: Watch(n["topic"], Digest(n["count"], n["mix"])),
        lambda watch: {
            "topic": watch.topic,
            "count": watch.digest.count,
            "mix": watch.digest.mix,
        },
    ),
    Kind(
        wire.TIME,
        lambda n: Stamp(Term(*(n[name] for name in TERM)), n["time"], n["error"]),
        lambda stamp: {
            **dict(zip(TERM, stamp.term, strict=True)),
            "time": stamp.time,
            "error": stamp.error,
        },
    ),
    Kind(
        wire.TIME_REQUEST,
        lambda n: TimeRequest(n["server"], n["origin"]),
        lambda request: {"server": request.server, "origin": request.origin},
    ),
    _number(wire.ORIGIN, "origin"),
    _number(wire.TOKEN, "token"),
    Kind(
        VOUCHER,
        lambda n: (n["boot"], n["count"], bytes.fromhex(n["code"])),
        lambda mark: {"boot": mark[0], "count": mark[1], "code": mark[2].hex()},
    ),
    Kind(
        SIGNATURE,
        lambda n: tuple(
            n[name] if name in ("boot", "count") else bytes.fromhex(n[name]) for name in SIGNED
        ),
        lambda mark: {
            name: each if isinstance(each, int) else each.hex()
            for name, each in zip(SIGNED, mark, strict=True)
        },
    ),
)

PARAMETERS: dict[int, Kind] = {int(kind.field.id): kind for kind in _KINDS}

FRAMES: dict[int, Callable[[Named], Frame]] = {
    1: _messages_of,
    2: _fragment_of,
    3: _unreliable_of,
    4: lambda _: frame_types.Ping(),
    5: lambda n: frame_types.Close(n["reason"], n["text"]),
    6: _messages_of,
    7: lambda n: frame_types.Credit(n["messages"], n["bytes"]),
    8: lambda n: frame_types.Skip(n["lane"], n["message_id"], n["size"]),
    9: lambda n: frame_types.Padding(n["size"]),
    10: lambda n: frame_types.AckDelay(n["delay"] * frame_types.DELAY_STEP),
}

FRAME_NAMES: dict[type, Callable[[Any], Named]] = {
    frame_types.Messages: _name_messages,
    frame_types.Fragment: _name_fragment,
    frame_types.Unreliable: lambda f: {"kind": 3, **_name_payloads(f)},
    frame_types.Ping: lambda _: {"kind": 4},
    frame_types.Close: lambda f: {"kind": 5, "reason": f.reason, "text": f.text},
    frame_types.Credit: lambda f: {"kind": 7, "messages": f.messages, "bytes": f.size},
    frame_types.Skip: _name_skip,
    frame_types.Padding: lambda f: {"kind": 9, "size": f.size},
    frame_types.AckDelay: lambda f: {"kind": 10, "delay": round(f.delay / frame_types.DELAY_STEP)},
}
