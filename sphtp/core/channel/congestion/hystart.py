"""HyStart++ (RFC 9406): end slow start when the round trip grows, before packets get lost.

Slow start doubles the window each round trip, so that half a window may be lost when the queue of
the path overflows. The round trip shows a queue earlier: its minimum in one round exceeds its
minimum in the round before by an eighth, but at least by 4 ms, and 16 ms suffice. From then on the
window grows at a quarter of that pace for five rounds, after which slow start is over. If the round
trip falls again before, the rise was jitter, and slow start goes on.
"""

from sphtp.core.channel.congestion.delivery_rate import Ack
from sphtp.core.fsm import Machine, Name, Row, Runner

SAMPLES = 8
SHORTEST_RISE = 0.004
LONGEST_RISE = 0.016
RISE_SHARE = 1 / 8
CAREFUL_ROUNDS = 5


class HyStartPhase(Name):
    """The phases of slow start."""

    DOUBLING = "the window grows by the acked bytes"
    CAREFUL = "the window grows by a quarter of the acked bytes"
    OVER = "slow start is over"


class HyStartEvent(Name):
    """The events of slow start."""

    ROSE = "the shortest round trip of a round is longer than that of the one before"
    FELL = "the shortest round trip of a round is shorter again than at its rise"
    CAREFUL_OVER = "the round trip stayed longer for some rounds"
    LOSS = "packets were lost"


class HyStartAction(Name):
    """The actions of slow start."""

    TAKE_BASELINE = "record the shortest round trip, and start to count rounds"


S, E = HyStartPhase, HyStartEvent

ROWS: tuple[Row[HyStartPhase, HyStartEvent, HyStartAction], ...] = (
    Row(
        S.DOUBLING,
        E.ROSE,
        S.CAREFUL,
        (HyStartAction.TAKE_BASELINE,),
        "the path has a queue, or jitter",
    ),
    Row(S.DOUBLING, E.LOSS, S.OVER, (), "the queue is full"),
    Row(S.CAREFUL, E.FELL, S.DOUBLING, (), "the rise was jitter"),
    Row(S.CAREFUL, E.CAREFUL_OVER, S.OVER, (), "the rise is due to a queue, not to jitter"),
    Row(S.CAREFUL, E.LOSS, S.OVER, (), "the queue is full"),
    Row(S.OVER, E.LOSS, S.OVER, (), "slow start has ended already"),
)

SLOW_START = Machine(
    "Slow start",
    S.DOUBLING,
    ROWS,
    events=HyStartEvent,
    final=frozenset({S.OVER}),
    refused={
        S.DOUBLING: frozenset({E.FELL, E.CAREFUL_OVER}),
        S.CAREFUL: frozenset({E.ROSE}),
        S.OVER: frozenset({E.ROSE, E.FELL, E.CAREFUL_OVER}),
    },
)

GROWTH: dict[HyStartPhase, float] = {S.DOUBLING: 1.0, S.CAREFUL: 0.25, S.OVER: 1.0}


class HyStart:
    """The detector of the end of slow start, by the shortest round trip of each round."""

    def __init__(self, datagram: int) -> None:
        self.state = SLOW_START.initial
        self._enough = SAMPLES * datagram
        self._round_start = 0.0
        self._last = self._shortest = float("inf")
        self._sampled = 0
        self._baseline = 0.0
        self._careful_rounds = 0

    @property
    def is_over(self) -> bool:
        """True if slow start is over, so that congestion avoidance follows."""
        return self.state in SLOW_START.final

    def growth(self, now: float, ack: Ack) -> float:
        """Handle an ack; return the share of the acked bytes by which the window may grow."""
        if ack.sent_at >= self._round_start:
            # A packet that left after this round began is acked, so the round ends.
            self._round_start = now
            self._last, self._shortest, self._sampled = self._shortest, float("inf"), 0
            self._careful_rounds += 1
            if self.state is HyStartPhase.CAREFUL and self._careful_rounds >= CAREFUL_ROUNDS:
                self._step(HyStartEvent.CAREFUL_OVER)
        if ack.round_trip is not None:
            # One ack counts as a sample for each datagram that it acks.
            self._shortest = min(self._shortest, ack.round_trip)
            self._sampled += ack.size
            if self._sampled >= self._enough:
                self._judge()
        return GROWTH[self.state]

    def lost(self) -> None:
        """End slow start, because packets were lost."""
        self._step(HyStartEvent.LOSS)

    def resize(self, datagram: int) -> None:
        """Adopt another size of datagrams, in bytes."""
        self._enough = SAMPLES * datagram

    def _judge(self) -> None:
        if self.state is HyStartPhase.CAREFUL and self._shortest < self._baseline:
            self._step(HyStartEvent.FELL)
        elif self.state is HyStartPhase.DOUBLING and self._shortest >= self._last + self._rise():
            self._step(HyStartEvent.ROSE)

    def _rise(self) -> float:
        return min(max(self._last * RISE_SHARE, SHORTEST_RISE), LONGEST_RISE)

    def _step(self, sign: HyStartEvent) -> None:
        _RUNNER.step(self, sign)

    def _take_baseline(self) -> None:
        self._baseline = self._shortest
        self._careful_rounds = 0

    @classmethod
    def runner(cls) -> Runner[HyStartPhase, HyStartEvent, HyStartAction]:
        return Runner(
            SLOW_START, {HyStartAction.TAKE_BASELINE: cls._take_baseline}, ignored=HyStartEvent
        )


_RUNNER = HyStart.runner()
