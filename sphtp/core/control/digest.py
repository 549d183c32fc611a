"""Two lists compared without sending either: a count and an exclusive or of fingerprints."""

from hashlib import sha256

from sphtp.core.control.fields import Digest
from sphtp.core.control.introductions import encoding_of
from sphtp.core.control.records import PeerRecord


def fingerprint(record: PeerRecord) -> int:
    """Return the first 8 bytes, little-endian, of the SHA-256 of the record as it travels."""
    return int.from_bytes(sha256(encoding_of(record).peer).digest()[:8], "little")


class Fingerprints:
    """The fingerprints of a list that changes, and their digest at any moment."""

    __slots__ = ("_by_id", "_mix")

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[PeerRecord, int]] = {}
        self._mix = 0

    def put(self, record: PeerRecord) -> None:
        """Add a record, or replace the one with the same id."""
        known = self._by_id.get(record.id)
        if known is not None and (known[0] is record or known[0] == record):
            return
        self.drop(record.id)
        mark = fingerprint(record)
        self._by_id[record.id] = record, mark
        self._mix ^= mark

    def drop(self, number: int) -> None:
        """Take out the record of this id, if it is in."""
        known = self._by_id.pop(number, None)
        if known is not None:
            self._mix ^= known[1]

    def __contains__(self, number: int) -> bool:
        return number in self._by_id

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all records."""
        return frozenset(self._by_id)

    @property
    def digest(self) -> Digest:
        """Count and exclusive or."""
        return Digest(len(self._by_id), self._mix)
