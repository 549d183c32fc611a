"""Opening a channel in the clear: CONNECT, ACCEPT, REFUSE.

A CONNECT is padded to be longer than any answer, so that a forged source address gains nothing by
it. The opener's token is echoed, so that an answer to an older attempt is told from one to this.
"""

from dataclasses import dataclass
from enum import IntEnum

from sphtp.core.channel.frames import SMALLEST_DATAGRAM
from sphtp.core.front import FRONT, Kind, encode_front
from sphtp.core.schema import Mismatch
from sphtp.core.wire import Reader, Writer
from sphtp.errors import RemoteError, untrusted

CONNECT_SIZE = 64
# What stands before the digests of a CONNECT, and before the line of a REFUSE.
CONNECT_HEAD = 48
REFUSE_HEAD = 26
MOST_DIGESTS = 255
CUT = b"..."


class Refusal(IntEnum):
    """Why a CONNECT was refused; or, GONE or SCHEMA, an ACCEPT to an attempt that is over."""

    FULL = 1
    WRONG_PEER = 2
    GONE = 3
    SCHEMA = 4
    VERSION = 5
    SEALED = 6
    CLEAR = 7
    DENIED = 8


class Objection(IntEnum):
    """Why this side itself does not take an answer; no REFUSE has room for these numbers."""

    IMPOSTOR = 256


@dataclass(frozen=True, slots=True)
class TransportParameters:
    """What one side says of itself when a channel opens.

    ``peer_id`` is its id in the cluster, 0 when it has none. ``first_sequence`` is the first packet
    sequence and the first message id that it will use; ``receive_buffer`` how many messages it can
    buffer, ``receive_buffer_bytes`` how many bytes in them; ``max_datagram`` and ``max_message``
    the largest it takes, in bytes. ``schema_hash`` stands for the types of its messages, 0 for
    none.
    """

    connection_id: int
    peer_id: int
    first_sequence: int
    receive_buffer: int
    receive_buffer_bytes: int
    max_datagram: int
    max_message: int
    schema_hash: int = 0


@dataclass(frozen=True, slots=True)
class Connect:
    """Asks for a channel; ``wanted`` is the cluster id of the peer meant, 0 for anybody.

    ``digests`` stand for the types of messages one by one. ``size`` is that of the datagram, in
    bytes: the room that an answer has.
    """

    token: int
    wanted: int
    offer: TransportParameters
    digests: tuple[int, ...] = ()
    size: int = CONNECT_SIZE


@dataclass(frozen=True, slots=True)
class Accept:
    """Grants a channel; ``token`` is the opener's."""

    token: int
    offer: TransportParameters


@dataclass(frozen=True, slots=True)
class Refuse:
    """Denies a channel, or declines one that was granted; ``token`` is the opener's.

    With SCHEMA it says what differs.
    """

    token: int
    reason: int
    mismatch: Mismatch | None = None


def encode_connect(connect: Connect) -> bytes:
    """Encode a CONNECT; it is addressed to connection id 0, for the other's is not yet known.

    As many digests are in it as there is room for.
    """
    writer = Writer().raw(encode_front(Kind.CONNECT, 0)).u64(connect.token).u32(connect.wanted)
    _write_offer(writer, connect.offer)
    digests = connect.digests[: min(MOST_DIGESTS, (connect.size - CONNECT_HEAD) // 4)]
    writer.u8(len(digests))
    for digest in digests:
        writer.u32(digest)
    return writer.finish().ljust(connect.size, b"\0")


@untrusted
def decode_connect_untrusted(datagram: bytes) -> Connect:
    """Decode a CONNECT; a short one is refused, for its answer could be the longer."""
    if len(datagram) < CONNECT_SIZE:
        raise RemoteError(f"a CONNECT of {len(datagram)} bytes is not padded")
    reader = _body(datagram)
    token, wanted, offer = reader.u64(), reader.u32(), _read_offer(reader)
    digests = tuple(reader.u32() for _ in range(reader.u8()))
    return Connect(token, wanted, offer, digests, len(datagram))


def encode_accept(to: int, accept: Accept) -> bytes:
    """Encode an ACCEPT to the opener's connection id."""
    writer = Writer().raw(encode_front(Kind.ACCEPT, to)).u64(accept.token)
    _write_offer(writer, accept.offer)
    return writer.finish()


@untrusted
def decode_accept_untrusted(datagram: bytes) -> Accept:
    """Decode an ACCEPT."""
    reader = _body(datagram)
    accept = Accept(reader.u64(), _read_offer(reader))
    reader.finish()
    return accept


def encode_refuse(to: int, refuse: Refuse, room: int = CONNECT_SIZE) -> bytes:
    """Encode a REFUSE to the connection id of who sent CONNECT or ACCEPT, in ``room`` bytes."""
    writer = Writer().raw(encode_front(Kind.REFUSE, to)).u64(refuse.token).u8(refuse.reason)
    if refuse.mismatch is not None:
        mismatch = refuse.mismatch
        writer.u64(mismatch.schema_hash).u32(mismatch.digest)
        writer.raw(_cut(mismatch.line.encode(), room - REFUSE_HEAD))
    return writer.finish()


@untrusted
def decode_refuse_untrusted(datagram: bytes) -> Refuse:
    """Decode a REFUSE."""
    reader = _body(datagram)
    token, reason = reader.u64(), reader.u8()
    mismatch = _read_mismatch(reader) if reason == Refusal.SCHEMA else None
    reader.finish()
    return Refuse(token, reason, mismatch)


def _body(datagram: bytes) -> Reader:
    return Reader(memoryview(datagram)[FRONT.size :])


def _write_offer(writer: Writer, offer: TransportParameters) -> None:
    writer.u32(offer.connection_id).u32(offer.peer_id).u16(offer.first_sequence)
    writer.u16(offer.receive_buffer).u32(offer.receive_buffer_bytes)
    writer.u16(offer.max_datagram).u32(offer.max_message).u64(offer.schema_hash)


def _read_offer(reader: Reader) -> TransportParameters:
    offer = TransportParameters(
        connection_id=reader.u32(),
        peer_id=reader.u32(),
        first_sequence=reader.u16(),
        receive_buffer=reader.u16(),
        receive_buffer_bytes=reader.u32(),
        max_datagram=reader.u16(),
        max_message=reader.u32(),
        schema_hash=reader.u64(),
    )
    if not (offer.connection_id and offer.receive_buffer and offer.max_message):
        raise RemoteError("an offer of nothing")
    if offer.max_datagram < SMALLEST_DATAGRAM:
        raise RemoteError(f"datagrams of {offer.max_datagram} bytes are too small")
    return offer


def _cut(line: bytes, room: int) -> bytes:
    return line if len(line) <= room else line[: room - len(CUT)] + CUT


def _read_mismatch(reader: Reader) -> Mismatch:
    # The line may have been cut within a character.
    return Mismatch(reader.u64(), reader.u32(), reader.rest().decode("utf-8", "replace"))
