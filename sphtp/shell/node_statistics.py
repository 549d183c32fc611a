"""What a node counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Datagrams at a node's socket, and those that reached no channel, since it opened.

    What was done to those ``received`` on purpose follows from ``Impairment``. From
    ``in_the_clear`` on it is what was not let in by a sealed node: see ``HandshakeCounters``. From
    ``over_receive_buffer`` on it is what bounds of its channels held back: see ``BoundCounters``.
    """

    sent: int
    received: int
    send_errors: int
    receive_errors: int
    send_calls: int
    receive_calls: int
    dropped_on_purpose: int
    duplicated_on_purpose: int
    held_back_on_purpose: int
    malformed: int
    unknown: int
    refused_full: int
    over_backlog: int
    over_max_channels: int
    refused_wrong_peer: int
    refused_closed: int
    refused_schema: int
    refused_sealed: int
    in_the_clear: int
    forged: int
    replayed: int
    cookies_sent: int
    handshakes: int
    handshakes_over_rate: int
    handshakes_over_limit: int
    strangers: int
    denied: int
    resets_sent: int
    resets_over_rate: int
    resets_taken: int
    resets_forged: int
    paths_tried: int
    paths_changed: int
    stream_malformed: int
    stream_unknown: int
    over_receive_buffer: int
    over_receive_buffer_bytes: int
    over_max_message: int
    over_unreliable_buffer: int
    over_node_buffer_bytes: int
    held_by_receive_buffer: int
    held_by_receive_buffer_bytes: int
