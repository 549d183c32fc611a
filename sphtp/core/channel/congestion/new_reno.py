"""NewReno, and the base of the loss-based controllers: one reaction to losses per round trip.

A reaction is undone if its losses were spurious (RFC 9438, 4.9). A loss is spurious when the packet
is acked after all: the packet was late, and no queue was full.
"""

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

from sphtp.core.channel.congestion.delivery_rate import Ack, Lost

T = TypeVar("T")


class RecoveryEpoch(Generic[T]):
    """The latest reaction to losses: its time, the lost bytes behind it, and the state before."""

    __slots__ = ("_before", "_lost", "started")

    def __init__(self) -> None:
        # The time of the reaction. Lost packets that left before it cause no further reaction.
        self.started = float("-inf")
        self._lost = 0
        self._before: T | None = None

    def begin(self, now: float, before: T) -> None:
        """Start a reaction; ``before`` is the state to restore if its losses were spurious."""
        self.started, self._lost, self._before = now, 0, before

    def lost(self, size: int) -> None:
        """Count lost bytes that belong to the latest reaction."""
        self._lost += size

    def spurious(self, size: int) -> T | None:
        """Subtract spurious losses; if no loss remains, return the state to restore, else None."""
        self._lost -= size
        if self._before is None or self._lost > 0:
            return None
        before = self._before
        self.reset()
        return before

    def reset(self) -> None:
        """Forget the latest reaction."""
        self.started, self._lost, self._before = float("-inf"), 0, None


# The base of controllers that take a loss for a full queue (RFC 9002, section 7).
#
# The window grows fast up to a threshold (slow start), shrinks once per round trip with losses, and
# grows slowly from there (congestion avoidance).


INITIAL_DATAGRAMS = 10
INITIAL_BYTES = 14_720
FEWEST_DATAGRAMS = 2

# Pacing is faster than a window per round trip: in slow start the window can then double, and after
# it the window stays full (RFC 9002, 7.7).
SLOW_START_GAIN = 2.0
AVOIDANCE_GAIN = 1.25

# The resolution of clocks, in seconds.
CLOCK_GRAIN = 1e-6


def initial_window(datagram: int) -> int:
    """Return the window before the first ack, in bytes (RFC 9002, 7.2)."""
    return min(INITIAL_DATAGRAMS * datagram, max(INITIAL_BYTES, FEWEST_DATAGRAMS * datagram))


class Checkpoint(NamedTuple):
    """The state to restore when all losses behind a reaction were spurious. Sizes are in bytes.

    ``peak`` is W_max of CUBIC, 0 in NewReno.
    """

    window: int
    threshold: float
    peak: float


class LossBased(ABC):
    """A controller with one reaction per round trip, which can be undone.

    Subclasses define how the window grows and shrinks.
    """

    def __init__(self, datagram: int, limit: int) -> None:
        self.window = min(initial_window(datagram), limit)
        self.pacing_rate: float | None = None
        self._datagram = datagram
        self._limit = limit
        self._threshold = float("inf")
        # The window at the last loss, or less after fast convergence, in bytes; only CUBIC uses it.
        self._peak = 0.0
        self._recovery: RecoveryEpoch[Checkpoint] = RecoveryEpoch()

    @property
    def phase(self) -> str:
        """The name of the phase: ``slow_start`` or ``congestion_avoidance``."""
        return "slow_start" if self.window < self._threshold else "congestion_avoidance"

    @abstractmethod
    def acked(self, now: float, ack: Ack) -> None:
        """Grow the window if it was the limit and the packets left after the last reaction."""

    @abstractmethod
    def _shrink(self) -> None:
        """Set threshold and window after a loss."""

    def lost(self, now: float, loss: Lost) -> None:
        """Shrink the window if a packet left after the last reaction: once per round trip."""
        if loss.newest_sent_at > self._recovery.started:
            self._react(now)
        self._recovery.lost(loss.size)

    def spurious(self, now: float, size: int) -> None:
        """Undo the latest reaction when all its losses were spurious (RFC 9438, 4.9)."""
        before = self._recovery.spurious(size)
        if before is not None:
            self._undo(before)

    def persistent(self, now: float) -> None:
        """Reduce the window to the smallest; slow start up to the threshold follows.

        The lost packets may be reported before or after; together they cause one reaction.
        """
        if now > self._recovery.started:
            self._react(now)
        self._set_window(0)

    def resize(self, datagram: int) -> None:
        """Adopt another size of datagrams; an initial window becomes that of the new size."""
        if self.window == initial_window(self._datagram):
            self.window = initial_window(datagram)
        self._datagram = datagram
        self._set_window(self.window)

    def _react(self, now: float) -> None:
        self._recovery.begin(now, Checkpoint(self.window, self._threshold, self._peak))
        # A loss at the smallest window is no evidence of the capacity of the path.
        if self.window > FEWEST_DATAGRAMS * self._datagram:
            self._shrink()

    def _undo(self, before: Checkpoint) -> None:
        self._set_window(max(before.window, self.window))
        self._threshold, self._peak = before.threshold, before.peak

    def _set_window(self, window: int) -> None:
        self.window = min(max(window, FEWEST_DATAGRAMS * self._datagram), self._limit)

    def _grow_to(self, window: int, smoothed: float) -> None:
        """Set the window, up to the limit, and the pacing rate after an ack."""
        self.window = window = min(window, self._limit)
        if smoothed > 0:
            gain = SLOW_START_GAIN if window < self._threshold else AVOIDANCE_GAIN
            self.pacing_rate = gain * window / max(smoothed, CLOCK_GRAIN)


BETA = 0.5


class NewReno(LossBased):
    """The controller NewReno, as in RFC 9002, section 7.

    After slow start the window grows by one datagram per round trip, and halves after a loss.
    """

    def __init__(self, datagram: int, limit: int) -> None:
        super().__init__(datagram, limit)
        self._acked = 0

    def acked(self, now: float, ack: Ack) -> None:
        """Grow by the acked bytes in slow start, and by a datagram per round trip after it."""
        window = self.window
        if ack.limited and ack.sent_at > self._recovery.started:
            if window < self._threshold:
                window += ack.size
            else:
                self._acked += ack.size
                if self._acked >= window:
                    self._acked -= window
                    window += self._datagram
        self._grow_to(window, ack.smoothed)

    def _shrink(self) -> None:
        self._acked = 0
        self._set_window(int(self.window * BETA))
        self._threshold = float(self.window)
