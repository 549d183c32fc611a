"""Verdicts on packets: each is acked or given up, in order, and counted right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.acks import SentPacket
from sphtp.core.channel.loss import SMOOTHING, Loss


def packet(sequence: int, sent_at: float) -> SentPacket:
    return SentPacket(sequence, sent_at, 100, eliciting=True)


def ack(loss: Loss, acked: SentPacket) -> None:
    acked.acked = True
    loss.acked(acked)


def test_a_packet_is_overdue_when_its_patience_is_over() -> None:
    loss = Loss()
    assert loss.deadline(0.1) is None
    packets = [packet(number, number * 0.01) for number in range(3)]
    for sent in packets:
        loss.sent(sent)
    deadline = loss.deadline(0.1)
    assert deadline == pytest.approx(0.1)
    assert list(loss.overdue(0.0999, 0.1)) == []
    assert list(loss.overdue(deadline or 0, 0.1)) == packets[:1]
    assert loss.in_flight == 2
    assert packets[0].lost


def test_acked_packets_are_not_given_up() -> None:
    loss = Loss()
    packets = [packet(number, 0.0) for number in range(3)]
    for sent in packets:
        loss.sent(sent)
    ack(loss, packets[0])
    ack(loss, packets[2])
    assert loss.in_flight == 1
    assert list(loss.overdue(1.0, 0.1)) == [packets[1]]
    assert loss.in_flight == 0
    assert loss.deadline(0.1) is None


def test_a_late_ack_does_not_count_twice() -> None:
    loss = Loss()
    late = packet(0, 0.0)
    loss.sent(late)
    assert list(loss.overdue(1.0, 0.1)) == [late]
    ack(loss, late)
    assert loss.in_flight == 0


def test_the_ratio_follows_the_verdicts() -> None:
    loss = Loss()
    assert loss.ratio == 0.0
    loss.sent(packet(0, 0.0))
    list(loss.overdue(1.0, 0.1))
    assert loss.ratio == SMOOTHING
    for number in range(2000):
        sent = packet(number, number)
        loss.sent(sent)
        if number % 4:
            ack(loss, sent)
        list(loss.overdue(number + 0.5, 0.1))
    assert loss.ratio == pytest.approx(0.25, abs=0.03)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 0.2)), max_size=100))
def test_in_flight_is_what_has_no_verdict(script: list[tuple[bool, float]]) -> None:
    loss, now, flying = Loss(), 0.0, []
    for number, (is_acked, wait) in enumerate(script):
        sent = packet(number, now)
        loss.sent(sent)
        flying.append(sent)
        now += wait
        if is_acked:
            ack(loss, flying.pop(number * 7 % len(flying)))
        lost = list(loss.overdue(now, 0.1))
        assert [it.sequence for it in lost] == sorted(it.sequence for it in lost)
        flying = [it for it in flying if not it.lost]
        assert loss.in_flight == len(flying)
        assert (loss.deadline(0.1) or now + 1) > now
