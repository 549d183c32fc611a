"""A second decoder of the channel's bytes, written from docs/reference/wire alone.

It shares no code with the project: only the standard library, and the page. Whatever the page tells
a receiver to drop by looking at the bytes alone raises `Malformed`; what depends on what came
before (too old, no such connection, no room) is no business of a decoder. Field names are the
page's; bytes become hex text, as in the `fields` of its examples. The control plane is in
`second_reader_control`, and what takes keys in `second_reader_sealed`.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any

Fields = dict[str, Any]

VERSION = 1
LARGEST_DATAGRAM = 65507
SMALLEST_MAX_DATAGRAM = 256
ACK_SPAN = 32


class Malformed(Exception):  # noqa: N818 - the page's own word
    """These bytes are to be dropped."""


def demand(condition: bool, why: str) -> None:
    """Raise `Malformed` unless the condition holds."""
    if not condition:
        raise Malformed(why)


class Cursor:
    """A place in some bytes; reading beyond their end is `Malformed`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """Read that many bytes."""
        demand(size <= self.left, f"cut off: {size} bytes wanted, {self.left} there")
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self) -> bytes:
        """Read whatever is left."""
        return self.take(self.left)

    def end(self) -> None:
        """Demand that everything was read."""
        demand(self.left == 0, f"{self.left} bytes too many")

    def u8(self) -> int:
        """Read a number of one byte."""
        return int.from_bytes(self.take(1), "little")

    def u16(self) -> int:
        """Read a little-endian number of two bytes."""
        return int.from_bytes(self.take(2), "little")

    def u32(self) -> int:
        """Read a little-endian number of four bytes."""
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        """Read a little-endian number of eight bytes."""
        return int.from_bytes(self.take(8), "little")


Read = Callable[[Cursor], Any]
Decoder = Callable[[Cursor], Fields]


def record(**types: Read) -> Decoder:
    """Make a decoder of these fields, in this order."""
    return lambda cursor: {name: read(cursor) for name, read in types.items()}


def checked(read: Callable[[Cursor], int], good: Callable[[int], bool], why: str) -> Read:
    """Make a reader of a number that has bounds."""

    def bounded(cursor: Cursor) -> int:
        number = read(cursor)
        demand(good(number), f"{number}: {why}")
        return number

    return bounded


# Frames.


FIRST = {"lane": Cursor.u8, "first_id": Cursor.u16}


def _count(cursor: Cursor) -> int:
    count = cursor.u16()
    demand(count > 0, "one payload at least")
    return count


def _messages(cursor: Cursor) -> Fields:
    fields = record(**FIRST)(cursor)
    lengths = [cursor.u16() for _ in range(_count(cursor))]
    return {**fields, "payloads": [cursor.take(length).hex() for length in lengths]}


def _run(cursor: Cursor) -> Fields:
    fields = record(**FIRST)(cursor)
    count, length = _count(cursor), cursor.u16()
    return {**fields, "payloads": [cursor.take(length).hex() for _ in range(count)]}


def _fragment(cursor: Cursor) -> Fields:
    fields = FRAGMENT(cursor)
    payload = cursor.take(cursor.u16())
    demand(len(payload) > 0, "one byte at least")
    demand(fields["offset"] + len(payload) <= fields["total"], "none beyond the total")
    return {**fields, "payload": payload.hex()}


def _padding(cursor: Cursor) -> Fields:
    return {"size": 1 + len(cursor.rest())}


def _lenient_text(cursor: Cursor) -> str:
    return cursor.take(cursor.u8()).decode("utf-8", errors="replace")


def _rest_of_text(cursor: Cursor) -> str:
    return cursor.rest().decode("utf-8", errors="replace")


FRAGMENT = record(lane=Cursor.u8, message_id=Cursor.u16, offset=Cursor.u32, total=Cursor.u32)

RELIABLE = (1, 6)

FRAMES: dict[int, Decoder] = {
    1: _messages,  # MESSAGES
    2: _fragment,  # FRAGMENT
    3: _messages,  # UNRELIABLE
    4: record(),  # PING
    5: record(reason=Cursor.u8, text=_lenient_text),  # CLOSE
    6: _run,  # RUN
    7: record(messages=Cursor.u32, bytes=Cursor.u64),  # CREDIT
    8: record(lane=Cursor.u8, message_id=Cursor.u16, size=Cursor.u32),  # SKIP
    9: _padding,  # PADDING
    10: record(delay=Cursor.u16),  # ACK_DELAY
}


