"""NewReno by numbers (RFC 9002, section 7): one reaction per round trip, and its undoing."""

from sphtp.core.channel.congestion.delivery_rate import Ack, Lost
from sphtp.core.channel.congestion.new_reno import NewReno, RecoveryEpoch

DATAGRAM = 1200


def ack(sent_at: float, size: int, *, limited: bool = True) -> Ack:
    return Ack(size, sent_at, 0.05, 0.05, 0.05, 0, limited, None)


def test_slow_start_half_and_one_datagram_per_round_trip() -> None:
    controller = NewReno(DATAGRAM, 10_000_000)
    controller.acked(1.05, ack(1.0, 12_000))
    assert controller.window == 24_000
    assert controller.pacing_rate == 2 * 24_000 / 0.05
    controller.lost(1.1, Lost(DATAGRAM, 1.05, 0))
    assert controller.window == 12_000
    for _ in range(9):
        controller.acked(1.2, ack(1.15, DATAGRAM))
    assert controller.window == 12_000
    controller.acked(1.2, ack(1.15, DATAGRAM))
    assert controller.window == 13_200
    assert controller.pacing_rate == 1.25 * 13_200 / 0.05


def test_after_persistent_congestion_it_slow_starts_to_the_threshold() -> None:
    controller = NewReno(DATAGRAM, 10_000_000)
    controller.acked(1.05, ack(1.0, 36_000))
    controller.lost(2.0, Lost(48_000, 1.9, 0))
    controller.persistent(2.0)
    assert controller.window == 2400
    controller.acked(2.1, ack(2.05, 21_600))
    assert controller.window == 24_000
    controller.acked(2.2, ack(2.15, 24_000))
    assert controller.window == 25_200


def test_it_answers_for_what_left_before_it_began() -> None:
    recovery: RecoveryEpoch[str] = RecoveryEpoch()
    assert recovery.started < 0.0
    recovery.begin(2.0, "before")
    assert recovery.started == 2.0
    recovery.reset()
    assert recovery.started < 0.0


def test_all_must_come_back() -> None:
    recovery: RecoveryEpoch[str] = RecoveryEpoch()
    recovery.begin(2.0, "before")
    recovery.lost(300)
    recovery.lost(100)
    assert recovery.spurious(300) is None
    assert recovery.spurious(100) == "before"
    assert recovery.spurious(100) is None


def test_a_new_reaction_answers_for_its_own_losses() -> None:
    recovery: RecoveryEpoch[str] = RecoveryEpoch()
    recovery.begin(2.0, "first")
    recovery.lost(300)
    recovery.begin(3.0, "second")
    recovery.lost(100)
    assert recovery.spurious(100) == "second"
