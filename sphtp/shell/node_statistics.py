"""What a node counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Datagrams at a node's socket, and those that reached no channel, since it opened."""

    sent: int
    received: int
    send_errors: int
    receive_errors: int
    dropped_on_purpose: int
    send_calls: int
    receive_calls: int
    malformed: int
    unknown: int
    refused_full: int
    refused_wrong_peer: int
    refused_closed: int
    refused_schema: int
    refused_sealed: int
