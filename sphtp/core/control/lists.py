"""Lists: the records of clients in messages, and the digests of lists.

Keys, names, topics and groups of clients are parameters beside the records. A program that does not
decode these parameters can still decode the records.

The same record arrives many times: alone, in lists, and from every server. So a record keeps its
encoded bytes. If the bytes are equal to those of the known record with the same id, the reader uses
the known record, and decodes nothing. A server encodes each record once, too.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from sphtp.core.control.codec import (
    HOLDER_SIZE,
    MAX_PARTS,
    PEER,
    PEER_GROUPS,
    PEER_KEY,
    PEER_NAME,
    PEER_TOPICS,
    BesideField,
    Message,
    OfHolder,
    Parameter,
    Part,
    decode_record,
)
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.records import (
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_NAME_SIZE,
    MAX_NAMES_SIZE,
    MOST_PEERS,
    Digest,
    PeerRecord,
    RecordEncoding,
)
from sphtp.core.control.vocabulary import DataId

_PEER: Final = int(DataId.PEER)
_BESIDE: Final[Mapping[int, tuple[str, BesideField[Any]]]] = {
    int(field.id): (name, field)
    for name, field in (
        ("key", PEER_KEY),
        ("topics", PEER_TOPICS),
        ("name", PEER_NAME),
        ("groups", PEER_GROUPS),
    )
}
"""The fields beside a record on the wire, each with its attribute of the record."""
_NOTHING: Final[Mapping[int, bytes]] = MappingProxyType({})


def encoding_of(record: PeerRecord) -> RecordEncoding:
    """Return the encoded record. The first call encodes it, later calls return the same."""
    known = record.encoding
    if known is None:
        beside = {
            number: field.encode(OfHolder(record.id, record.nonce, value))
            for number, (name, field) in _BESIDE.items()
            if (value := getattr(record, name))
        }
        known = RecordEncoding(PEER.encode(record), beside)
        record.remember(known)
    return known


def write_records(records: Iterable[PeerRecord]) -> tuple[Parameter, ...]:
    """Encode these records as parameters of a message."""
    encodings = [encoding_of(record) for record in records]
    parameters = [Parameter(_PEER, each.peer) for each in encodings]
    for number in _BESIDE:
        parameters += [
            Parameter(number, each.beside[number]) for each in encodings if number in each.beside
        ]
    return tuple(parameters)


def read_records(message: Message, known: Mapping[int, PeerRecord]) -> tuple[PeerRecord, ...]:
    """Return the records in the message, in their order. Raises ``WireError`` if one is malformed.

    For a record with the same bytes as the ``known`` record with its id, return the known object.
    """
    peers: list[bytes] = []
    beside: dict[bytes, dict[int, bytes]] = {}
    for number, data in message.parameters:
        if number == _PEER:
            peers.append(data)
        elif number in _BESIDE:
            # If a holder has two of one kind, the first one counts, as for all parameters.
            fields = beside.setdefault(data[:HOLDER_SIZE], {})
            if fields.setdefault(number, data) is not data:
                _BESIDE[number][1].decode(data)
    records: list[PeerRecord] = []
    for data in peers:
        encoding = RecordEncoding(data, beside.get(data[:HOLDER_SIZE], _NOTHING))
        record = known.get(int.from_bytes(data[:4], "little"))
        if record is None or record.encoding != encoding:
            record = _decode(encoding)
        records.append(record)
    # Properties of holders without a record have no effect, but must be well-formed.
    for front in beside.keys() - {data[:HOLDER_SIZE] for data in peers}:
        for number, data in beside[front].items():
            _BESIDE[number][1].decode(data)
    return tuple(records)


def _decode(encoding: RecordEncoding) -> PeerRecord:
    beside = {
        _BESIDE[number][0]: _BESIDE[number][1].decode(data).value
        for number, data in encoding.beside.items()
    }
    record = decode_record(encoding.peer, **beside)
    record.remember(encoding)
    return record


def fingerprint(record: PeerRecord) -> int:
    """Return the fingerprint of a record: the first 8 bytes, little-endian, of the SHA-256 of its
    encoded ``PEER``.
    """
    return int.from_bytes(sha256(encoding_of(record).peer).digest()[:8], "little")


class Fingerprints:
    """A changing list of records, with their fingerprints and the present digest."""

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
        """Remove the record with this id, if the list has one."""
        known = self._by_id.pop(number, None)
        if known is not None:
            self._mix ^= known[1]

    def __contains__(self, number: int) -> bool:
        return number in self._by_id

    def marked(self) -> Iterable[tuple[PeerRecord, int]]:
        """Return all records, each with its fingerprint."""
        return self._by_id.values()

    def digest_of(self, number: int) -> Digest:
        """Return the digest of the record with this id alone."""
        known = self._by_id.get(number)
        return Digest(0, 0) if known is None else Digest(1, known[1])

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all records."""
        return frozenset(self._by_id)

    @property
    def digest(self) -> Digest:
        """The digest: the number of records, and the XOR of their fingerprints."""
        return Digest(len(self._by_id), self._mix)


