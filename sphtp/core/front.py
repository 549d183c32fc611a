"""The front of every datagram behind a node's socket: version and kind, and whom it is for.

version and kind u8, id u32

Of a channel the id is the receiver's connection id; of a stream it is the session's.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

from sphtp.errors import RemoteError

VERSION: Final = 1
FRONT: Final = Struct("<BI")


class Kind(IntEnum):
    """The low four bits of a datagram's first byte."""

    # Channels: sphtp.core.channel.frames, and from GREET on sphtp.core.channel.noise.
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
    # Streams: sphtp.core.stream.wire.
    STREAM = 12
    FEEDBACK = 13


KINDS: Final = {kind.value: kind for kind in Kind}


def encode_front(kind: Kind, to: int) -> bytes:
    """Start a datagram of a kind to an id."""
    return FRONT.pack(VERSION << 4 | kind, to)


def decode_front_untrusted(datagram: bytes) -> tuple[Kind, int]:
    """Return the kind of a datagram, and the id that it is for."""
    if len(datagram) < FRONT.size:
        raise RemoteError(f"a datagram of {len(datagram)} bytes has no front")
    first, to = FRONT.unpack_from(datagram)
    if first >> 4 != VERSION:
        raise RemoteError(f"version {first >> 4} is not ours")
    if first & 0x0F not in KINDS:
        raise RemoteError(f"no datagram is of kind {first & 0x0F}")
    return KINDS[first & 0x0F], to
