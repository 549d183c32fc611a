"""The counters and measurements of a channel, and the limits that were reached."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class BoundCounters:
    """The messages that a bound held back, at all channels of a node together.

    ``over_...`` was dropped, because of the setting with the rest of the name: packets whose peer
    went beyond its credit, packets with messages that are too large, unreliable messages, and
    packets or unreliable messages for which the node was full.
    ``held_by_...`` counts how often sending had to wait until the peer, whose setting it is, read.
    """

    over_receive_buffer: int = 0
    over_receive_buffer_bytes: int = 0
    over_max_message: int = 0
    over_unreliable_buffer: int = 0
    over_node_buffer_bytes: int = 0
    held_by_receive_buffer: int = 0
    held_by_receive_buffer_bytes: int = 0

    def count(self, name: str, number: int = 1) -> None:
        """Count one more, or ``number`` more, under a name."""
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
    undecodable: int = 0
    bounds: BoundCounters = field(default_factory=BoundCounters, metadata={"shown": False})


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """A snapshot of a channel; times in seconds.

    ``sent``, ``received`` and ``lost`` count packets, ``resent`` messages or fragments sent again.
    ``rtt`` is the smoothed round trip, None before the first ack; ``loss`` the smoothed share of
    packets lost. ``bandwidth`` is the highest rate of late at which bytes arrived, per second: what
    the path carries, if there was enough to send. ``window`` is how many bytes may be in flight,
    ``datagram_size`` how large the path lets datagrams be, as far as it is known. ``too_early``
    counts packets not accepted because a message in them could not be buffered; the peer sends them
    again. ``undecodable`` counts messages that were taken and dropped: not msgpack, of no type, or
    out of bounds. ``waiting`` counts messages not yet acked, ``unread`` those not yet received.
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
    """The part of the statistics that is measured and not counted."""

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
    """Put both parts together."""
    return ChannelStatistics(**_shown(counters), **_shown(estimates))


def _shown(figures: Counters | Estimates) -> dict[str, Any]:
    shown = (field.name for field in fields(figures) if field.metadata.get("shown", True))
    return {name: getattr(figures, name) for name in shown}


@dataclass(slots=True)
class EndpointCounters:
    """Datagrams that reached no connection, and connections refused."""

    malformed: int = 0
    unknown: int = 0
    refused_full: int = 0
    over_backlog: int = 0
    over_max_channels: int = 0
    refused_wrong_peer: int = 0
    refused_closed: int = 0
    refused_schema: int = 0
    refused_sealed: int = 0
