"""The loss-tolerant controller (after BBR, draft-ietf-ccwg-bbr).

When the controller has found the bandwidth of the path, it keeps that rate (CRUISE). Every few
round trips it probes for more bandwidth (UP), and then sends less until the queue that the probe
made is empty, for three round trips at most (DOWN). If the shortest round trip has not occurred for
five seconds, the controller keeps the queue empty on purpose to measure it again (PROBE_RTT). If
the sender has paused meanwhile, its queue is empty already, and the controller adopts the next
sample.
"""

from sphtp.core.channel.congestion.delivery_rate import Ack, Lost
from sphtp.core.channel.congestion.new_reno import CLOCK_GRAIN, FEWEST_DATAGRAMS, initial_window
from sphtp.core.fsm import Machine, Name, Row, Runner


class TolerantPhase(Name):
    """The phases of the controller."""

    STARTUP = "doubling the rate each round trip"
    DRAIN = "emptying the queue from doubling the rate"
    CRUISE = "keeping the rate"
    UP = "probing for more bandwidth"
    DOWN = "emptying the queue from probing, or leaving room for other flows"
    PROBE_RTT = "keeping the queue empty, to measure the shortest round trip"


class TolerantEvent(Name):
    """The events that end phases."""

    FULL = "the rate stopped growing, or many packets were lost"
    DRAINED = "the bytes in flight fit the path, or three round trips passed"
    CRUISED = "three round trips passed"
    TRIED = "the probe has its result, or many packets were lost"
    STALE = "the shortest round trip has not occurred for five seconds"
    SEEN = "the measurement took a tenth of a second and a round trip"
    PERSISTENT = "persistent congestion, or packets take another path"


class TolerantAction(Name):
    """The actions of the controller."""

    AGE_RATE = "forget the highest rates of all cycles but the one that ends"
    BEGIN_ROUNDS = "start to count round trips"
    RAISE_BOUND = "raise the bound on the bytes in flight that losses have set"
    BEGIN_PROBE_RTT = "clear the timer of the measurement, which starts when the queue is empty"
    ADOPT = "adopt the measured round trip as the shortest"
    FORGET = "start from the smallest window, with an empty model"


S, E, A = TolerantPhase, TolerantEvent, TolerantAction

ROWS: tuple[Row[TolerantPhase, TolerantEvent, TolerantAction], ...] = (
    Row(S.STARTUP, E.FULL, S.DRAIN, (A.BEGIN_ROUNDS,), "the path is full, and so is its queue"),
    Row(S.STARTUP, E.PERSISTENT, S.STARTUP, (A.FORGET,), "the path has changed"),
    Row(S.DRAIN, E.DRAINED, S.CRUISE, (A.AGE_RATE, A.BEGIN_ROUNDS), "the rate is known"),
    Row(S.DRAIN, E.PERSISTENT, S.STARTUP, (A.FORGET,), "the path has changed"),
    Row(S.CRUISE, E.CRUISED, S.UP, (A.BEGIN_ROUNDS, A.RAISE_BOUND), "other flows may have ended"),
    Row(
        S.CRUISE,
        E.STALE,
        S.PROBE_RTT,
        (A.BEGIN_PROBE_RTT,),
        "a queue may hide the round trip",
    ),
    Row(S.CRUISE, E.PERSISTENT, S.STARTUP, (A.FORGET,), "the path has changed"),
    Row(S.UP, E.TRIED, S.DOWN, (A.AGE_RATE, A.BEGIN_ROUNDS), "probing creates a queue"),
    Row(S.UP, E.PERSISTENT, S.STARTUP, (A.FORGET,), "the path has changed"),
    Row(
        S.DOWN,
        E.DRAINED,
        S.CRUISE,
        (A.BEGIN_ROUNDS,),
        "the queue is gone, or a longer wait would not empty it",
    ),
    Row(
        S.DOWN,
        E.STALE,
        S.PROBE_RTT,
        (A.BEGIN_PROBE_RTT,),
        "the queue stays: other flows may cause it",
    ),
    Row(S.DOWN, E.PERSISTENT, S.STARTUP, (A.FORGET,), "the path has changed"),
    Row(S.PROBE_RTT, E.SEEN, S.CRUISE, (A.ADOPT, A.BEGIN_ROUNDS), "the round trip is known"),
    Row(S.PROBE_RTT, E.PERSISTENT, S.STARTUP, (A.FORGET,), "the path has changed"),
)

