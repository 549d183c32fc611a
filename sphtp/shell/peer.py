"""A peer as the servers introduce it to a client."""

from dataclasses import dataclass, field
from typing import Any, Self

from sphtp.core.control.records import PeerRecord
from sphtp.core.datagrams import Address
from sphtp.core.packing import MALFORMED, unpack


@dataclass(frozen=True, slots=True)
class Peer:
    """A client of the same cluster, as the servers introduce it."""

    id: int
    packed: bytes = field(repr=False)
    """Its data as msgpack; empty at first, for data come a moment later."""
    addresses: tuple[Address, ...]
    """The addresses at which its channels may be dialled."""
    nonce: int
    """A number that distinguishes this holder of the id from earlier and later ones."""
    key: bytes = b""
    """Its public key, 32 bytes; nothing when it told none."""
    topics: tuple[str, ...] = ()
    """The topics of its sources. Like ``data``, they come a moment after the peer itself."""
    _unpacked: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def data(self) -> Any:
        """Its data, unpacked; None when there are none, or none that are msgpack.

        It comes a moment after the peer itself, so it is None at first.
        """
        # Whoever changes its data a hundred times a second costs those who do not look nothing.
        if not self._unpacked:
            self._unpacked.append(_decode(self.packed))
        return self._unpacked[0]

    @classmethod
    def from_record(cls, record: PeerRecord) -> Self:
        """Read a record of the roster."""
        addresses = tuple((candidate.host, candidate.port) for candidate in record.candidates)
        return cls(record.id, record.data, addresses, record.nonce, record.key, record.topics)


def _decode(data: bytes) -> Any:
    try:
        return unpack(data) if data else None
    except MALFORMED:
        return None