def _frame(cursor: Cursor) -> Fields:
    kind = cursor.u8()
    demand(kind in FRAMES, f"there is no frame of kind {kind}")
    return {"kind": kind, **FRAMES[kind](cursor)}


def _frames(cursor: Cursor) -> list[Fields]:
    frames = []
    while cursor.left:
        frames.append(_frame(cursor))
    messages = sum(len(frame["payloads"]) for frame in frames if frame["kind"] in RELIABLE)
    demand(messages <= len(cursor.data), "no more messages than bytes")
    return frames


def read_frame(data: bytes) -> Fields:
    """Decode exactly one frame."""
    cursor = Cursor(data)
    frame = _frame(cursor)
    cursor.end()
    return frame


# Datagrams.


def _not_zero(read: Callable[[Cursor], int]) -> Read:
    return checked(read, bool, "not 0")


OFFER = record(
    connection_id=_not_zero(Cursor.u32),
    peer_id=Cursor.u32,
    first_sequence=Cursor.u16,
    receive_buffer=_not_zero(Cursor.u16),
    receive_buffer_bytes=Cursor.u32,
    max_datagram=checked(Cursor.u16, lambda size: size >= SMALLEST_MAX_DATAGRAM, "256 at least"),
    max_message=_not_zero(Cursor.u32),
    schema_hash=Cursor.u64,
)

SCHEMA = 4


def _digests(cursor: Cursor) -> list[int]:
    return [cursor.u32() for _ in range(cursor.u8())]


def _refuse(cursor: Cursor) -> Fields:
    fields = record(token=Cursor.u64, reason=Cursor.u8)(cursor)
    if fields["reason"] == SCHEMA:
        fields |= record(schema_hash=Cursor.u64, digest=Cursor.u32, line=_rest_of_text)(cursor)
    cursor.end()
    return fields


RENDEZVOUS = record(name=Cursor.u32, nonce=Cursor.u64)


def _connect(cursor: Cursor) -> Fields:
    fields = CONNECT(cursor)
    padding = Cursor(cursor.rest())
    if padding.left >= 16 and padding.take(4) == b"SMEM":
        fields["rendezvous"] = RENDEZVOUS(padding)
    return fields


def _accept(cursor: Cursor) -> Fields:
    fields = ACCEPT(cursor)
    if cursor.left:
        demand(cursor.take(4) == b"SMEM", "nothing else follows the offer")
        fields["rendezvous"] = RENDEZVOUS(cursor)
    cursor.end()
    return fields


PACKET = record(sequence=Cursor.u16, ack=Cursor.u16, ack_bits=Cursor.u32, frames=_frames)
CONNECT = record(token=Cursor.u64, wanted=Cursor.u32, offer=OFFER, digests=_digests)
ACCEPT = record(token=Cursor.u64, offer=OFFER)


# Sealed channels, as far as they are told without keys.


def _hex(size: int) -> Read:
    return lambda cursor: cursor.take(size).hex()


def _rest(cursor: Cursor) -> str:
    return cursor.rest().hex()


def _but_tag(cursor: Cursor) -> str:
    return cursor.take(cursor.left - TAG_SIZE).hex()


TAG_SIZE = 16
ATTEMPT = {"opener": _not_zero(Cursor.u32), "token": Cursor.u64}
GREET = record(**ATTEMPT, pattern=Cursor.u8, cookie=_hex(16), noise=_rest)
COOKIE = record(token=Cursor.u64, cookie=_hex(16))
WELCOME = record(token=Cursor.u64, content=_rest)
CONFIRM = record(**ATTEMPT, noise=_rest)
SEALED = record(counter=Cursor.u64, ciphertext=_but_tag, tag=_hex(TAG_SIZE))
PATH = record(nonce=Cursor.u64)

