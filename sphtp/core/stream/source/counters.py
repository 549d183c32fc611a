"""What a source counts."""

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class SourceCounters:
    """Counts since the session began."""

    messages_sent: int = 0
    datagrams_sent: int = 0
    bytes_sent: int = 0
    sessions_sent: int = 0
    ncfs_sent: int = 0
    nak_packets_received: int = 0
    naks_received: int = 0
    naks_ignored: int = 0
    naks_rx_delay: int = 0
    naks_shed: int = 0
    naks_out_of_window: int = 0
    naks_over_budget: int = 0
    feedback_invalid: int = 0
    feedback_foreign: int = 0
    crybabies: int = 0
    repairs_sent: int = 0
    repair_bytes_sent: int = 0
    repairs_evicted: int = 0
    receivers_refused: int = 0


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """A snapshot of a source; sizes in bytes.

    ``datagrams_sent`` and ``bytes_sent`` are of new data, ``repairs_sent`` and
    ``repair_bytes_sent`` of retransmissions, ``sessions_sent`` and ``ncfs_sent`` count datagrams.
    ``nak_packets_received`` are datagrams, ``naks_received`` the sqns in them. Of these,
    ``naks_ignored`` had been repaired within the ignore interval, ``naks_rx_delay`` were for
    repairs that waited for their turn, ``naks_shed`` found too many waiting,
    ``naks_out_of_window`` were for what is no longer there, and ``naks_over_budget`` were not
    looked at, for their receiver asked for too much; ``crybabies`` counts how often that was
    reported. ``feedback_invalid`` were no NAKs, or for what was never sent, and
    ``feedback_foreign`` came from no receiver or after the end. ``repairs_evicted`` left the
    window before their turn. ``receivers_refused`` came when there were ``max_receivers``.
    ``window_datagrams`` and ``window_bytes`` are what the transmission
    window holds, ``waiting_bytes`` what of new data waits for the data rate, ``waiting_repairs``
    how many datagrams wait for the repair rate, ``receivers`` how many there are now.
    """

    messages_sent: int
    datagrams_sent: int
    bytes_sent: int
    sessions_sent: int
    ncfs_sent: int
    nak_packets_received: int
    naks_received: int
    naks_ignored: int
    naks_rx_delay: int
    naks_shed: int
    naks_out_of_window: int
    naks_over_budget: int
    feedback_invalid: int
    feedback_foreign: int
    crybabies: int
    repairs_sent: int
    repair_bytes_sent: int
    repairs_evicted: int
    receivers_refused: int
    window_datagrams: int
    window_bytes: int
    waiting_bytes: int
    waiting_repairs: int
    receivers: int
    left_behind: int


def snapshot(counters: SourceCounters, **levels: int) -> SourceStatistics:
    """Put together what is counted and what is measured."""
    return SourceStatistics(**asdict(counters), **levels)
