"""The counters, measurements and reached limits of a channel."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class BoundCounters:
    """The effects of each limit, over all channels of a node.

    A counter ``over_...`` counts what the setting in the rest of its name made a channel drop:
    packets beyond the granted credit, packets with too large a message, and unreliable messages for
    which there was no room. ``over_node_buffer_bytes`` counts both packets and unreliable messages
    that a full node dropped. A counter ``held_by_...`` counts how often sending had to wait for the
    peer to read; the setting is the peer's.
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
    """The counters of a connection. ``ChannelStatistics`` gives the meaning of each."""

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

    ``sent`` and ``lost`` count packets, ``received`` those that were decoded, and ``bytes_sent``
    and ``bytes_received`` the bytes of these packets. ``resent`` counts retransmitted messages and
    fragments. ``lost_in_appearance`` counts packets that were declared lost and acked later.

    These count received packets that were dropped: ``duplicates``; ``too_old``, which are so late
    that they may be duplicates; ``too_early``, which found no buffer space or came before the
    channel was open, and whose content the peer sends again; ``malformed``, including the
    ``forged_acks`` of packets that were never sent; and ``foreign_address``, which did not come
    from the address of the peer.

    ``messages_sent`` counts messages that were queued, ``messages_received`` those that the
    application has read. ``shared_memory_sent`` and ``shared_memory_received`` count those of them
    that went by shared memory, and ``shared_memory_bytes_sent`` and
    ``shared_memory_bytes_received`` their bytes, which are not part of ``bytes_sent`` and
    ``bytes_received``. ``undecodable`` counts messages that were received and dropped: not msgpack,
    of no known type, or out of bounds. ``unreliable_dropped`` counts unreliable messages that this
    side dropped before they left or were read. ``waiting`` counts reliable messages that are not
    acked yet, ``unread`` the messages that the application has not read.

    ``rtt`` is the smoothed round trip, None before the first ack, and ``rtt_deviation`` its mean
    deviation. ``loss`` is the smoothed share of lost packets. ``bandwidth`` is the highest recent
    delivery rate in bytes per second, which is the capacity of the path if there was enough to
    send; None while there is no measurement. ``window`` is the congestion window in bytes, and
    ``datagram_size`` the largest datagram, in bytes, that the path is known to carry.
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
    """Counts of datagrams that matched no connection, and of refused connections.

    ``refused_sealed`` counts sealed handshakes that a node in the clear refused. ``over_backlog``
    counts channels that were refused, or aborted in favour of another, because ``backlog`` was
    reached, and ``over_max_channels`` those refused because of ``max_channels``.
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
