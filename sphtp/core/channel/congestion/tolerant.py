"""A controller that takes no loss for a full queue (after BBR, draft-ietf-ccwg-bbr).

It measures what the path carries and how long it is, sends at that rate, and keeps no more in
flight than their product asks for. Losses matter only when they are many: then the queue of the
path is a short one, and what is in flight gets a bound.
"""

from sphtp.core.channel.congestion.loss_based import CLOCK_GRAIN, FEWEST_DATAGRAMS, initial_window
from sphtp.core.channel.congestion.path_model import PathModel
from sphtp.core.channel.congestion.signals import Ack, Lost
from sphtp.core.channel.congestion.tolerant_table import TOLERANT, Phase, Sign, Step
from sphtp.core.fsm import Runner

PACING_GAIN: dict[Phase, float] = {
    Phase.STARTUP: 2.77,
    Phase.DRAIN: 0.5,
    Phase.CRUISE: 1.0,
    Phase.UP: 1.25,
    Phase.DOWN: 0.75,
    Phase.GLANCE: 1.0,
}
WINDOW_GAIN: dict[Phase, float] = {
    Phase.STARTUP: 2.0,
    Phase.DRAIN: 2.0,
    Phase.CRUISE: 1.25,
    Phase.UP: 1.6,
    Phase.DOWN: 1.25,
    Phase.GLANCE: 0.5,
}

# A little less than the path carries, or a queue that is there would never go.
MARGIN = 0.99
GROWING = 1.25
STILL_ROUNDS = 3
CRUISE_ROUNDS = 3
FULL = 1.25
UP_ROUNDS = 3
HEAVY_LOSS = 0.2
HEAVY_RESPONSE = 0.85
BOUND_GROWTH = 1.25
STALE_AFTER = 5.0
GLANCE_TIME = 0.1
# In DRAIN, DOWN and GLANCE less should be in flight soon. Where it is not, because the path got
# longer or others fill its queue, waiting longer shows nothing new (as BBR leaves Drain).
EMPTYING_ROUNDS = 3


