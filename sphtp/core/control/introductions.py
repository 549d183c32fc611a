"""Records of clients in a message, and beside them the keys of those that have one.

Whoever knows nothing of keys reads the records all the same.
"""

from collections.abc import Iterable
from dataclasses import replace

from sphtp.core.control import fields
from sphtp.core.control.codec import Message, Parameter
from sphtp.core.control.fields import Holder, HolderKey
from sphtp.core.control.records import PeerRecord


def write_records(records: Iterable[PeerRecord]) -> tuple[Parameter, ...]:
    """Return the parameters that carry these records."""
    told = tuple(records)
    keys = (HolderKey(each.id, each.nonce, each.key) for each in told if each.key)
    return (*map(fields.PEER.of, told), *map(fields.PEER_KEY.of, keys))


def read_records(message: Message) -> tuple[PeerRecord, ...]:
    """Return the records in the message, in their order. Raises ``WireError``."""
    keys = fields.PEER_KEY.every(message)
    records = fields.PEER.every(message)
    if not keys:
        return records
    # The first one counts, as everywhere.
    known = {Holder(told.id, told.nonce): told.key for told in reversed(keys)}
    return tuple(
        replace(record, key=known.get(Holder(record.id, record.nonce), b"")) for record in records
    )
