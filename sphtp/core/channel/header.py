"""The front of every datagram, and the packet header of the seed.

version and kind u8, receiver's connection id u32                     every datagram
sequence u16, ack u16, ack_bits u32                                   DATA only, then frames

From GREET on the kinds are those of sealed channels: see ``sphtp.core.channel.gate.wire``.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from sphtp.core.channel.frames import ACK_DELAY_OVERHEAD
from sphtp.errors import RemoteError

VERSION = 1

# Room for the header and for any frame that a connection itself has to say.
SMALLEST_DATAGRAM = 256

FRONT = struct.Struct("<BI")
DATA = struct.Struct("<BIHHI")


# What a packet has beside the frames of its load, at most: the header, and how late its ack is.
OVERHEAD = DATA.size + ACK_DELAY_OVERHEAD


class Kind(IntEnum):
    """The low four bits of a datagram's first byte."""

    DATA = 0
    CONNECT = 1
    ACCEPT = 2
    REFUSE = 3
    GREET = 4
    COOKIE = 5
    WELCOME = 6
    CONFIRM = 7
    SEALED = 8
    RESET = 9
    CHALLENGE = 10
    RESPONSE = 11


class Header(NamedTuple):
    """The seed's header. Bit n of ``ack_bits`` acks packet ``ack - n``; bit 0 is ``ack`` itself."""

    sequence: int
    ack: int
    ack_bits: int


def encode_front(kind: Kind, connection_id: int) -> bytes:
    """Start a datagram that is not DATA."""
    return FRONT.pack(VERSION << 4 | kind, connection_id)


def decode_front_untrusted(datagram: bytes) -> tuple[Kind, int]:
    """Return the kind of a datagram and the connection id of its receiver."""
    if len(datagram) < FRONT.size:
        raise RemoteError(f"a datagram of {len(datagram)} bytes has no front")
    first, connection_id = FRONT.unpack_from(datagram)
    if first >> 4 != VERSION:
        raise RemoteError(f"version {first >> 4} is not ours")
    if first & 0x0F not in KINDS:
        raise RemoteError(f"no datagram is of kind {first & 0x0F}")
    return KINDS[first & 0x0F], connection_id


def encode_data(connection_id: int, header: Header) -> bytes:
    """Start a DATA datagram; frames follow."""
    return DATA.pack(DATA_FIRST, connection_id, *header)


def decode_data_untrusted(datagram: bytes) -> Header:
    """Read the header of a DATA datagram; its frames start at ``DATA.size``."""
    if len(datagram) < DATA.size:
        raise RemoteError(f"a DATA datagram of {len(datagram)} bytes has no header")
    return Header(*DATA.unpack_from(datagram)[2:])


DATA_FIRST = VERSION << 4 | Kind.DATA
SEALED_FIRST = bytes([VERSION << 4 | Kind.SEALED])
KINDS = {kind.value: kind for kind in Kind}
