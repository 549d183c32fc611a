"""Records of clients in a message, and beside them the keys and topics of those that have some.

Whoever knows nothing of keys and topics reads the records all the same.

The same record comes again and again: as news, in lists, and from every server. So a record
remembers in what bytes it travels. Bytes that are those of the record known by their id are that
record, and nothing of them is decoded. A server encodes each record once, too.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sphtp.core.control.codec import Message, Parameter
from sphtp.core.control.fields import (
    HOLDER_SIZE,
    PEER,
    PEER_KEY,
    PEER_TOPICS,
    HolderKey,
    HolderTopics,
    decode_record,
)
from sphtp.core.control.records import Encoding, PeerRecord
from sphtp.core.control.vocabulary import DataId

_PEER: Final = int(DataId.PEER)
_KEY: Final = int(DataId.PEER_KEY)
_TOPICS: Final = int(DataId.PEER_TOPICS)


def encoding_of(record: PeerRecord) -> Encoding:
    """Return the bytes in which a record travels; they are made once."""
    known = record.encoding
    if known is None:
        key, topics = b"", b""
        if record.key:
            key = PEER_KEY.encode(HolderKey(record.id, record.nonce, record.key))
        if record.topics:
            topics = PEER_TOPICS.encode(HolderTopics(record.id, record.nonce, record.topics))
        known = Encoding(PEER.encode(record), key, topics)
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

    Those that are among the ``known`` ones, by their ids, are these very objects.
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
        told = Encoding(data, keys.get(front, b""), topics.get(front, b""))
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


def _decode(told: Encoding) -> PeerRecord:
    key = PEER_KEY.decode(told.key).key if told.key else b""
    topics = PEER_TOPICS.decode(told.topics).topics if told.topics else ()
    record = decode_record(told.peer, key, topics)
    record.remember(told)
    return record
