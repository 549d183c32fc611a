"""CUBIC (RFC 9438), with HyStart++ in its first slow start.

The window is a cubic function of the time since the last loss. It grows fast at first, slowly near
the size at which that loss occurred, and then fast again to find free bandwidth. So its growth does
not depend on the round trip. On short paths, where Reno would grow faster, it grows as Reno does.
"""

from sphtp.core.channel.congestion.delivery_rate import Ack, Lost
from sphtp.core.channel.congestion.hystart import HyStart
from sphtp.core.channel.congestion.new_reno import Checkpoint, LossBased

C = 0.4
BETA = 0.7
RENO_GROWTH = 3 * (1 - BETA) / (1 + BETA)
STEEPEST = 1.5


class Cubic(LossBased):
    """The controller CUBIC.

    ``_peak`` is W_max of RFC 9438, and ``_prior`` is cwnd_prior, in bytes, so that they hold for
    datagrams of any size. ``_reno`` is W_est, in datagrams, and ``_inflection`` is K, in seconds.
    """

    def __init__(self, datagram: int, limit: int) -> None:
        super().__init__(datagram, limit)
        self._slow = HyStart(datagram)
        self._epoch: float | None = None
        self._inflection = 0.0
        self._reno = 0.0
        self._prior = 0.0
        self._used_at = 0.0

    def acked(self, now: float, ack: Ack) -> None:
        """Grow by HyStart++ in the first slow start, and by the curve in congestion avoidance."""
        window = self.window
        if ack.busy_since > self._used_at:
            # A pause does not count as time of the curve (RFC 9438, 5.8).
            if self._epoch is not None:
                self._epoch += ack.busy_since - self._used_at
            self._used_at = ack.busy_since
        if not ack.limited:
            # Time in which the window was not used does not count either.
            if self._epoch is not None:
                self._epoch += now - self._used_at
        elif ack.sent_at <= self._recovery.started:
            # These packets left before the reaction to the last loss.
            pass
        elif window >= self._threshold:
            window = self._avoid(now, ack)
        elif self._slow.is_over:
            # Only the first slow start needs HyStart++; later ones have a threshold (RFC 9406).
            window += ack.size
        else:
            window += int(ack.size * self._slow.growth(now, ack))
            if self._slow.is_over:
                self._threshold = min(window, self._limit)
        self._used_at = now
        self._grow_to(window, ack.smoothed)

    def lost(self, now: float, loss: Lost) -> None:
        """Shrink the window once per round trip. A loss also ends the first slow start."""
        self._slow.lost()
        super().lost(now, loss)

    def persistent(self, now: float) -> None:
        """Start from the smallest window: slow start, then a new curve (RFC 9438, 4.8)."""
        super().persistent(now)
        self._epoch = None

    def resize(self, datagram: int) -> None:
        """Adopt another size of datagrams; the curve, which counts in datagrams, begins anew."""
        super().resize(datagram)
        self._slow.resize(datagram)
        self._epoch = None

    def _undo(self, before: Checkpoint) -> None:
        super()._undo(before)
        self._epoch = None

    def _avoid(self, now: float, ack: Ack) -> int:
        """Return the window after an ack in congestion avoidance."""
        if self._epoch is None:
            self._begin_epoch(now)
        window = self.window / self._datagram
        target = self._curve(now + ack.smoothed)
        grown = window + (min(max(target, window), STEEPEST * window) - window) * (
            ack.size / self.window
        )
        # From the window of the last loss on, Reno grows by a full datagram again.
        growth = RENO_GROWTH if self._reno * self._datagram < self._prior else 1.0
        self._reno += growth * ack.size / self.window
        return round(max(grown, self._reno) * self._datagram)

    def _shrink(self) -> None:
        self._prior = float(self.window)
        # Fast convergence: a window that shrinks again makes room for a newcomer.
        self._peak = self._prior * (1 + BETA) / 2 if self._prior < self._peak else self._prior
        self._set_window(int(self.window * BETA))
        self._threshold = float(self.window)
        self._epoch = None

    def _begin_epoch(self, now: float) -> None:
        self._epoch = now
        self._reno = self.window / self._datagram
        self._peak = max(self._peak, float(self.window))
        self._inflection = ((self._peak - self.window) / self._datagram / C) ** (1 / 3)

    def _curve(self, when: float) -> float:
        """Return W_cubic of RFC 9438 at a time, in datagrams."""
        elapsed = when - (self._epoch or 0.0) - self._inflection
        return C * elapsed * elapsed * elapsed + self._peak / self._datagram