TOLERANT = Machine(
    "Loss-tolerant congestion control",
    S.STARTUP,
    ROWS,
    events=TolerantEvent,
    refused={
        S.STARTUP: frozenset({E.DRAINED, E.CRUISED, E.TRIED, E.STALE, E.SEEN}),
        S.DRAIN: frozenset({E.FULL, E.CRUISED, E.TRIED, E.STALE, E.SEEN}),
        S.CRUISE: frozenset({E.FULL, E.DRAINED, E.TRIED, E.SEEN}),
        S.UP: frozenset({E.FULL, E.DRAINED, E.CRUISED, E.STALE, E.SEEN}),
        S.DOWN: frozenset({E.FULL, E.CRUISED, E.TRIED, E.SEEN}),
        S.PROBE_RTT: frozenset({E.FULL, E.DRAINED, E.CRUISED, E.TRIED, E.STALE}),
    },
)


# Seconds added to the round trip when the capacity of the path is computed: processes wake late.
GRAIN = 0.002


class PathModel:
    """Bandwidth, round trip and losses of the path, filtered over rounds.

    A round ends when a packet that left after its start is acked. ``shortest`` is the shortest
    round trip, infinity before the first sample, and ``shortest_at`` the time at which it last
    occurred. ``loss_share`` is the share of lost bytes in the last round.
    """

    __slots__ = (
        "_bunches",
        "_delivered",
        "_holds",
        "_lost",
        "_rates",
        "_round_start",
        "loss_share",
        "shortest",
        "shortest_at",
    )

    def __init__(self) -> None:
        self.shortest = float("inf")
        self.shortest_at = 0.0
        self.loss_share = 0.0
        self._rates = (0.0, 0.0)
        self._bunches = (0, 0)
        self._holds = (0.0, 0.0)
        self._round_start = 0.0
        self._delivered = 0
        self._lost = 0

    @property
    def rate(self) -> float:
        """The highest delivery rate of this cycle and the last, in bytes/s; 0 while unknown."""
        return max(self._rates)

    def holds(self, gain: float) -> float:
        """Return ``gain`` times the bytes that fill the path: bandwidth times round trip.

        Infinity while one of them is unknown.
        """
        if not self.rate or self.shortest == float("inf"):
            return float("inf")
        return gain * self.rate * (self.shortest + GRAIN)

    def held(self, gain: float) -> float:
        """Return the bytes in flight beyond ``holds``: those whose acks the receiver holds back."""
        return max(*self._bunches, gain * self.rate * max(self._holds))

    def acked(self, now: float, ack: Ack) -> bool:
        """Handle an ack; return True if it ends a round."""
        self._delivered += ack.size
        self._bunches = (self._bunches[0], max(self._bunches[1], ack.size))
        if ack.round_trip is not None:
            self._note_round_trip(now, ack.round_trip, now - ack.sent_at)
        rate = ack.delivered_rate
        # An app-limited sample is only a lower bound.
        if rate is not None and (ack.limited or rate > self.rate):
            self._rates = (self._rates[0], max(self._rates[1], rate))
        if ack.sent_at < self._round_start:
            return False
        self._end_round(now)
        return True

    def lost(self, size: int) -> None:
        """Count lost bytes."""
        self._lost += size

    def spurious(self, size: int) -> None:
        """Subtract lost bytes that were acked after all."""
        self._lost = max(self._lost - size, 0)

    def age_rate(self) -> None:
        """End the cycle, if it has a rate: forget the rates of all cycles before it."""
        if self._rates[1]:
            self._rates = (self._rates[1], 0.0)

    def adopt(self, now: float, round_trip: float) -> None:
        """Replace the shortest round trip."""
        self.shortest, self.shortest_at = round_trip, now

    def _note_round_trip(self, now: float, round_trip: float, elapsed: float) -> None:
        if round_trip <= self.shortest:
            self.shortest, self.shortest_at = round_trip, now
        # If the window is below the receiver's ack interval, each ack waits for the ack delay.
        self._holds = (self._holds[0], max(self._holds[1], elapsed - round_trip))

    def _end_round(self, now: float) -> None:
        total = self._delivered + self._lost
        self.loss_share = self._lost / total if total else 0.0
        self._round_start = now
        self._delivered = self._lost = 0
        self._bunches = (self._bunches[1], 0)
        self._holds = (self._holds[1], 0.0)


