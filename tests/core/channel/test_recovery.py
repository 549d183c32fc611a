"""Verdicts on packets against RFC 9002: by packets, by time, and probes when nothing is heard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.acks import SentPacket
from sphtp.core.channel.recovery import MOST_REORDERING, SMOOTHING, Recovery
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT

FALLBACK, ACK_DELAY = 0.1, 0.01


def packet(sequence: int, sent_at: float = 0.0, *, eliciting: bool = True) -> SentPacket:
    sent = SentPacket(sequence, sent_at, 100, ())
    sent.eliciting = eliciting
    return sent


def flight(count: int, gap: float = 0.0) -> tuple[Recovery, list[SentPacket]]:
    recovery = Recovery(ACK_DELAY, FALLBACK)
    packets = [packet(number, number * gap) for number in range(count)]
    for sent in packets:
        recovery.sent(sent)
    return recovery, packets


def ack(
    recovery: Recovery, now: float, *packets: SentPacket, delay: float | None = 0.0
) -> list[SentPacket]:
    for acked in packets:
        acked.acked = True
    return recovery.acked(now, packets, delay)


def test_three_packets_later_is_lost() -> None:
    recovery, packets = flight(6)
    assert ack(recovery, 0.1, packets[2]) == []
    assert ack(recovery, 0.1, packets[3]) == [packets[0]]
    assert ack(recovery, 0.1, packets[5]) == [packets[1]]
    assert [it.lost for it in packets] == [True, True, False, False, False, False]
    assert recovery.bytes_in_flight == 100


def test_nine_eighths_of_a_round_trip_later_is_lost() -> None:
    recovery, packets = flight(2, gap=0.01)
    assert ack(recovery, 0.11, packets[1]) == []
    assert recovery.round_trip.latest == pytest.approx(0.1)
    assert recovery.deadline() == pytest.approx(0.1125)
    assert recovery.handle_timeout(0.1124) == ([], None)
    deadline = recovery.deadline()
    assert deadline is not None
    assert recovery.handle_timeout(deadline) == ([packets[0]], None)
    assert recovery.deadline() is None


def test_on_the_shortest_way_time_has_a_grain() -> None:
    recovery, packets = flight(2)
    ack(recovery, 0.00001, packets[1])
    assert recovery.deadline() == pytest.approx(0.001)


def test_packets_that_nothing_overtook_are_probed_and_not_given_up() -> None:
    recovery, packets = flight(3)
    assert recovery.deadline() == pytest.approx(FALLBACK), "the seed's time"
    assert recovery.handle_timeout(0.0999) == ([], None)
    for number, when in enumerate((0.1, 0.3, 0.7, 1.5, 2.3, 3.1), 1):
        deadline = recovery.deadline()
        assert deadline is not None
        assert deadline == pytest.approx(when), "twice as long each, up to eightfold"
        assert recovery.handle_timeout(deadline) == ([], packets[0])
        assert recovery.probes == number
    assert not any(it.lost for it in packets)
    assert recovery.bytes_in_flight == 300


def test_probes_without_number_are_no_number_too_large() -> None:
    recovery, _ = flight(1)
    for _ in range(3000):
        deadline = recovery.deadline()
        assert deadline is not None
        _, probe = recovery.handle_timeout(deadline)
        assert probe is not None
        after = recovery.deadline()
        assert after is not None
        assert deadline < after <= deadline + 8 * FALLBACK + 1e-6


def test_an_ack_ends_the_probing() -> None:
    recovery, packets = flight(3)
    recovery.handle_timeout(0.1)
    recovery.handle_timeout(0.31)
    assert recovery.probes == 2
    ack(recovery, 0.35, packets[0])
    assert recovery.probes == 0
    patience = recovery.round_trip.patience(ACK_DELAY, FALLBACK)
    assert recovery.deadline() == pytest.approx(0.31 + patience)


def test_with_an_estimate_the_probe_is_after_that() -> None:
    recovery, packets = flight(1)
    ack(recovery, 0.2, packets[0], delay=0.0)
    recovery.sent(packet(1, 1.0))
    assert recovery.deadline() == pytest.approx(1.0 + 0.2 + 4 * 0.1 + ACK_DELAY)


def test_only_the_ack_that_the_header_names_is_a_sample() -> None:
    recovery, packets = flight(3)
    ack(recovery, 5.0, packets[0], delay=None)
    assert recovery.round_trip.smoothed is None
    quiet = packet(3, eliciting=False)
    ack(recovery, 5.0, quiet, delay=0.0)
    assert recovery.round_trip.smoothed is None


def test_a_path_that_reorders_is_given_more_room() -> None:
    recovery, packets = flight(100)
    assert ack(recovery, 0.1, packets[5]) == packets[:3]
    assert ack(recovery, 0.1, packets[0]) == [], "it came all the same"
    assert ack(recovery, 0.1, packets[10]) == packets[3:5]
    assert ack(recovery, 0.1, packets[90]) == packets[6:10] + packets[11:85]
    assert ack(recovery, 0.1, packets[20]) == []
    assert recovery._reordering == MOST_REORDERING, "but not without end"


def test_a_late_ack_counts_once() -> None:
    recovery, packets = flight(5)
    ack(recovery, 0.1, packets[4])
    assert recovery.bytes_in_flight == 200
    ack(recovery, 0.1, packets[0])
    assert recovery.bytes_in_flight == 200


def test_acks_of_mere_acks_say_nothing_of_loss_but_settle_what_is_older() -> None:
    recovery, packets = flight(2)
    recovery.ratio = 0.5
    assert ack(recovery, 0.1, packet(9, eliciting=False)) == packets
    assert recovery.ratio > 0.5
    assert recovery.bytes_in_flight == 0


def test_the_ratio_follows_the_verdicts() -> None:
    recovery, packets = flight(4000)
    assert recovery.ratio == 0.0
    ack(recovery, 0.1, packets[3])
    assert recovery.ratio == SMOOTHING
    for number in range(4, 4000):
        if number % 4:
            ack(recovery, 0.1, packets[number])
    assert recovery.ratio == pytest.approx(0.25, abs=0.03)


def test_what_was_measured_stays_when_nothing_is_sent_any_more() -> None:
    recovery, packets = flight(5)
    ack(recovery, 0.1, packets[4])
    recovery.stop()
    assert recovery.round_trip.smoothed == 0.1
    assert (recovery.bytes_in_flight, recovery.deadline()) == (0, None)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 0.2), st.integers(0, 9)), max_size=100))
def test_every_packet_gets_one_verdict_and_the_clock_goes_on(
    script: list[tuple[bool, float, int]],
) -> None:
    recovery, now = Recovery(ACK_DELAY, FALLBACK), 0.0
    flying: list[SentPacket] = []
    for number, (is_acked, wait, pick) in enumerate(script):
        sent = packet(number, now)
        recovery.sent(sent)
        flying.append(sent)
        now += wait
        lost: list[SentPacket] = []
        if is_acked:
            lost += ack(recovery, now, flying.pop(pick % len(flying)))
        more, probe = recovery.handle_timeout(now)
        lost += more
        if more:
            # What is lost is sent again first; a probe is due when it is not.
            _, probe = recovery.handle_timeout(now)
        assert [it.sequence for it in lost] == sorted({it.sequence for it in lost})
        assert probe is None or not (probe.acked or probe.lost)
        flying = [it for it in flying if not it.lost]
        assert recovery.bytes_in_flight == 100 * len(flying)
        deadline = recovery.deadline()
        assert (deadline is None) == (not flying)
        assert deadline is None or deadline > now


def test_a_lost_tail_is_probed_within_a_few_round_trips() -> None:
    pair = Pair(1, Faults(delay=0.02))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(100)] * 50)
    pair.run(1)
    pair.network.set_faults(Faults(blocked=True), LEFT, RIGHT)
    pair.send(left, b"tail")
    pair.network.set_faults(Faults(delay=0.02), LEFT, RIGHT)
    start = pair.now
    pair.drive(lambda: right.port.readable)
    assert pair.now - start < 5 * 0.04
    assert pair.receive(right) == [b"tail"]


def test_reordering_costs_little_once_it_is_known() -> None:
    settings = ChannelSettings(congestion="fixed:2e6", max_datagram=1200)
    pair = Pair(1, Faults(delay=0.02, jitter=0.005), settings)
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1000)] * 3000)
    pair.run(1)
    figures = left.port.statistics()
    assert figures.lost < figures.sent * 0.1
    assert figures.lost_in_appearance >= figures.lost - 20
