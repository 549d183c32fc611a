"""NAK confirmations: why a repair does not come now, said once per sqn and ignore interval.

What NAKs of a moment have in common goes into one NCF: the reason, and about how long to wait.
"""

from math import ceil
from typing import Final

from sphtp.core.stream.bodies import Ncf, NcfReason, Window
from sphtp.core.stream.ranges import RangeSet
from sphtp.core.stream.wire import MOST_RANGES, cut, encode_ncf
from sphtp.core.timers import ExpiringDict

ALIKE: Final = 64
"""Milliseconds: waits up to that are told as one; of longer ones, those up to the double."""


class Confirmations:
    """What is still to be confirmed, by reason and order of magnitude of the wait."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        # What was confirmed within the interval.
        self._confirmed = ExpiringDict[int, None]()
        self._pending: dict[tuple[NcfReason, int], tuple[RangeSet, int]] = {}

    @property
    def has_any(self) -> bool:
        """Whether something is to be said."""
        return bool(self._pending)

    def add(self, now: float, sqn: int, reason: NcfReason, retry_after: float) -> None:
        """Confirm a NAK, unless one for the same sqn was confirmed within the interval."""
        self._confirmed.take_expired(now)
        if sqn in self._confirmed:
            return
        self._confirmed.put(sqn, None, now + self._interval)
        # Who asks again too early gets no answer at all: whole milliseconds, which is what travels,
        # and the latest of all that are told as one.
        wait = ceil(retry_after * 1000)
        kind = reason, max(wait, ALIKE).bit_length()
        sqns, latest = self._pending.get(kind) or (RangeSet(), 0)
        sqns.add(sqn, sqn)
        self._pending[kind] = sqns, max(latest, wait)

    def pop(self, window: Window) -> bytes | None:
        """Take the next NCF; None when all is said."""
        while self._pending:
            kind, (sqns, wait) = self._pending.popitem()
            spans = cut(sqns.within(window.trail, window.lead))
            if len(spans) == MOST_RANGES:
                sqns.discard(sqns.first, spans[-1].last)
                if len(sqns):
                    self._pending[kind] = sqns, wait
            if spans:
                return encode_ncf(Ncf(window, kind[0], wait / 1000, spans))
        return None

    def clear(self) -> None:
        """Say nothing more."""
        self._pending.clear()
