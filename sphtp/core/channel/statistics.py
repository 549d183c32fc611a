"""The statistics of a channel: counters, estimates, and counters of limits."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class BoundCounters:
    """The effects of each limit, over all channels of a node.

    The name after ``over_`` or ``held_by_`` is that of a setting. ``over_receive_buffer`` and
    ``over_receive_buffer_bytes`` count packets beyond the credit that this side had granted; the
    former also counts those with a message too far ahead of the next one of its lane, and those
    with a fragment that would leave too many gaps. ``over_max_message`` counts packets with a
    message that is too large. ``over_unreliable_buffer`` counts unreliable messages that were
    dropped while they waited to leave or to be read. ``over_node_buffer_bytes`` counts packets and
    unreliable messages that were dropped because the node was full. ``held_by_...`` counts the
    times that sending waited until the peer read messages; that setting is the peer's.
    """

    over_receive_buffer: int = 0
    over_receive_buffer_bytes: int = 0
    over_max_message: int = 0
    over_unreliable_buffer: int = 0
    over_node_buffer_bytes: int = 0
    held_by_receive_buffer: int = 0
    held_by_receive_buffer_bytes: int = 0

    def count(self, name: str, number: int = 1) -> None:
        """Add ``number`` to the counter with this name."""
        setattr(self, name, getattr(self, name) + number)


@dataclass(slots=True)
class Counters:
    """Counts since the connection was made, which ``ChannelStatistics`` describes.

    Only ``bounds`` are those of the whole node.
    """

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
    """A snapshot of the counters and estimates of a channel; times in seconds, sizes in bytes.

    **Packets.** ``sent`` and ``received`` count packets, and ``bytes_sent`` and ``bytes_received``
    their bytes, without those that sealing adds. ``lost`` counts packets that were declared lost;
    ``lost_in_appearance`` counts those of them whose ack arrived later. These counters count
    packets of the peer that were dropped: ``duplicates``; ``too_old`` ones, which may be
    duplicates; ``too_early`` ones, which found no buffer space or came before the channel opened,
    so that the peer sends their reliable content again; ``malformed`` ones, of which
    ``forged_acks`` had acked packets that were never sent; and, in the clear, those from a
    ``foreign_address``.

    **Messages.** ``messages_sent`` counts messages that the application queued, and
    ``messages_received`` those that it received, with the undecodable ones. ``resent`` counts
    messages and fragments that were queued for retransmission. ``undecodable`` counts messages that
    were received and dropped, because they were not msgpack, of no known type, or out of bounds.
    ``unreliable_dropped`` counts unreliable messages that this side dropped for want of room before
    they left or before they were read, and not those that expired or that a later message overtook.
    ``waiting`` counts reliable messages of each lane from the oldest that is not acked to the
    newest, and those in shared memory that the peer has not taken. ``unread`` counts received
    messages that the application has not read. ``shared_memory_sent`` and
    ``shared_memory_received`` count those messages that passed through shared memory, and
    ``shared_memory_bytes_sent`` and ``shared_memory_bytes_received`` their bytes. No packet carried
    these bytes.

    **Estimates.** ``rtt`` is the smoothed round trip, None before the first sample, and
    ``rtt_deviation`` its mean deviation. ``loss`` is the smoothed share of lost packets.
    ``bandwidth`` is the highest recent delivery rate in bytes per second, None before the first
    sample. It is the capacity of the path if there was enough to send. ``window`` is the congestion
    window. ``datagram_size`` is the size of the largest datagrams that leave at present, MTU probes
    excepted, without the bytes that sealing adds.
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
    """The part of ``ChannelStatistics`` that comes from the two sides and not from counters."""

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
    """Return a snapshot of counters and estimates."""
    return ChannelStatistics(**_shown(counters), **_shown(estimates))


def _shown(figures: Counters | Estimates) -> dict[str, Any]:
    shown = (field.name for field in fields(figures) if field.metadata.get("shown", True))
    return {name: getattr(figures, name) for name in shown}


@dataclass(slots=True)
class EndpointCounters:
    """Counts of datagrams without a connection, and of channels that this side refused.

    ``malformed`` counts datagrams that do not have the form of the protocol, and ``unknown`` those
    for no connection of this node. ``refused_...`` counts channels that were refused: because there
    was no place, because the opener wanted another peer, because this node is closing, because the
    schemas differ, because the opener wanted a sealed channel with a node in the clear, or because
    its sealed handshake is of another version of the protocol.
    ``over_backlog`` and ``over_max_channels`` count the effects of these two settings: a channel
    was refused, or ended to make room in the backlog.
    """

    malformed: int = 0
    unknown: int = 0
    refused_full: int = 0
    over_backlog: int = 0
    over_max_channels: int = 0
    refused_wrong_peer: int = 0
    refused_closed: int = 0
    refused_schema: int = 0
    refused_sealed: int = 0
    refused_version: int = 0
