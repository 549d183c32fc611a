"""Counters of sources and receivers, and snapshots of sources, receivers and delivery."""

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from sphtp.core.stream.events import LossReason
from sphtp.core.stream.wire import Ncf, NcfReason

# Sources


@dataclass(slots=True)
class SourceCounters:
    """Counts of a source since its session began, as in ``SourceStatistics``."""

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

    ``messages_sent`` counts the messages that the program has sent, also those that still wait.
    ``datagrams_sent`` and ``bytes_sent`` are of new data, ``repairs_sent`` and
    ``repair_bytes_sent`` of retransmissions, ``sessions_sent`` and ``ncfs_sent`` of session
    messages and NCFs.

    ``nak_packets_received`` counts NAKs, ``naks_received`` the datagrams that they name. Of these,
    ``naks_ignored`` had been repaired within the ignore interval, and ``naks_rx_delay`` had a
    repair that waited for its turn. ``naks_shed`` came while too many repairs waited.
    ``naks_out_of_window`` were no longer in the window. The source ignored ``naks_over_budget``,
    which exceeded the NAK budget of their receiver; ``crybabies`` counts the reports of this.

    ``feedback_invalid`` counts NAKs and status messages that were malformed, or named datagrams
    that were never sent. ``feedback_foreign`` came from an unknown receiver, or after the end.
    ``repairs_evicted`` were no longer in the window when their turn came. ``receivers_refused``
    receivers came when the source had ``max_receivers``.

    ``window_datagrams`` and ``window_bytes`` are the content of the transmission window.
    ``waiting_bytes`` is the new data that waits for the data rate or for receivers, where each
    message counts two bytes more. ``waiting_repairs`` repairs wait for the repair rate.
    ``receivers`` is the present number of receivers, ``left_behind`` the number of times that the
    source stopped waiting for one of them.
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


def source_snapshot(counters: SourceCounters, **levels: int) -> SourceStatistics:
    """Return a snapshot of counters; ``levels`` are the remaining fields."""
    return SourceStatistics(**_counts(counters), **levels)


# Receivers: Ultra Messaging's receiver transport statistics


class Spread(NamedTuple):
    """The smallest, the mean and the largest of a series of values."""

    least: float
    mean: float
    most: float


class SpreadCounter:
    """The collector of values for a ``Spread``."""

    __slots__ = ("_count", "_least", "_most", "_sum")

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0
        self._least = 0.0
        self._most = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._least = min(self._least, value) if self._count else value
        self._most = max(self._most, value)
        self._count += 1
        self._sum += value

    @property
    def spread(self) -> Spread | None:
        """The spread of the values; None if no value was counted."""
        if not self._count:
            return None
        return Spread(self._least, self._sum / self._count, self._most)


@dataclass(slots=True)
class ReceiverCounters:
    """Counts of a receiver since it joined, as in ``ReceiverStatistics``."""

    datagrams: int = 0
    bytes: int = 0
    session_messages: int = 0
    nak_packets_sent: int = 0
    naks_sent: int = 0
    lost: int = 0
    recovered: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    before_start: int = 0
    after_end: int = 0
    malformed: int = 0
    implausible: int = 0
    ncfs_ignored: int = 0
    ncfs_rx_delay: int = 0
    ncfs_shed: int = 0
    ncfs_no_retry: int = 0
    unrecovered_txw: int = 0
    unrecovered_tmo: int = 0
    unrecovered_ncf: int = 0
    unrecovered_map: int = 0
    unrecovered_end: int = 0

    def count_ncf(self, ncf: Ncf) -> None:
        """Count the datagrams that an NCF names."""
        self._add(NCF_COUNTERS[ncf.reason], sum([span.size for span in ncf.spans]))

    def count_unrecovered(self, reason: LossReason, number: int) -> None:
        """Count datagrams that the receiver has given up for a reason."""
        self._add(UNRECOVERED[reason], number)

    def _add(self, name: str, number: int) -> None:
        setattr(self, name, getattr(self, name) + number)


