"""One reaction per round trip of losses, undone where they were spurious (RFC 9438, 4.9).

A loss is spurious when the packet arrives after all: it was late, and nothing was full.
"""

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

from sphtp.core.channel.congestion.signals import Ack, Lost

T = TypeVar("T")


class RecoveryEpoch(Generic[T]):
    """Remembers when the latest reaction was, what it answered, and what was true before it."""

    __slots__ = ("_before", "_lost", "started")

    def __init__(self) -> None:
        # What left before it was answered for already.
        self.started = float("-inf")
        self._lost = 0
        self._before: T | None = None

    def begin(self, now: float, before: T) -> None:
        """React: from here on a new round trip counts, and ``before`` is what can be restored."""
        self.started, self._lost, self._before = now, 0, before

    def lost(self, size: int) -> None:
        """Count bytes that the latest reaction answers for."""
        self._lost += size

    def spurious(self, size: int) -> T | None:
        """Take lost bytes back; return what to restore once none of them remain."""
        self._lost -= size
        if self._before is None or self._lost > 0:
            return None
        before = self._before
        self.reset()
        return before

    def reset(self) -> None:
        """Forget the latest reaction."""
        self.started, self._lost, self._before = float("-inf"), 0, None


# What controllers share that take a loss for a full queue (RFC 9002, section 7).
#
# The window grows by what is acked until the first loss (slow start), shrinks once per round trip
# in which something is lost, and grows carefully from there (congestion avoidance).


INITIAL_DATAGRAMS = 10
INITIAL_BYTES = 14_720
FEWEST_DATAGRAMS = 2

# Pacing must leave the window room to double in slow start, and to fill after it (RFC 9002, 7.7).
SLOW_START_GAIN = 2.0
AVOIDANCE_GAIN = 1.25

# No clock tells round trips that are shorter.
CLOCK_GRAIN = 1e-6


def initial_window(datagram: int) -> int:
    """Return what may be in flight before anything is known (RFC 9002, 7.2)."""
    return min(INITIAL_DATAGRAMS * datagram, max(INITIAL_BYTES, FEWEST_DATAGRAMS * datagram))


class Checkpoint(NamedTuple):
    """The state to return to when a reaction turns out to be a mistake."""

    window: int
    threshold: float
    peak: float


class LossBased(ABC):
    """One reaction per round trip, and its undoing; how the window grows is the subclass's."""

    def __init__(self, datagram: int, limit: int) -> None:
        self.window = min(initial_window(datagram), limit)
        self.pacing_rate: float | None = None
        self._datagram = datagram
        self._limit = limit
        self._threshold = float("inf")
        self._peak = 0.0
        self._recovery: RecoveryEpoch[Checkpoint] = RecoveryEpoch()

    @property
    def phase(self) -> str:
        """The growth of the window."""
        return "slow_start" if self.window < self._threshold else "congestion_avoidance"

    @abstractmethod
    def acked(self, now: float, ack: Ack) -> None:
        """Grow the window, unless the sender did not use it or a loss was just answered."""

    @abstractmethod
    def _shrink(self) -> None:
        """Set threshold and window after a loss."""

    def lost(self, now: float, loss: Lost) -> None:
        """Shrink the window, once per round trip."""
        if loss.newest_sent_at > self._recovery.started:
            self._react(now)
        self._recovery.lost(loss.size)

    def spurious(self, now: float, size: int) -> None:
        """Undo the latest reaction once nothing remains of its cause (RFC 9438, 4.9)."""
        before = self._recovery.spurious(size)
        if before is not None:
            self._undo(before)

    def persistent(self, now: float) -> None:
        """Fall to the smallest window and slow-start from there.

        The losses behind it may be told before or after; they are answered for once.
        """
        if now > self._recovery.started:
            self._react(now)
        self._set_window(0)

    def resize(self, datagram: int) -> None:
        """Take over the new size; a window still at its start is the start of the new size."""
        if self.window == initial_window(self._datagram):
            self.window = initial_window(datagram)
        self._datagram = datagram
        self._set_window(self.window)

    def _react(self, now: float) -> None:
        self._recovery.begin(now, Checkpoint(self.window, self._threshold, self._peak))
        # A probe lost at the smallest window says nothing new about what the path holds.
        if self.window > FEWEST_DATAGRAMS * self._datagram:
            self._shrink()

    def _undo(self, before: Checkpoint) -> None:
        self._set_window(max(before.window, self.window))
        self._threshold, self._peak = before.threshold, before.peak

    def _set_window(self, window: int) -> None:
        self.window = min(max(window, FEWEST_DATAGRAMS * self._datagram), self._limit)

    def _grow_to(self, window: int, smoothed: float) -> None:
        """Take a window that an ack has let grow, as far as its limit, and the pace to fill it."""
        self.window = window = min(window, self._limit)
        if smoothed > 0:
            gain = SLOW_START_GAIN if window < self._threshold else AVOIDANCE_GAIN
            self.pacing_rate = gain * window / max(smoothed, CLOCK_GRAIN)


BETA = 0.5


class NewReno(LossBased):
    """NewReno as RFC 9002, section 7, has it for packets that are never sent twice.

    One more datagram per round trip; half of the window after a loss.
    """

    def __init__(self, datagram: int, limit: int) -> None:
        super().__init__(datagram, limit)
        self._acked = 0

    def acked(self, now: float, ack: Ack) -> None:
        """Grow by what is acked in slow start, and by a datagram per round trip after it."""
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
