"""Slow start ends where the queue begins (RFC 9406)."""

from sphtp.core.channel.congestion.delivery_rate import Ack
from sphtp.core.channel.congestion.hystart import CAREFUL_ROUNDS, HyStart, HyStartPhase

DATAGRAM = 1200


class Rounds:
    """Feeds rounds of acks, each with one round trip."""

    def __init__(self) -> None:
        self.slow = HyStart(DATAGRAM)
        self.now = 1.0

    def pace(self) -> HyStartPhase:
        return self.slow.state

    def round(self, round_trip: float, datagrams: int = 20) -> float:
        sent_at = self.now
        self.now += round_trip
        growth = 0.0
        for _ in range(datagrams // 4):
            ack = Ack(4 * DATAGRAM, sent_at, round_trip, 0.05, 0.05, 0, True, None)
            growth = self.slow.growth(self.now, ack)
        return growth


def test_a_longer_round_trip_slows_it_and_then_ends_it() -> None:
    rounds = Rounds()
    assert rounds.round(0.05) == 1.0
    assert rounds.round(0.051) == 1.0
    assert rounds.round(0.058) == 0.25
    # The round in which it became careful counts (RFC 9406, section 4.2).
    for _ in range(CAREFUL_ROUNDS):
        assert not rounds.slow.is_over
        rounds.round(0.06)
    assert rounds.slow.is_over


def test_jitter_is_forgiven() -> None:
    rounds = Rounds()
    rounds.round(0.05)
    rounds.round(0.06)
    assert rounds.pace() is HyStartPhase.CAREFUL
    assert rounds.round(0.05) == 1.0
    assert rounds.pace() is HyStartPhase.DOUBLING


def test_few_samples_say_nothing() -> None:
    rounds = Rounds()
    rounds.round(0.05, 4)
    rounds.round(0.09, 4)
    assert rounds.pace() is HyStartPhase.DOUBLING


def test_on_a_fast_path_less_than_4_ms_is_noise() -> None:
    rounds = Rounds()
    rounds.round(0.0002)
    rounds.round(0.003)
    assert rounds.pace() is HyStartPhase.DOUBLING
    rounds.round(0.0071)
    assert rounds.pace() is HyStartPhase.CAREFUL


def test_a_loss_ends_it_for_good() -> None:
    rounds = Rounds()
    rounds.round(0.05)
    rounds.slow.lost()
    rounds.slow.lost()
    rounds.round(0.05)
    assert rounds.slow.is_over