T = TypeVar("T")

MAX_CHUNK = 60 * 1024
"""The most bytes of parameters in one message of a divided list."""

_PARAMETER_FRONT = 4
_FIXED_SIZE = 21
_CANDIDATE_SIZE = 19
_KEY_SIZE = 48
_BESIDE_FRONT = 16

MAX_RECORD_SIZE = (
    _FIXED_SIZE
    + _CANDIDATE_SIZE * MAX_CANDIDATES
    + MAX_DATA
    + _KEY_SIZE
    + _BESIDE_FRONT
    + MAX_NAME_SIZE
    + 2 * (_BESIDE_FRONT + MAX_NAMES_SIZE)
)
"""The most bytes of one record with its key, its name, its topics and its groups."""

MAX_RECORDS = MAX_PARTS * (MAX_CHUNK // MAX_RECORD_SIZE)
"""The number of records of the largest size that fit into one list."""


def divide(items: Iterable[T], size: Callable[[T], int]) -> list[tuple[T, ...]]:
    """Divide items, in their order, into shares that each fit into one message."""
    shares: list[tuple[T, ...]] = []
    share: list[T] = []
    total = 0
    for item in items:
        needed = size(item)
        if share and total + needed > MAX_CHUNK:
            shares.append(tuple(share))
            share, total = [], 0
        share.append(item)
        total += needed
    if share:
        shares.append(tuple(share))
    return shares


def divide_records(records: Iterable[PeerRecord]) -> list[tuple[PeerRecord, ...]]:
    """Divide records into shares that each fit into one message."""
    return divide(records, _record_size)


def number_parts(shares: list[tuple[T, ...]]) -> list[tuple[Part, tuple[T, ...]]]:
    """Number the shares of a list. An empty list has one empty share."""
    shares = shares or [()]
    return [(Part(index, len(shares)), share) for index, share in enumerate(shares)]


class Assembly(Generic[T]):
    """The parts of one list, collected in order.

    A new first part begins another list, and parts out of order are dropped. So is a list of more
    than ``MOST_PEERS`` items, which is also counted: 2048 parts of 3,000 ids each would take 200 MB
    for each server that sends them.
    """

    __slots__ = ("_counters", "_items", "_next")

    def __init__(self, counters: ControlCounters) -> None:
        self._counters = counters
        self._items: list[T] = []
        self._next = 0

    def add(self, part: Part, items: Iterable[T]) -> list[T] | None:
        """Add a part. Return the complete list if this was its last part, else None."""
        if part.index == 0:
            self._items, self._next = [], 0
        if part.index != self._next:
            return None
        self._items += items
        self._next += 1
        if len(self._items) > MOST_PEERS:
            self._counters.add(Count.TOO_MANY)
            self._items, self._next = [], 0
            return None
        if self._next < part.count:
            return None
        whole, self._items, self._next = self._items, [], 0
        return whole


def _record_size(record: PeerRecord) -> int:
    peer, beside = encoding_of(record)
    size = _PARAMETER_FRONT + len(peer)
    for data in beside.values():
        size += _PARAMETER_FRONT + len(data)
    return size
