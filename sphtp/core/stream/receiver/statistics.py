"""What a receiver counts (Ultra Messaging's receiver transport statistics)."""

from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from sphtp.core.stream.bodies import Ncf, NcfReason
from sphtp.core.stream.events import LossReason


class Spread(NamedTuple):
    """Least, mean and most of something."""

    least: float
    mean: float
    most: float


class Tally:
    """Adds up to a spread."""

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
        """What was counted; None when nothing was."""
        if not self._count:
            return None
        return Spread(self._least, self._sum / self._count, self._most)


@dataclass(slots=True)
class ReceiverCounters:
    """Counts since the receiver joined."""

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
        self._add(NCFS[ncf.reason], sum([span.size for span in ncf.spans]))

    def count_unrecovered(self, reason: LossReason, number: int) -> None:
        """Count datagrams that were given up."""
        self._add(UNRECOVERED[reason], number)

    def _add(self, name: str, number: int) -> None:
        setattr(self, name, getattr(self, name) + number)


NCFS: Final = {
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
    """A snapshot of a receiver's transport; datagrams unless the name says otherwise.

    ``lost`` counts every datagram that was ever missing; it is the sum of ``recovered`` (by a
    repair, whoever asked for it), ``out_of_order`` (overtaken only), those ``unrecovered`` for any
    reason and those ``pending``. The reasons: ``txw``, the source's transmission window has moved
    on; ``tmo``, it took a generation interval; ``ncf``, the source refused; ``map``, too many
    ranges were missing; ``end``, the session ended first.

    ``naks_sent`` counts the datagrams named in ``nak_packets_sent``; ``ncfs_...`` those named in
    NCFs, by their reason. ``nak_stm`` is how many seconds recovery took, ``nak_tx`` how many NAKs
    of this receiver, each as least, mean and most; None as long as nothing was recovered.

    Dropped were ``duplicates``, what was sent ``before_start``, what came ``after_end``, what was
    ``malformed``, and what said what cannot be (``implausible``).
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


def snapshot(
    counters: ReceiverCounters, pending: int, nak_stm: Tally, nak_tx: Tally
) -> ReceiverStatistics:
    """Put together what was counted and what is missing still."""
    return ReceiverStatistics(
        **asdict(counters), pending=pending, nak_stm=nak_stm.spread, nak_tx=nak_tx.spread
    )
