"""Samples of the delivery rate."""

import pytest

from sphtp.core.channel.congestion.delivery import Delivery, Stamp

SIZE = 1000


def test_a_steady_path_is_measured() -> None:
    """A packet each 10 ms, acked 100 ms later."""
    delivery = Delivery()
    stamps: dict[int, Stamp] = {}
    for step in range(60):
        now = step * 0.01
        if step >= 10:
            sample = delivery.acked(now, stamps[step - 10], SIZE)
            if step >= 30:
                assert sample.rate == pytest.approx(SIZE / 0.01)
        stamps[step] = delivery.stamp(now, min(step, 10) * SIZE)


def test_acks_in_a_bunch_do_not_make_the_path_faster() -> None:
    delivery = Delivery()
    stamps = [delivery.stamp(step * 0.01, step * SIZE) for step in range(11)]
    delivery.acked(0.2, stamps[0], SIZE)
    sample = delivery.acked(0.2001, stamps[10], 10 * SIZE)
    assert sample.rate is not None
    assert sample.rate <= 11 * SIZE / 0.1


def test_packets_of_one_batch_share_a_stamp() -> None:
    delivery = Delivery()
    first = delivery.stamp(1.0, 0)
    assert delivery.stamp(1.0, SIZE) is first
    assert delivery.stamp(1.1, SIZE) is not first
    second = delivery.stamp(1.2, SIZE)
    delivery.acked(1.2, first, SIZE)
    assert delivery.stamp(1.2, SIZE) is not second


def test_a_sample_too_short_to_tell_is_none() -> None:
    delivery = Delivery()
    stamp = delivery.stamp(1.0, 0)
    assert delivery.acked(1.0, stamp, SIZE).rate is None
    stamp = delivery.stamp(2.0, 0)
    assert delivery.acked(2.01, stamp, SIZE, minimum=0.05).rate is None


def test_after_a_pause_only_new_packets_count() -> None:
    delivery = Delivery()
    delivery.acked(1.1, delivery.stamp(1.0, 0), SIZE)
    stamp = delivery.stamp(100.0, 0)
    assert delivery.acked(100.1, stamp, SIZE).rate == pytest.approx(SIZE / 0.1)


def test_a_starved_sender_is_told_apart_until_its_packets_are_acked() -> None:
    delivery = Delivery()
    busy = delivery.stamp(1.0, 0)
    delivery.starve(SIZE)
    starved = delivery.stamp(1.01, SIZE)
    assert delivery.acked(1.1, busy, SIZE).limited
    assert not delivery.acked(1.11, starved, SIZE).limited
    assert delivery.acked(1.3, delivery.stamp(1.2, 0), SIZE).limited