# By kind: the smallest size, the largest, and what follows the front. The rest of it is padding.
DATAGRAMS: dict[int, tuple[int, int, Decoder]] = {
    0: (13, LARGEST_DATAGRAM, PACKET),
    1: (64, LARGEST_DATAGRAM, _connect),
    2: (43, 59, _accept),
    3: (14, LARGEST_DATAGRAM, _refuse),
    4: (192, LARGEST_DATAGRAM, GREET),
    5: (29, 29, COOKIE),
    6: (13, LARGEST_DATAGRAM, WELCOME),
    7: (17, LARGEST_DATAGRAM, CONFIRM),
    8: (29, LARGEST_DATAGRAM, SEALED),
    9: (21, 21, record(proof=_hex(16))),
    10: (13, 13, PATH),
    11: (13, 13, PATH),
}


def read_datagram(data: bytes, max_datagram: int = LARGEST_DATAGRAM) -> Fields:
    """Decode a whole datagram, as one would that told its peer this `max_datagram`."""
    cursor = Cursor(data)
    version, kind = divmod(cursor.u8(), 16)
    demand(version == VERSION, f"version {version} is not ours")
    demand(kind in DATAGRAMS, f"there is no datagram of kind {kind}")
    smallest, largest, body = DATAGRAMS[kind]
    demand(smallest <= len(data) <= largest, f"a kind {kind} does not have {len(data)} bytes")
    demand(kind != 0 or len(data) <= max_datagram, "larger than we said we take")
    return {"kind": kind, "connection_id": cursor.u32(), **body(cursor)}


# Arrays in messages.

# By msgpack's first byte: how many bytes the extension has, or how many say it.
FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
ARRAY = 78
ITEM_SIZES = {"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}


def read_array(data: bytes) -> Fields:
    """Decode a msgpack value that is an array."""
    cursor = Cursor(data)
    first = cursor.u8()
    demand(first in FIXED_EXTENSIONS or first in EXTENSIONS, f"{first:02x} is no extension")
    size = FIXED_EXTENSIONS.get(first) or int.from_bytes(cursor.take(EXTENSIONS[first]), "big")
    demand(cursor.u8() == ARRAY, "an extension, and no array")
    demand(cursor.left == size, f"{size} bytes promised, {cursor.left} there")
    order, kind = (chr(byte) for byte in cursor.take(2))
    itemsize, ndim = cursor.u8(), cursor.u8()
    demand(itemsize in ITEM_SIZES.get(kind, ()), f"no {kind} of {itemsize} bytes")
    demand(order in ("|" if itemsize == 1 else "<>"), f"no order {order}")
    demand(ndim <= 32, f"{ndim} dimensions")
    shape = [cursor.u32() for _ in range(ndim)]
    items = cursor.take(math.prod(shape) * itemsize).hex()
    cursor.end()
    fields = {"order": order, "kind": kind, "itemsize": itemsize, "shape": shape}
    return {**fields, "items": items}


# Types of messages.


def schema_hash_of(lines: Iterable[str]) -> int:
    """Give the number that stands for a description; there is no description without lines."""
    return int.from_bytes(hashlib.sha256("\n".join(lines).encode()).digest()[:8], "big")


def digest_of(line: str) -> int:
    """Give the number that stands for a line."""
    return int.from_bytes(hashlib.sha256(line.encode()).digest()[:4], "big")


# Sequences and acknowledgements.


def unwrap(short: int, reference: int) -> int:
    """Restore a full number from its low 16 bits: the one nearest to the reference."""
    return reference + (short - reference + 32768) % 65536 - 32768


def read_acks(data: bytes) -> Fields:
    """Decode `ack` and `ack_bits`, side by side as in a packet."""
    cursor = Cursor(data)
    fields = record(ack=Cursor.u16, ack_bits=Cursor.u32)(cursor)
    cursor.end()
    return fields


def acked(ack: int, ack_bits: int) -> set[int]:
    """Tell which sequences were received; full ones, if `ack` is a full one."""
    return {ack - n for n in range(ACK_SPAN) if ack_bits >> n & 1}


def acks_after(first: int, received: Iterable[int]) -> tuple[int, int]:
    """Give `ack` (low 16 bits) and `ack_bits` once these (full) sequences arrived in this order."""
    highest, bits = first - 1, 0
    for sequence in received:
        ahead = sequence - highest
        if ahead > 0:
            highest = sequence
            bits = (bits << ahead if ahead < ACK_SPAN else 0) & 0xFFFFFFFF | 1
        elif ahead > -ACK_SPAN:
            bits |= 1 << -ahead
    return highest % 65536, bits