class Tolerant:
    """Runs the table of phases over a model of the path."""

    def __init__(self, datagram: int, limit: int) -> None:
        self.state = TOLERANT.initial
        self.window = min(initial_window(datagram), limit)
        self.pacing_rate: float | None = None
        self._datagram = datagram
        self._limit = limit
        self._path = PathModel()
        self._bound = float("inf")
        self._rounds = 0
        self._highest = 0.0
        self._glance = float("inf")
        self._glance_end = 0.0
        self._restarts = False
        self._judges = {
            Phase.STARTUP: self._judge_startup,
            Phase.DRAIN: self._judge_drain,
            Phase.CRUISE: self._judge_cruise,
            Phase.UP: self._judge_up,
            Phase.DOWN: self._judge_drain,
            Phase.GLANCE: self._judge_glance,
        }

    @property
    def phase(self) -> str:
        """The state, by a name in lower case."""
        return self.state.name.lower()

    def sent(self, now: float, size: int, in_flight: int) -> None:
        """Note a pause: nothing of ours is in the queue, so what comes next shows the path."""
        self._restarts = self._restarts or in_flight == 0

    def acked(self, now: float, ack: Ack) -> None:
        """Update the model, see whether the phase is over, set window and rate."""
        if ack.round_trip is not None:
            self._glance = min(self._glance, ack.round_trip)
            if self._restarts and self._is_stale(now):
                self._path.adopt(now, ack.round_trip)
            self._restarts = False
        ends_round = self._path.acked(now, ack)
        if ends_round:
            self._rounds += 1
            self._heed_losses()
        sign = self._judges[self.state](now, ack, ends_round)
        if sign is None and self._is_stale(now):
            sign = Sign.STALE
        if sign is not None:
            self._step(now, sign)
        self._set_window(ack)
        self._pace(ack.smoothed)

    def lost(self, now: float, loss: Lost) -> None:
        """Count it; only a round that loses much matters."""
        self._path.lost(loss.size)

    def spurious(self, now: float, size: int) -> None:
        """Count it back."""
        self._path.spurious(size)

    def persistent(self, now: float) -> None:
        """Start anew, from the smallest window."""
        self._step(now, Sign.PERSISTENT)

    def resize(self, datagram: int) -> None:
        """Take over the new size; a window still at its start is the start of the new size."""
        if self.window == initial_window(self._datagram):
            self.window = initial_window(datagram)
        self._datagram = datagram
        self.window = self._clamp(self.window)

    def _judge_startup(self, now: float, ack: Ack, ends_round: bool) -> Sign | None:
        if not self._path.rate:
            return None
        if self._path.rate > self._highest * GROWING:
            self._highest = self._path.rate
            self._rounds = 0
        is_still = self._rounds >= STILL_ROUNDS and ack.limited
        is_over = self._rounds >= 1 and self._is_loss_heavy(ends_round)
        return Sign.FULL if is_still or is_over else None

    def _is_stale(self, now: float) -> bool:
        return now - self._path.shortest_at > STALE_AFTER

    def _judge_drain(self, now: float, ack: Ack, ends_round: bool) -> Sign | None:
        # On a path that holds less than the smallest window, that window is as empty as it gets.
        is_empty = ack.in_flight <= self._clamp(self._path.holds(1.0))
        return Sign.DRAINED if is_empty or self._rounds >= EMPTYING_ROUNDS else None

    def _judge_cruise(self, now: float, ack: Ack, ends_round: bool) -> Sign | None:
        return Sign.CRUISED if self._rounds >= CRUISE_ROUNDS else None

    def _judge_up(self, now: float, ack: Ack, ends_round: bool) -> Sign | None:
        has_filled = ack.in_flight >= self._path.holds(FULL) or not ack.limited
        is_tried = self._rounds >= 1 and (has_filled or self._rounds >= UP_ROUNDS)
        return Sign.TRIED if is_tried or self._is_loss_heavy(ends_round) else None

    def _judge_glance(self, now: float, ack: Ack, ends_round: bool) -> Sign | None:
        is_empty = ack.in_flight <= self._clamp(self._target(Phase.GLANCE))
        if not self._glance_end and (is_empty or self._rounds >= EMPTYING_ROUNDS):
            self._glance_end = now + GLANCE_TIME
            self._glance = float("inf")
            self._begin_rounds(now)
        is_seen = self._glance_end and now >= self._glance_end and self._rounds >= 1
        return Sign.SEEN if is_seen else None

    def _step(self, now: float, sign: Sign) -> None:
        self._RUNNER.step(self, sign, now)

    def _age_rate(self, now: float) -> None:
        self._path.age_rate()

    def _begin_rounds(self, now: float) -> None:
        self._rounds = 0

    def _raise_bound(self, now: float) -> None:
        self._bound *= BOUND_GROWTH

    def _begin_glance(self, now: float) -> None:
        self._glance_end = 0.0
        self._rounds = 0

    def _adopt(self, now: float) -> None:
        shortest = self._glance if self._glance < float("inf") else self._path.shortest
        self._path.adopt(now, shortest)

    def _forget(self, now: float) -> None:
        self._path = PathModel()
        self._path.shortest_at = now
        self._bound = float("inf")
        self._rounds, self._highest = 0, 0.0
        self.window = self._clamp(0)

    def _is_loss_heavy(self, ends_round: bool) -> bool:
        return ends_round and self._path.loss_share > HEAVY_LOSS

    def _heed_losses(self) -> None:
        # In startup much may be lost of what left before it: it ends, or goes on unbound.
        if self.state is not Phase.STARTUP and self._is_loss_heavy(ends_round=True):
            lower = HEAVY_RESPONSE * min(self._bound, self.window)
            self._bound = max(lower, min(self._path.holds(1.0), self.window))

    def _set_window(self, ack: Ack) -> None:
        target = min(self._target(self.state), self._bound)
        grown = self.window + ack.size if ack.limited else self.window
        if self.state is Phase.STARTUP:
            # It never shrinks for want of samples, and doubles at most.
            target = max(target, self.window)
        self.window = self._clamp(min(target, grown))

    def _target(self, phase: Phase) -> float:
        gain = WINDOW_GAIN[phase]
        return self._path.holds(gain) + self._path.held(gain)

    def _clamp(self, window: float) -> int:
        bounded = min(window, self._limit)
        return int(min(max(bounded, FEWEST_DATAGRAMS * self._datagram), self._limit))

    def _pace(self, smoothed: float) -> None:
        gain = PACING_GAIN[self.state]
        if self._path.rate:
            # One packet per round trip always: pings use up what a slower rate allows.
            least = self._datagram / max(smoothed, CLOCK_GRAIN)
            rate = max(gain * MARGIN * self._path.rate, least)
        elif smoothed > 0:
            rate = gain * self.window / max(smoothed, CLOCK_GRAIN)
        else:
            return
        is_starting = self.state is Phase.STARTUP and self.pacing_rate is not None
        self.pacing_rate = max(rate, self.pacing_rate or 0.0) if is_starting else rate

    _RUNNER = Runner(
        TOLERANT,
        {
            Step.AGE_RATE: _age_rate,
            Step.BEGIN_ROUNDS: _begin_rounds,
            Step.RAISE_BOUND: _raise_bound,
            Step.BEGIN_GLANCE: _begin_glance,
            Step.ADOPT: _adopt,
            Step.FORGET: _forget,
        },
        ignored=Sign,
    )
