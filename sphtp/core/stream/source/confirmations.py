"""NAK confirmations: why a repair does not come now, said once per sqn and ignore interval.

What NAKs of a moment have in common goes into one NCF.
"""

from math import ceil

from sphtp.core.stream.bodies import Ncf, NcfReason, Window
from sphtp.core.stream.ranges import RangeSet
from sphtp.core.stream.source.recent import Recent
from sphtp.core.stream.wire import MOST_RANGES, cut, encode_ncf


class Confirmations:
    """What is still to be confirmed, by reason."""

    def __init__(self, interval: float) -> None:
        self._confirmed = Recent(interval)
        self._pending: dict[NcfReason, tuple[RangeSet, float]] = {}

    @property
    def has_any(self) -> bool:
        """Whether something is to be said."""
        return bool(self._pending)

    def add(self, now: float, sqn: int, reason: NcfReason, retry_after: float) -> None:
        """Confirm a NAK, unless one for the same sqn was confirmed within the interval."""
        if self._confirmed.remaining(now, sqn):
            return
        self._confirmed.mark(now, sqn)
        sqns, latest = self._pending.get(reason) or (RangeSet(), 0.0)
        sqns.add(sqn, sqn)
        # Who asks again too early gets no answer at all: the latest of all, and whole milliseconds,
        # which is what travels.
        self._pending[reason] = sqns, max(latest, ceil(retry_after * 1000) / 1000)

    def pop(self, window: Window) -> bytes | None:
        """Take the next NCF; None when all is said."""
        while self._pending:
            reason, (sqns, retry_after) = self._pending.popitem()
            spans = cut(sqns.within(window.trail, window.lead))
            if len(spans) == MOST_RANGES:
                sqns.discard(sqns.first, spans[-1].last)
                if len(sqns):
                    self._pending[reason] = sqns, retry_after
            if spans:
                return encode_ncf(Ncf(window, reason, retry_after, spans))
        return None

    def clear(self) -> None:
        """Say nothing more."""
        self._pending.clear()
