"""What a client knows of another client."""

from dataclasses import dataclass
from typing import Any, Self

import msgpack

from sphtp.core.control.records import PeerRecord
from sphtp.core.row import Address


@dataclass(frozen=True, slots=True)
class Peer:
    """A client of the same cluster, as the servers introduce it."""

    id: int
    data: Any
    """What it told about itself; None when it told nothing, or nothing that is msgpack.

    It comes a moment after the peer itself, so it is None at first.
    """
    addresses: tuple[Address, ...]
    """Where its channels may be dialled."""
    nonce: int
    """Tells this holder of the id from earlier and later ones."""
    key: bytes = b""
    """Its public key, 32 bytes; nothing when it told none."""
    topics: tuple[str, ...] = ()
    """The topics of its sources. Like ``data``, they come a moment after the peer itself."""

    @classmethod
    def from_record(cls, record: PeerRecord) -> Self:
        """Read a record of the roster."""
        addresses = tuple((candidate.host, candidate.port) for candidate in record.candidates)
        data = _decode(record.data)
        return cls(record.id, data, addresses, record.nonce, record.key, record.topics)


def _decode(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False) if data else None
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
