"""What a packet is made of: the seed's header, then frames, each a kind byte and its fields.

version and kind u8, receiver's connection id u32, sequence u16, ack u16, ack_bits u32, then frames

Here are header, frames and their layouts; ``framing`` encodes and decodes frames.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from sphtp.core.front import VERSION, Kind
from sphtp.errors import RemoteError

MAX_MESSAGES_PER_FRAME = 65_535
MAX_CLOSE_TEXT = 120


# Fragments are views of what they were cut from, and copied once, into packet or message.
Buffer = bytes | memoryview


class FrameKind(IntEnum):
    """The first byte of a frame."""

    MESSAGES = 1
    FRAGMENT = 2
    UNRELIABLE = 3
    PING = 4
    CLOSE = 5
    RUN = 6
    CREDIT = 7
    SKIP = 8
    PADDING = 9
    ACK_DELAY = 10


# kind u8, lane u8, first id u16, count u16; a RUN adds the length u16 that all its messages have.
MESSAGES_LAYOUT = struct.Struct("<BBHH")
RUN_LAYOUT = struct.Struct("<BBHHH")
# kind u8, lane u8, id u16, offset u32, total u32, length u16
FRAGMENT_LAYOUT = struct.Struct("<BBHIIH")
# kind u8, lane u8, first id u16, count u16
UNRELIABLE_LAYOUT = struct.Struct("<BBHH")
# kind u8, delay u16 in units of 100 microseconds
ACK_DELAY_LAYOUT = struct.Struct("<BH")
# kind u8, reason u8, length of text u8
CLOSE_LAYOUT = struct.Struct("<BBB")

# kind u8, lane u8, id u16, size u32
SKIP_LAYOUT = struct.Struct("<BBHI")
# kind u8, messages u32, bytes u64
CREDIT_LAYOUT = struct.Struct("<BIQ")

# What a frame costs beside its payloads.
MESSAGES_OVERHEAD = MESSAGES_LAYOUT.size
RUN_OVERHEAD = RUN_LAYOUT.size
FRAGMENT_OVERHEAD = FRAGMENT_LAYOUT.size
UNRELIABLE_OVERHEAD = UNRELIABLE_LAYOUT.size
CREDIT_OVERHEAD = CREDIT_LAYOUT.size
SKIP_OVERHEAD = SKIP_LAYOUT.size
ACK_DELAY_OVERHEAD = ACK_DELAY_LAYOUT.size

# Room for the header and for any frame that a connection itself has to say.
SMALLEST_DATAGRAM = 256

DATA = struct.Struct("<BIHHI")
DATA_FIRST = VERSION << 4 | Kind.DATA
SEALED_FIRST = bytes([VERSION << 4 | Kind.SEALED])

# What a packet has beside the frames of its load, at most: the header, and how late its ack is.
OVERHEAD = DATA.size + ACK_DELAY_OVERHEAD

# Delays are told in steps of this many seconds, and a longer one than fits as the longest.
DELAY_STEP = 1e-4
LONGEST_DELAY = 65_535 * DELAY_STEP


class Header(NamedTuple):
    """The seed's header. Bit n of ``ack_bits`` acks packet ``ack - n``; bit 0 is ``ack`` itself."""

    sequence: int
    ack: int
    ack_bits: int


def encode_data(connection_id: int, header: Header) -> bytes:
    """Start a DATA datagram; frames follow."""
    return DATA.pack(DATA_FIRST, connection_id, *header)


def decode_data_untrusted(datagram: bytes) -> Header:
    """Read the header of a DATA datagram; its frames start at ``DATA.size``."""
    if len(datagram) < DATA.size:
        raise RemoteError(f"a DATA datagram of {len(datagram)} bytes has no header")
    return Header(*DATA.unpack_from(datagram)[2:])


# These two are not frozen as the others are: most packets are made of them, and making one would
# take twice as long.
@dataclass(slots=True)
class Messages:
    """Whole reliable messages of a lane with consecutive ids; ``first_id`` is cut to 16 bits.

    ``lane`` is a lane's number, with ``FLAG`` set where its messages need not be in order.
    """

    lane: int
    first_id: int
    payloads: Sequence[bytes]


@dataclass(slots=True)
class Fragment:
    """The bytes from ``offset`` on of one reliable message of ``total`` bytes."""

    lane: int
    message_id: int
    offset: int
    total: int
    payload: Buffer


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing comes under this id of a lane: a message of ``size`` bytes was given up."""

    lane: int
    message_id: int
    size: int


@dataclass(frozen=True, slots=True)
class Unreliable:
    """Messages of a lane that are sent once; their ids only tell which of two is the later one."""

    lane: int
    first_id: int
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for an ack and says nothing."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Fills the rest of a packet: a probe of how large packets can be. Asks for an ack."""

    size: int


@dataclass(frozen=True, slots=True)
class Credit:
    """How many reliable messages, and bytes in them, the peer may have sent since the opening.

    ``messages`` is cut to 32 bits.
    """

    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class AckDelay:
    """How long, in seconds, the packet that the header acks has been here. Asks for no ack."""

    delay: float


@dataclass(frozen=True, slots=True)
class Close:
    """The last frame of a side that leaves: why, in one byte and in a few words."""

    reason: int
    text: str


CONTENT: Final = (Messages, Fragment, Skip, Unreliable)
RELIABLE: Final = (Messages, Fragment, Skip)
"""What carries messages; ``isinstance`` is several times as slow with a union."""

Frame = Messages | Fragment | Skip | Unreliable | Ping | Padding | Credit | AckDelay | Close


def asks_for_ack(frames: Sequence[Frame]) -> bool:
    """Whether a packet with these frames asks for an ack."""
    return len(frames) > 1 or (len(frames) == 1 and type(frames[0]) is not AckDelay)