# The controller: it does not take a loss for a full queue (after BBR, draft-ietf-ccwg-bbr).
#
# It measures bandwidth and round trip of the path, sends at that bandwidth, and limits the bytes in
# flight by their product: 1.25 times as many while it keeps its rate. Losses matter only if over a
# fifth of a round is lost. Then the queue of the path is short, and the bytes in flight get a
# bound.


PACING_GAIN: dict[TolerantPhase, float] = {
    TolerantPhase.STARTUP: 2.77,
    TolerantPhase.DRAIN: 0.5,
    TolerantPhase.CRUISE: 1.0,
    TolerantPhase.UP: 1.25,
    TolerantPhase.DOWN: 0.75,
    TolerantPhase.PROBE_RTT: 1.0,
}
WINDOW_GAIN: dict[TolerantPhase, float] = {
    TolerantPhase.STARTUP: 2.0,
    TolerantPhase.DRAIN: 2.0,
    TolerantPhase.CRUISE: 1.25,
    TolerantPhase.UP: 1.6,
    TolerantPhase.DOWN: 1.25,
    TolerantPhase.PROBE_RTT: 0.5,
}

# Slightly below the bandwidth of the path, or an existing queue would never empty.
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
PROBE_RTT_TIME = 0.1
# In DRAIN, DOWN and PROBE_RTT the bytes in flight should fall within this many rounds. If they do
# not, because the path got longer or other flows fill its queue, a longer wait shows nothing new
# (as BBR leaves Drain).
EMPTYING_ROUNDS = 3


