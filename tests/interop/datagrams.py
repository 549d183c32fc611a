"""The named fields of the published datagrams, and the datagrams."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from sphtp.core import datagrams
from sphtp.core.channel import frames, handshake, path_validation, stateless_reset
from sphtp.core.channel import noise as wire
from sphtp.core.channel.frames import (
    DATA,
    Header,
    decode_data_untrusted,
    decode_frames_untrusted,
    encode_data,
)
from sphtp.core.channel.shared_memory import Rendezvous
from sphtp.core.datagrams import Kind
from sphtp.core.schema import Mismatch
from sphtp.core.secure.seal import COUNTER, TAG_SIZE
from tests.interop.translation import frame_of, name_frame

LARGEST = 65_507


def read_datagram(data: bytes) -> dict[str, Any]:
    """Read a datagram and name its fields."""
    kind, connection_id = datagrams.decode_front_untrusted(data)
    return {"kind": int(kind), "connection_id": connection_id, **DATAGRAMS[kind](data)}


def name_offer(offer: handshake.TransportParameters) -> dict[str, int]:
    return {name: getattr(offer, name) for name in handshake.TransportParameters.__slots__}


def read_data(data: bytes) -> dict[str, Any]:
    head = decode_data_untrusted(data)
    frames = decode_frames_untrusted(data, DATA.size)
    named = [name_frame(frame) for frame in frames]
    numbers = {"sequence": head.sequence, "ack": head.ack, "ack_bits": head.ack_bits}
    return {**numbers, "frames": named}


def read_connect(data: bytes) -> dict[str, Any]:
    connect = handshake.decode_connect_untrusted(data)
    offer = name_offer(connect.offer)
    numbers = {"token": connect.token, "wanted": connect.wanted}
    rendezvous = name_rendezvous(connect.rendezvous)
    return {**numbers, "offer": offer, "digests": list(connect.digests), **rendezvous}


def read_accept(data: bytes) -> dict[str, Any]:
    accept = handshake.decode_accept_untrusted(data)
    rendezvous = name_rendezvous(accept.rendezvous)
    return {"token": accept.token, "offer": name_offer(accept.offer), **rendezvous}


def name_rendezvous(rendezvous: Rendezvous | None) -> dict[str, Any]:
    return {} if rendezvous is None else {"rendezvous": rendezvous._asdict()}


def rendezvous_of(named: dict[str, Any]) -> Rendezvous | None:
    return Rendezvous(**named["rendezvous"]) if "rendezvous" in named else None


def read_refuse(data: bytes) -> dict[str, Any]:
    refuse = handshake.decode_refuse_untrusted(data)
    mismatch = asdict(refuse.mismatch) if refuse.mismatch else {}
    return {"token": refuse.token, "reason": refuse.reason, **mismatch}


def read_greet(data: bytes) -> dict[str, Any]:
    return name_bytes(wire.decode_greet_untrusted(data))


def read_cookie(data: bytes) -> dict[str, Any]:
    answer = wire.decode_answer_untrusted(data)
    return {"token": answer.token, "cookie": answer.content.hex()}


def read_welcome(data: bytes) -> dict[str, Any]:
    return name_bytes(wire.decode_answer_untrusted(data))


def read_confirm(data: bytes) -> dict[str, Any]:
    return name_bytes(wire.decode_confirm_untrusted(data))


def read_sealed(data: bytes) -> dict[str, Any]:
    """Name what is seen without a key."""
    (counter,) = COUNTER.unpack_from(data, datagrams.FRONT.size)
    sealed = data[datagrams.FRONT.size + COUNTER.size :]
    ciphertext, tag = sealed[:-TAG_SIZE], sealed[-TAG_SIZE:]
    return {"counter": counter, "ciphertext": ciphertext.hex(), "tag": tag.hex()}


def read_reset(data: bytes) -> dict[str, Any]:
    return {"proof": stateless_reset.decode_reset_untrusted(data).hex()}


def read_path(data: bytes) -> dict[str, Any]:
    return {"nonce": path_validation.decode_path_untrusted(data)}


def name_bytes(fields: NamedTuple) -> dict[str, Any]:
    named = fields._asdict()
    return {key: value.hex() if isinstance(value, bytes) else value for key, value in named.items()}


DATAGRAMS: dict[Kind, Callable[[bytes], dict[str, Any]]] = {
    Kind.DATA: read_data,
    Kind.CONNECT: read_connect,
    Kind.ACCEPT: read_accept,
    Kind.REFUSE: read_refuse,
    Kind.GREET: read_greet,
    Kind.COOKIE: read_cookie,
    Kind.WELCOME: read_welcome,
    Kind.CONFIRM: read_confirm,
    Kind.SEALED: read_sealed,
    Kind.RESET: read_reset,
    Kind.CHALLENGE: read_path,
    Kind.RESPONSE: read_path,
}


def write_datagram(named: dict[str, Any]) -> bytes:
    """Write a datagram of these named fields."""
    kind, to = Kind(named["kind"]), named["connection_id"]
    return WRITERS[kind](kind, to, named)


def write_data(_: Kind, to: int, named: dict[str, Any]) -> bytes:
    head = Header(named["sequence"], named["ack"], named["ack_bits"])
    return encode_data(to, head) + frames.encode_frames(map(frame_of, named["frames"]))


def write_connect(_: Kind, __: int, named: dict[str, Any]) -> bytes:
    offer, digests = handshake.TransportParameters(**named["offer"]), tuple(named["digests"])
    rendezvous = rendezvous_of(named)
    connect = handshake.Connect(
        named["token"], named["wanted"], offer, digests, rendezvous=rendezvous
    )
    return handshake.encode_connect(connect)


def write_accept(_: Kind, to: int, named: dict[str, Any]) -> bytes:
    offer = handshake.TransportParameters(**named["offer"])
    accept = handshake.Accept(named["token"], offer, rendezvous_of(named))
    return handshake.encode_accept(to, accept)


def write_refuse(_: Kind, to: int, named: dict[str, Any]) -> bytes:
    said = {name: named[name] for name in Mismatch.__slots__ if name in named}
    mismatch = Mismatch(**said) if said else None
    refuse = handshake.Refuse(named["token"], named["reason"], mismatch)
    return handshake.encode_refuse(to, refuse, LARGEST)


def write_greet(_: Kind, __: int, named: dict[str, Any]) -> bytes:
    cookie, noise = bytes.fromhex(named["cookie"]), bytes.fromhex(named["noise"])
    greet = wire.Greet(named["opener"], named["token"], named["pattern"], cookie, noise)
    return wire.encode_greet(greet)


def write_answer(kind: Kind, to: int, named: dict[str, Any]) -> bytes:
    content = named["cookie" if kind is Kind.COOKIE else "content"]
    return wire.encode_answer(kind, to, wire.Answer(named["token"], bytes.fromhex(content)))


def write_confirm(_: Kind, __: int, named: dict[str, Any]) -> bytes:
    noise = bytes.fromhex(named["noise"])
    return wire.encode_confirm(wire.Confirm(named["opener"], named["token"], noise))


def write_sealed(kind: Kind, to: int, named: dict[str, Any]) -> bytes:
    sealed = bytes.fromhex(named["ciphertext"] + named["tag"])
    return datagrams.encode_front(kind, to) + COUNTER.pack(named["counter"]) + sealed


def write_reset(_: Kind, to: int, named: dict[str, Any]) -> bytes:
    return stateless_reset.encode_reset(to, bytes.fromhex(named["proof"]))


def write_path(kind: Kind, to: int, named: dict[str, Any]) -> bytes:
    return path_validation.encode_path(kind, to, named["nonce"])


WRITERS: dict[Kind, Callable[[Kind, int, dict[str, Any]], bytes]] = {
    Kind.DATA: write_data,
    Kind.CONNECT: write_connect,
    Kind.ACCEPT: write_accept,
    Kind.REFUSE: write_refuse,
    Kind.GREET: write_greet,
    Kind.COOKIE: write_answer,
    Kind.WELCOME: write_answer,
    Kind.CONFIRM: write_confirm,
    Kind.SEALED: write_sealed,
    Kind.RESET: write_reset,
    Kind.CHALLENGE: write_path,
    Kind.RESPONSE: write_path,
}