NCF_COUNTERS: Final = {
    NcfReason.NO_RETRY: "ncfs_no_retry",
    NcfReason.IGNORED: "ncfs_ignored",
    NcfReason.RX_DELAY: "ncfs_rx_delay",
    NcfReason.SHED: "ncfs_shed",
}

UNRECOVERED: Final = {
    LossReason.WINDOW: "unrecovered_txw",
    LossReason.TIMEOUT: "unrecovered_tmo",
    LossReason.NO_RETRY: "unrecovered_ncf",
    LossReason.MAP_OVERFLOW: "unrecovered_map",
    LossReason.SESSION_END: "unrecovered_end",
}


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    """A snapshot of a receiver's transport; counts are of datagrams unless stated otherwise.

    ``datagrams`` and the ``bytes`` of their bodies are all that the receiver got from the source;
    ``session_messages`` are among them.

    ``lost`` counts every datagram that was ever missing. It is the sum of ``recovered`` (by a
    repair, whether this or another receiver requested it), ``out_of_order`` (only late), those
    ``unrecovered`` for any reason, and those ``pending``. The reasons: ``txw``, the source's
    transmission window has moved on; ``tmo``, missing for a generation interval; ``ncf``, the
    source refused a repair; ``map``, too many ranges were missing; ``end``, the session ended
    first.

    ``naks_sent`` counts the datagrams named in ``nak_packets_sent`` NAKs, ``ncfs_...`` those named
    in NCFs, by their reason. For recovered datagrams, ``nak_stm`` is the time of the recovery in
    seconds, and ``nak_tx`` the number of NAKs of this receiver. Both have the smallest, the mean
    and the largest value, and are None until a datagram is recovered.

    Dropped datagrams were ``duplicates``, had a number ``before_start``, came ``after_end``, were
    ``malformed``, or were ``implausible``, because their numbers contradicted each other or earlier
    ones.
    """

    datagrams: int
    bytes: int
    session_messages: int
    nak_packets_sent: int
    naks_sent: int
    lost: int
    recovered: int
    out_of_order: int
    pending: int
    duplicates: int
    before_start: int
    after_end: int
    malformed: int
    implausible: int
    ncfs_ignored: int
    ncfs_rx_delay: int
    ncfs_shed: int
    ncfs_no_retry: int
    unrecovered_txw: int
    unrecovered_tmo: int
    unrecovered_ncf: int
    unrecovered_map: int
    unrecovered_end: int
    nak_stm: Spread | None
    nak_tx: Spread | None


def receiver_snapshot(
    counters: ReceiverCounters, pending: int, nak_stm: SpreadCounter, nak_tx: SpreadCounter
) -> ReceiverStatistics:
    """Return a snapshot of counters; ``pending`` is the present number of missing datagrams."""
    return ReceiverStatistics(
        **_counts(counters), pending=pending, nak_stm=nak_stm.spread, nak_tx=nak_tx.spread
    )


def _counts(counters: SourceCounters | ReceiverCounters) -> dict[str, int]:
    # Counts are plain numbers: `asdict` makes a deep copy of each, which takes five times as long.
    return {field.name: getattr(counters, field.name) for field in fields(counters)}


# Delivery controllers


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """A snapshot of a topic's delivery; counts are of messages unless stated otherwise.

    ``delivered`` messages went to the reader's queue; ``lost`` were reported there. ``duplicates``,
    among them fragments, came again, came after their message had been reported lost, or belong
    to a message from before the first one to deliver. ``left`` were dropped on arrival, because
    they were too far ahead while history was fetched, or the receive buffer was full. ``refused``
    counts records that contradict earlier ones, or exceed a limit.

    ``gaps`` is the number of missing ranges that the transport may still fill, ``wanted`` the
    number of messages wanted from the history. ``waiting`` counts messages, losses and fragments
    that wait for missing ones; ``waiting_bytes`` is their size.
    """

    delivered: int
    lost: int
    duplicates: int
    left: int
    refused: int
    gaps: int
    wanted: int
    waiting: int
    waiting_bytes: int
