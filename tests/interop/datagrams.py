"""The named fields of the published datagrams, and the datagrams."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sphtp.core.channel import framing, handshake, header
from sphtp.core.schema import Mismatch
from tests.interop.translation import frame_of, name_frame

LARGEST = 65_507


def read_datagram(data: bytes) -> dict[str, Any]:
    """Read a datagram and name its fields."""
    kind, connection_id = header.decode_front_untrusted(data)
    return {"kind": int(kind), "connection_id": connection_id, **DATAGRAMS[kind](data)}


def name_offer(offer: handshake.Offer) -> dict[str, int]:
    return {name: getattr(offer, name) for name in handshake.Offer.__slots__}


def read_data(data: bytes) -> dict[str, Any]:
    head = header.decode_data_untrusted(data)
    frames = framing.decode_frames_untrusted(data, header.DATA.size)
    named = [name_frame(frame) for frame in frames]
    numbers = {"sequence": head.sequence, "ack": head.ack, "ack_bits": head.ack_bits}
    return {**numbers, "frames": named}


def read_connect(data: bytes) -> dict[str, Any]:
    connect = handshake.decode_connect_untrusted(data)
    offer = name_offer(connect.offer)
    numbers = {"token": connect.token, "wanted": connect.wanted}
    return {**numbers, "offer": offer, "digests": list(connect.digests)}


def read_accept(data: bytes) -> dict[str, Any]:
    accept = handshake.decode_accept_untrusted(data)
    return {"token": accept.token, "offer": name_offer(accept.offer)}


def read_refuse(data: bytes) -> dict[str, Any]:
    refuse = handshake.decode_refuse_untrusted(data)
    mismatch = asdict(refuse.mismatch) if refuse.mismatch else {}
    return {"token": refuse.token, "reason": refuse.reason, **mismatch}


DATAGRAMS: dict[header.Kind, Callable[[bytes], dict[str, Any]]] = {
    header.Kind.DATA: read_data,
    header.Kind.CONNECT: read_connect,
    header.Kind.ACCEPT: read_accept,
    header.Kind.REFUSE: read_refuse,
}


def write_datagram(named: dict[str, Any]) -> bytes:
    kind, to = named["kind"], named["connection_id"]
    if kind == header.Kind.DATA:
        head = header.Header(named["sequence"], named["ack"], named["ack_bits"])
        body = framing.encode_frames(map(frame_of, named["frames"]))
        return header.encode_data(to, head) + body
    if kind == header.Kind.REFUSE:
        said = {name: named[name] for name in Mismatch.__slots__ if name in named}
        mismatch = Mismatch(**said) if said else None
        refuse = handshake.Refuse(named["token"], named["reason"], mismatch)
        return handshake.encode_refuse(to, refuse, LARGEST)
    offer = handshake.Offer(**named["offer"])
    if kind == header.Kind.ACCEPT:
        return handshake.encode_accept(to, handshake.Accept(named["token"], offer))
    digests = tuple(named["digests"])
    connect = handshake.Connect(named["token"], named["wanted"], offer, digests)
    return handshake.encode_connect(connect)
