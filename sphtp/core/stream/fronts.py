"""How the datagrams of a stream begin: whom they are for, in the clear.

STREAM     front (session u32), key u8            from the source to all receivers
FEEDBACK   front (session u32), receiver u32      from a receiver to the source
"""

from struct import Struct
from typing import Final

from sphtp.core.datagrams import VERSION, Kind
from sphtp.errors import RemoteError

STREAM_FRONT: Final = Struct("<BIB")
FEEDBACK_FRONT: Final = Struct("<BII")
_STREAM_FIRST: Final = VERSION << 4 | Kind.STREAM
_FEEDBACK_FIRST: Final = VERSION << 4 | Kind.FEEDBACK


def stream_front(session: int, key: int) -> bytes:
    """Start a datagram of the source; ``key`` numbers the key that seals it, 0 in the clear."""
    return STREAM_FRONT.pack(_STREAM_FIRST, session, key)


def feedback_front(session: int, receiver: int) -> bytes:
    """Start a datagram of a receiver."""
    return FEEDBACK_FRONT.pack(_FEEDBACK_FIRST, session, receiver)


def decode_stream_front_untrusted(datagram: bytes) -> tuple[int, int]:
    """Return session and key of a STREAM datagram; its body starts at ``STREAM_FRONT.size``."""
    if len(datagram) < STREAM_FRONT.size or datagram[0] != _STREAM_FIRST:
        raise RemoteError(f"{len(datagram)} bytes that are no STREAM datagram")
    _, session, key = STREAM_FRONT.unpack_from(datagram)
    return session, key


def decode_feedback_front_untrusted(datagram: bytes) -> tuple[int, int]:
    """Return session and receiver of a FEEDBACK; its body starts at ``FEEDBACK_FRONT.size``."""
    if len(datagram) < FEEDBACK_FRONT.size or datagram[0] != _FEEDBACK_FIRST:
        raise RemoteError(f"{len(datagram)} bytes that are no FEEDBACK datagram")
    _, session, receiver = FEEDBACK_FRONT.unpack_from(datagram)
    return session, receiver


def is_of_stream(data: bytes) -> bool:
    """Whether a datagram belongs to streams, and not to a channel."""
    return data[:1] in _FIRSTS


_FIRSTS: Final = frozenset({bytes([_STREAM_FIRST]), bytes([_FEEDBACK_FIRST])})
