"""What a server tells people about itself."""

from collections.abc import Iterable
from typing import Any

from sphtp.core.control.cluster import Cluster
from sphtp.core.control.counters import Counters
from sphtp.core.control.ledger import Ledger
from sphtp.core.control.records import Member, PeerRecord
from sphtp.core.control.server_table import ServerState


def describe(
    number: int, state: ServerState, cluster: Cluster, ledger: Ledger, counters: Counters
) -> dict[str, Any]:
    """Return a document ready for JSON."""
    return {
        "id": number,
        "state": state.value,
        "address": str(cluster.own.address),
        "view": {"number": cluster.view.number, "members": _members(cluster.view.members)},
        "clients": [_client(record, ledger) for record in ledger.registry.records.values()],
        "counters": counters.as_dict(),
    }


def _members(members: Iterable[Member]) -> list[dict[str, Any]]:
    return [
        {
            "id": member.id,
            "state": member.state.name.lower(),
            "address": None if member.address is None else str(member.address),
        }
        for member in members
    ]


def _client(record: PeerRecord, ledger: Ledger) -> dict[str, Any]:
    return {
        "id": record.id,
        "candidates": [f"{candidate.host} {candidate.port}" for candidate in record.candidates],
        "data_bytes": len(record.data),
        "topics": len(record.topics),
        "revision": record.revision,
        "told_by": ledger.sponsor(record.id) or None,
    }
