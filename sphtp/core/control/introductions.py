"""Records of clients in a message, and beside them the keys and topics of those that have some.

Whoever knows nothing of these reads the records all the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sphtp.core.control import fields
from sphtp.core.control.codec import Message, Parameter
from sphtp.core.control.fields import Holder, HolderKey, HolderTopics
from sphtp.core.control.records import PeerRecord


def write_records(records: Iterable[PeerRecord]) -> tuple[Parameter, ...]:
    """Return the parameters that carry these records."""
    told = tuple(records)
    keys = (HolderKey(each.id, each.nonce, each.key) for each in told if each.key)
    topics = (HolderTopics(each.id, each.nonce, each.topics) for each in told if each.topics)
    return (
        *map(fields.PEER.of, told),
        *map(fields.PEER_KEY.of, keys),
        *map(fields.PEER_TOPICS.of, topics),
    )


def read_records(message: Message) -> tuple[PeerRecord, ...]:
    """Return the records in the message, in their order. Raises ``WireError``."""
    # Of two for one holder the first one counts, as everywhere.
    keys = {Holder(*told[:2]): told.key for told in reversed(fields.PEER_KEY.every(message))}
    topics = {
        Holder(*told[:2]): told.topics for told in reversed(fields.PEER_TOPICS.every(message))
    }
    records = fields.PEER.every(message)
    return tuple(_with(record, keys, topics) for record in records) if keys or topics else records


def _with(
    record: PeerRecord, keys: Mapping[Holder, bytes], topics: Mapping[Holder, tuple[str, ...]]
) -> PeerRecord:
    holder = Holder(record.id, record.nonce)
    return replace(record, key=keys.get(holder, b""), topics=topics.get(holder, ()))
