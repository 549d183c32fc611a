"""The packet header of the seed, behind the front of a DATA datagram.

version and kind u8, receiver's connection id u32, sequence u16, ack u16, ack_bits u32, then frames
"""

import struct
from typing import NamedTuple

from sphtp.core.channel.frames import ACK_DELAY_OVERHEAD
from sphtp.core.front import VERSION, Kind
from sphtp.errors import RemoteError

# Room for the header and for any frame that a connection itself has to say.
SMALLEST_DATAGRAM = 256

DATA = struct.Struct("<BIHHI")

# What a packet has beside the frames of its load, at most: the header, and how late its ack is.
OVERHEAD = DATA.size + ACK_DELAY_OVERHEAD


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


DATA_FIRST = VERSION << 4 | Kind.DATA
SEALED_FIRST = bytes([VERSION << 4 | Kind.SEALED])