class LossTolerant:
    """The controller that runs the table of phases over a model of the path."""

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
        self._probe_rtt = float("inf")
        self._probe_rtt_end = 0.0
        self._busy_since = float("-inf")
        self._judges = {
            TolerantPhase.STARTUP: self._judge_startup,
            TolerantPhase.DRAIN: self._judge_drain,
            TolerantPhase.CRUISE: self._judge_cruise,
            TolerantPhase.UP: self._judge_up,
            TolerantPhase.DOWN: self._judge_drain,
            TolerantPhase.PROBE_RTT: self._judge_probe_rtt,
        }

    @property
    def phase(self) -> str:
        """The name of the controller's phase, in lower case."""
        return self.state.name.lower()

    def acked(self, now: float, ack: Ack) -> None:
        """Update the model, end the phase if that is due, and set window and rate."""
        if ack.round_trip is not None:
            self._probe_rtt = min(self._probe_rtt, ack.round_trip)
            # After a pause no packet of this sender is in the queue, so this sample is accurate.
            if ack.busy_since > self._busy_since and self._is_stale(now):
                self._path.adopt(now, ack.round_trip)
            self._busy_since = ack.busy_since
        ends_round = self._path.acked(now, ack)
        if ends_round:
            self._rounds += 1
            self._heed_losses()
        sign = self._judges[self.state](now, ack, ends_round)
        if sign is None and self._is_stale(now):
            sign = TolerantEvent.STALE
        if sign is not None:
            self._step(now, sign)
        self._set_window(ack)
        self._pace(ack.smoothed)

    def lost(self, now: float, loss: Lost) -> None:
        """Count lost bytes. Only a round in which over a fifth is lost changes anything."""
        self._path.lost(loss.size)

    def spurious(self, now: float, size: int) -> None:
        """Subtract losses that were spurious."""
        self._path.spurious(size)

    def persistent(self, now: float) -> None:
        """Start again from the smallest window, with an empty model of the path."""
        self._step(now, TolerantEvent.PERSISTENT)

    def resize(self, datagram: int) -> None:
        """Adopt another size of datagrams; an initial window becomes that of the new size."""
        if self.window == initial_window(self._datagram):
            self.window = initial_window(datagram)
        self._datagram = datagram
        self.window = self._clamp(self.window)

    def _judge_startup(self, now: float, ack: Ack, ends_round: bool) -> TolerantEvent | None:
        if not self._path.rate:
            return None
        if self._path.rate > self._highest * GROWING:
            self._highest = self._path.rate
            self._rounds = 0
        is_still = self._rounds >= STILL_ROUNDS and ack.limited
        is_over = self._rounds >= 1 and self._is_loss_heavy(ends_round)
        return TolerantEvent.FULL if is_still or is_over else None

    def _is_stale(self, now: float) -> bool:
        return now - self._path.shortest_at > STALE_AFTER

    def _judge_drain(self, now: float, ack: Ack, ends_round: bool) -> TolerantEvent | None:
        # If the path holds less than the smallest window, no less than that window is in flight.
        is_empty = ack.in_flight <= self._clamp(self._path.holds(1.0))
        return TolerantEvent.DRAINED if is_empty or self._rounds >= EMPTYING_ROUNDS else None

    def _judge_cruise(self, now: float, ack: Ack, ends_round: bool) -> TolerantEvent | None:
        return TolerantEvent.CRUISED if self._rounds >= CRUISE_ROUNDS else None

    def _judge_up(self, now: float, ack: Ack, ends_round: bool) -> TolerantEvent | None:
        has_filled = ack.in_flight >= self._path.holds(FULL) or not ack.limited
        is_tried = self._rounds >= 1 and (has_filled or self._rounds >= UP_ROUNDS)
        return TolerantEvent.TRIED if is_tried or self._is_loss_heavy(ends_round) else None

    def _judge_probe_rtt(self, now: float, ack: Ack, ends_round: bool) -> TolerantEvent | None:
        is_empty = ack.in_flight <= self._clamp(self._target(TolerantPhase.PROBE_RTT))
        if not self._probe_rtt_end and (is_empty or self._rounds >= EMPTYING_ROUNDS):
            self._probe_rtt_end = now + PROBE_RTT_TIME
            self._probe_rtt = float("inf")
            self._begin_rounds(now)
        is_seen = self._probe_rtt_end and now >= self._probe_rtt_end and self._rounds >= 1
        return TolerantEvent.SEEN if is_seen else None

    def _step(self, now: float, sign: TolerantEvent) -> None:
        _RUNNER.step(self, sign, now)

    def _age_rate(self, now: float) -> None:
        self._path.age_rate()

    def _begin_rounds(self, now: float) -> None:
        self._rounds = 0

    def _raise_bound(self, now: float) -> None:
        self._bound *= BOUND_GROWTH

    def _begin_probe_rtt(self, now: float) -> None:
        self._probe_rtt_end = 0.0
        self._rounds = 0

    def _adopt(self, now: float) -> None:
        shortest = self._probe_rtt if self._probe_rtt < float("inf") else self._path.shortest
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
        # In STARTUP many losses may be of packets that left before it, so they set no bound.
        if self.state is not TolerantPhase.STARTUP and self._is_loss_heavy(ends_round=True):
            lower = HEAVY_RESPONSE * min(self._bound, self.window)
            self._bound = max(lower, min(self._path.holds(1.0), self.window))

    def _set_window(self, ack: Ack) -> None:
        target = min(self._target(self.state), self._bound)
        grown = self.window + ack.size if ack.limited else self.window
        if self.state is TolerantPhase.STARTUP:
            # In STARTUP the window never shrinks for want of samples, and at most doubles.
            target = max(target, self.window)
        self.window = self._clamp(min(target, grown))

    def _target(self, phase: TolerantPhase) -> float:
        gain = WINDOW_GAIN[phase]
        return self._path.holds(gain) + self._path.held(gain)

    def _clamp(self, window: float) -> int:
        bounded = min(window, self._limit)
        return int(min(max(bounded, FEWEST_DATAGRAMS * self._datagram), self._limit))

    def _pace(self, smoothed: float) -> None:
        gain = PACING_GAIN[self.state]
        if self._path.rate:
            # At least one packet per round trip: PINGs would use up a slower rate.
            least = self._datagram / max(smoothed, CLOCK_GRAIN)
            rate = max(gain * MARGIN * self._path.rate, least)
        elif smoothed > 0:
            rate = gain * self.window / max(smoothed, CLOCK_GRAIN)
        else:
            return
        is_starting = self.state is TolerantPhase.STARTUP and self.pacing_rate is not None
        self.pacing_rate = max(rate, self.pacing_rate or 0.0) if is_starting else rate

    @classmethod
    def runner(cls) -> Runner[TolerantPhase, TolerantEvent, TolerantAction]:
        return Runner(
            TOLERANT,
            {
                TolerantAction.AGE_RATE: cls._age_rate,
                TolerantAction.BEGIN_ROUNDS: cls._begin_rounds,
                TolerantAction.RAISE_BOUND: cls._raise_bound,
                TolerantAction.BEGIN_PROBE_RTT: cls._begin_probe_rtt,
                TolerantAction.ADOPT: cls._adopt,
                TolerantAction.FORGET: cls._forget,
            },
            ignored=TolerantEvent,
        )


_RUNNER = LossTolerant.runner()
