"""Datagrams that pass a socket together in one buffer, and the front of each.

version and kind u8, id u32

Every datagram of a channel and of a stream begins with this front. In a channel the id is the
receiver's connection id, 0 before the sender knows it; in a stream it is the id of the session. The
messages of STUN and TURN, which pass the same socket, have no such front.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from sphtp.errors import RemoteError

VERSION: Final = 1
FRONT: Final = Struct("<BI")


class Kind(IntEnum):
    """The kind of a datagram: the low four bits of its first byte."""

    # Channels, in sphtp.core.channel: DATA in frames; CONNECT to REFUSE in handshake; GREET to
    # CONFIRM in noise; SEALED in protection; RESET in stateless_reset; the others in
    # path_validation.
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
    """Return the front of a datagram of this kind, addressed to the id ``to``."""
    return FRONT.pack(VERSION << 4 | kind, to)


def decode_front_untrusted(datagram: bytes) -> tuple[Kind, int]:
    """Return the kind of a datagram, and the id to which it is addressed.

    Raises ``RemoteError`` if it has no front, another version, or an unknown kind.
    """
    if len(datagram) < FRONT.size:
        raise RemoteError(f"a datagram of {len(datagram)} bytes has no front")
    first, to = FRONT.unpack_from(datagram)
    if first >> 4 != VERSION:
        raise RemoteError(f"version {first >> 4}; this side has version {VERSION}")
    if first & 0x0F not in KINDS:
        raise RemoteError(f"no datagram is of kind {first & 0x0F}")
    return KINDS[first & 0x0F], to


Address = tuple[str, int]
"""The host and the UDP port of a socket."""

RELAYED: Final = "%relay"
"""The end of the host in the address of a peer behind this node's relay (``core.nat``)."""

MOST_DATAGRAMS: Final = 64
MOST_BYTES: Final = 65_000
"""The most datagrams, and bytes in them, that one system call sends."""

MOST_PLAIN: Final = MOST_BYTES - 32 * MOST_DATAGRAMS
"""The same bytes, less 32 for each datagram, which are more than sealing adds."""


class Datagrams(NamedTuple):
    """A row of datagrams from or to one address, of ``size`` bytes each; the last may be shorter.

    With the offloads of Linux, one system call sends or receives all of them, which costs little
    more than a single one.
    """

    address: Address
    data: bytes
    size: int

    @property
    def number(self) -> int:
        """The number of datagrams; 1 if ``data`` is empty, for one empty datagram."""
        return -(-len(self.data) // self.size) if self.data else 1

    @property
    def is_whole(self) -> bool:
        """True if the last datagram is as large as the others."""
        return len(self.data) % self.size == 0

    @property
    def datagrams(self) -> list[bytes]:
        """The datagrams as a list."""
        cuts = range(0, len(self.data) or 1, self.size)
        return [self.data[cut : cut + self.size] for cut in cuts]

    @classmethod
    def of(cls, address: Address, datagram: bytes) -> "Datagrams":
        """Return a row of one datagram."""
        return cls(address, datagram, len(datagram) or 1)


def split_by_front(row: Datagrams, width: int) -> Iterator[Datagrams]:
    """Split a row into rows whose datagrams begin with the same ``width`` bytes."""
    address, data, size = row
    front, first = data[:width], 0
    for start in range(size, len(data), size):
        if data[start : start + width] != front:
            yield Datagrams(address, data[first:start], size)
            front, first = data[start : start + width], start
    yield row if first == 0 else Datagrams(address, data[first:], size)
