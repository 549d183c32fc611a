"""Samples of the delivery rate."""

import pytest

from sphtp.core.channel.congestion.delivery_rate import DeliveryRate, RateSnapshot

SIZE = 1000


def test_a_steady_path_is_measured() -> None:
    """A packet each 10 ms, acked 100 ms later."""
    delivery = DeliveryRate()
    stamps: dict[int, RateSnapshot] = {}
    for step in range(60):
        now = step * 0.01
        if step >= 10:
            sample = delivery.acked(now, stamps[step - 10], SIZE)
            if step >= 30:
                assert sample.rate == pytest.approx(SIZE / 0.01)
        stamps[step] = delivery.stamp(now, min(step, 10) * SIZE)


def test_acks_in_a_bunch_do_not_make_the_path_faster() -> None:
    """One packet leaves each 10 ms; but for the first, their acks come all at once."""
    delivery = DeliveryRate()
    first = delivery.stamp(0.0, 0)
    for step in range(1, 10):
        delivery.stamp(step * 0.01, step * SIZE)
    delivery.acked(0.1, first, SIZE)
    newest = delivery.stamp(0.1, 9 * SIZE)
    assert delivery.acked(0.12, newest, 10 * SIZE).rate == pytest.approx(10 * SIZE / 0.1)


def test_nor_does_sending_in_a_bunch() -> None:
    delivery = DeliveryRate()
    stamps = [delivery.stamp(1.0, step * SIZE) for step in range(10)]
    rates = [delivery.acked(1.1 + step * 0.01, stamps[step], SIZE).rate for step in range(10)]
    assert rates[-1] == pytest.approx(10 * SIZE / 0.19)


def test_packets_of_one_batch_share_a_stamp() -> None:
    delivery = DeliveryRate()
    first = delivery.stamp(1.0, 0)
    assert delivery.stamp(1.0, SIZE) is first
    assert delivery.stamp(1.1, SIZE) is not first
    second = delivery.stamp(1.2, SIZE)
    delivery.acked(1.2, first, SIZE)
    assert delivery.stamp(1.2, SIZE) is not second


def test_a_sample_too_short_to_tell_is_none() -> None:
    delivery = DeliveryRate()
    stamp = delivery.stamp(1.0, 0)
    assert delivery.acked(1.0, stamp, SIZE).rate is None
    stamp = delivery.stamp(2.0, 0)
    assert delivery.acked(2.01, stamp, SIZE, minimum=0.05).rate is None


def test_after_a_pause_only_new_packets_count() -> None:
    delivery = DeliveryRate()
    delivery.acked(1.1, delivery.stamp(1.0, 0), SIZE)
    stamp = delivery.stamp(100.0, 0)
    assert delivery.acked(100.1, stamp, SIZE).rate == pytest.approx(SIZE / 0.1)


def test_a_starved_sender_is_told_apart_until_its_packets_are_acked() -> None:
    delivery = DeliveryRate()
    busy = delivery.stamp(1.0, 0)
    delivery.set_app_limited(SIZE)
    starved = delivery.stamp(1.01, SIZE)
    assert delivery.acked(1.1, busy, SIZE).limited
    assert not delivery.acked(1.11, starved, SIZE).limited
    assert delivery.acked(1.3, delivery.stamp(1.2, 0), SIZE).limited
