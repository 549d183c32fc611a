"""Records of clients in a message, with the keys and topics of those that have some.

A reader that knows nothing of keys and topics reads the records all the same.

The same record arrives many times: alone, in lists, and from every server. So a record keeps its
encoded bytes. If the bytes are those of the record that is known by their id, that record is used
and nothing is decoded. A server encodes each record once, too.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, Generic, TypeVar

from sphtp.core.control.codec import (
    HOLDER_SIZE,
    PEER,
    PEER_KEY,
    PEER_TOPICS,
    Digest,
    HolderKey,
    HolderTopics,
    Message,
    Parameter,
    Part,
    decode_record,
)
from sphtp.core.control.records import (
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_TOPICS_SIZE,
    PeerRecord,
    RecordEncoding,
    size_of_topics,
)
from sphtp.core.control.vocabulary import DataId

_PEER: Final = int(DataId.PEER)
_KEY: Final = int(DataId.PEER_KEY)
_TOPICS: Final = int(DataId.PEER_TOPICS)


def encoding_of(record: PeerRecord) -> RecordEncoding:
    """Return the encoding of a record; it is made once."""
    known = record.encoding
    if known is None:
        key, topics = b"", b""
        if record.key:
            key = PEER_KEY.encode(HolderKey(record.id, record.nonce, record.key))
        if record.topics:
            topics = PEER_TOPICS.encode(HolderTopics(record.id, record.nonce, record.topics))
        known = RecordEncoding(PEER.encode(record), key, topics)
        record.remember(known)
    return known


def write_records(records: Iterable[PeerRecord]) -> tuple[Parameter, ...]:
    """Return the parameters that carry these records."""
    told = [encoding_of(record) for record in records]
    return (
        *[Parameter(DataId.PEER, each.peer) for each in told],
        *[Parameter(DataId.PEER_KEY, each.key) for each in told if each.key],
        *[Parameter(DataId.PEER_TOPICS, each.topics) for each in told if each.topics],
    )


def read_records(message: Message, known: Mapping[int, PeerRecord]) -> tuple[PeerRecord, ...]:
    """Return the records in the message, in their order. Raises ``WireError``.

    A record that equals the ``known`` one with its id is that very object.
    """
    peers: list[bytes] = []
    keys: dict[bytes, bytes] = {}
    topics: dict[bytes, bytes] = {}
    for number, data in message.parameters:
        if number == _PEER:
            peers.append(data)
        elif number == _KEY:
            # Of two for one holder the first one counts, as everywhere.
            if keys.setdefault(data[:HOLDER_SIZE], data) is not data:
                PEER_KEY.decode(data)
        elif number == _TOPICS and topics.setdefault(data[:HOLDER_SIZE], data) is not data:
            PEER_TOPICS.decode(data)
    records: list[PeerRecord] = []
    read: set[bytes] = set()
    for data in peers:
        front = data[:HOLDER_SIZE]
        told = RecordEncoding(data, keys.get(front, b""), topics.get(front, b""))
        record = known.get(int.from_bytes(data[:4], "little"))
        if record is None or record.encoding != told:
            record = _decode(told)
        records.append(record)
        read.add(front)
    # What is told of nobody in the message counts for nothing, but it has to be well-formed.
    for front in keys.keys() - read:
        PEER_KEY.decode(keys[front])
    for front in topics.keys() - read:
        PEER_TOPICS.decode(topics[front])
    return tuple(records)


def _decode(told: RecordEncoding) -> PeerRecord:
    key = PEER_KEY.decode(told.key).key if told.key else b""
    topics = PEER_TOPICS.decode(told.topics).topics if told.topics else ()
    record = decode_record(told.peer, key, topics)
    record.remember(told)
    return record


def fingerprint(record: PeerRecord) -> int:
    """Return the first 8 bytes, little-endian, of the SHA-256 of the record as it travels."""
    return int.from_bytes(sha256(encoding_of(record).peer).digest()[:8], "little")


class Fingerprints:
    """The fingerprints of a changing list of records, and their digest at any moment."""

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
        """Remove the record with this id, if there is one."""
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
        """The digest: the number of records, and the exclusive or of their fingerprints."""
        return Digest(len(self._by_id), self._mix)


T = TypeVar("T")

MAX_CHUNK = 48 * 1024
"""The most bytes of parameters in one message of a divided list."""

_FIXED_SIZE = 21
_CANDIDATE_SIZE = 19
_KEY_SIZE = 48

_TOPICS_FRONT = 16

MAX_RECORD_SIZE = (
    _FIXED_SIZE
    + _CANDIDATE_SIZE * MAX_CANDIDATES
    + MAX_DATA
    + _KEY_SIZE
    + _TOPICS_FRONT
    + MAX_TOPICS_SIZE
)
"""The most bytes that one record, its key and its topics take."""


def divide(items: Iterable[T], size: Callable[[T], int]) -> list[tuple[T, ...]]:
    """Divide items, in their order, so that each share fits into one message."""
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
    """Divide records so that each share fits into one message."""
    return divide(records, _record_size)


def number_parts(shares: list[tuple[T, ...]]) -> list[tuple[Part, tuple[T, ...]]]:
    """Give each share its part. No share at all makes one empty part."""
    shares = shares or [()]
    return [(Part(index, len(shares)), share) for index, share in enumerate(shares)]


class Assembly(Generic[T]):
    """The parts of one list, collected in order. A gap, or a new first part, starts over."""

    __slots__ = ("_items", "_next")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._next = 0

    def add(self, part: Part, items: Iterable[T]) -> list[T] | None:
        """Add a part. Return the whole list if this was the last one, else None."""
        if part.index == 0:
            self._items, self._next = [], 0
        if part.index != self._next:
            return None
        self._items += items
        self._next += 1
        if self._next < part.count:
            return None
        whole, self._items, self._next = self._items, [], 0
        return whole


def _record_size(record: PeerRecord) -> int:
    key = _KEY_SIZE if record.key else 0
    topics = _TOPICS_FRONT + size_of_topics(record.topics) if record.topics else 0
    candidates = _CANDIDATE_SIZE * len(record.candidates)
    return _FIXED_SIZE + candidates + len(record.data) + key + topics
