"""The counters, measurements and reached limits of a channel."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class BoundCounters:
    """The number of times that each limit took effect, over all channels of a node.

    ``over_...`` counts what was dropped because of the setting that the rest of the name gives:
    packets beyond the granted credit, packets with too large a message, unreliable messages that
    did not fit, and anything that a full node refused. ``held_by_...`` counts how often sending had
    to wait for the peer to read; the setting is the peer's.
    """

    over_receive_buffer: int = 0
    over_receive_buffer_bytes: int = 0
    over_max_message: int = 0
    over_unreliable_buffer: int = 0
    over_node_buffer_bytes: int = 0
    held_by_receive_buffer: int = 0
    held_by_receive_buffer_bytes: int = 0

    def count(self, name: str, number: int = 1) -> None:
        """Add one, or ``number``, to a counter."""
        setattr(self, name, getattr(self, name) + number)


@dataclass(slots=True)
class Counters:
    """Counts since the connection opened; packets unless the name says otherwise."""

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    lost: int = 0
    lost_in_appearance: int = 0
    duplicates: int = 0
    too_old: int = 0
    too_early: int = 0
    malformed: int = 0
    forged_acks: int = 0
    foreign_address: int = 0
    resent: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    shared_memory_sent: int = 0
    shared_memory_received: int = 0
    shared_memory_bytes_sent: int = 0
    shared_memory_bytes_received: int = 0
    undecodable: int = 0
    bounds: BoundCounters = field(default_factory=BoundCounters, metadata={"shown": False})


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """A snapshot of a channel; times in seconds.

    ``sent``, ``received`` and ``lost`` count packets; ``resent`` counts retransmitted messages and
    fragments. ``rtt`` is the smoothed round trip, None before the first ack; ``loss`` is the
    smoothed share of lost packets. ``bandwidth`` is the highest recent delivery rate in bytes per
    second, which is the capacity of the path if there was enough to send. ``window`` is the
    congestion window in bytes, and ``datagram_size`` the largest datagram that the path is known to
    carry. ``too_early`` counts packets that were refused for want of buffer space; the peer sends
    their content again. ``undecodable`` counts messages that were received and dropped: not
    msgpack, of no known type, or out of bounds. ``shared_memory_sent`` and
    ``shared_memory_received`` count the messages among the others that went by shared memory, and
    ``shared_memory_bytes_sent`` and ``shared_memory_bytes_received`` the bytes of these messages,
    which are not in ``bytes_sent`` and ``bytes_received``: those are the bytes of packets.
    ``waiting`` counts messages that are not acked yet,
    ``unread`` those that the application has not read.
    """

    sent: int
    received: int
    bytes_sent: int
    bytes_received: int
    lost: int
    lost_in_appearance: int
    duplicates: int
    too_old: int
    too_early: int
    malformed: int
    forged_acks: int
    foreign_address: int
    resent: int
    messages_sent: int
    messages_received: int
    shared_memory_sent: int
    shared_memory_received: int
    shared_memory_bytes_sent: int
    shared_memory_bytes_received: int
    undecodable: int
    unreliable_dropped: int
    waiting: int
    unread: int
    rtt: float | None
    rtt_deviation: float
    loss: float
    bandwidth: float | None
    window: int
    datagram_size: int


@dataclass(frozen=True, slots=True)
class Estimates:
    """The measured part of the statistics."""

    unreliable_dropped: int = 0
    waiting: int = 0
    unread: int = 0
    rtt: float | None = None
    rtt_deviation: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None
    window: int = 0
    datagram_size: int = 0


def snapshot(counters: Counters, estimates: Estimates) -> ChannelStatistics:
    """Join counters and estimates into one snapshot."""
    return ChannelStatistics(**_shown(counters), **_shown(estimates))


def _shown(figures: Counters | Estimates) -> dict[str, Any]:
    shown = (field.name for field in fields(figures) if field.metadata.get("shown", True))
    return {name: getattr(figures, name) for name in shown}


@dataclass(slots=True)
class EndpointCounters:
    """Counts datagrams that matched no connection, and refused connections."""

    malformed: int = 0
    unknown: int = 0
    refused_full: int = 0
    over_backlog: int = 0
    over_max_channels: int = 0
    refused_wrong_peer: int = 0
    refused_closed: int = 0
    refused_schema: int = 0
    refused_sealed: int = 0
