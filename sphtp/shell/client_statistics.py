"""Figures of a client."""

from collections.abc import Mapping
from dataclasses import dataclass

from sphtp.shell.node_statistics import NodeStatistics


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Figures of one client since its start."""

    counters: Mapping[str, int]
    """Control messages dropped, by reason."""
    node: NodeStatistics
    """Datagrams at its socket."""
    events_dropped: int
    """Events missed by listeners that were too far behind."""
    undialable: int
    """Addresses of servers that the bus cannot make sense of."""
