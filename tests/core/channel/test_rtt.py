"""The round trip estimate against RFC 6298."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.loss_detection import LEAST_SPREAD, RoundTrip

FALLBACK = 0.1


def test_without_samples_the_seeds_fixed_time_holds() -> None:
    estimate = RoundTrip()
    assert estimate.smoothed is None
    assert estimate.patience(0.01, FALLBACK) == FALLBACK


def test_the_first_sample_is_taken_whole() -> None:
    estimate = RoundTrip()
    estimate.sample(0.2)
    assert (estimate.smoothed, estimate.deviation) == (0.2, 0.1)


def test_later_samples_are_smoothed() -> None:
    estimate = RoundTrip()
    for elapsed in (0.2, 0.1, 0.3):
        estimate.sample(elapsed)
    # By hand: deviation 0.1 -> 0.1 -> 0.1 + (0.1125 - 0.1) / 4, smoothed 0.2 -> 0.1875 -> ...
    assert estimate.smoothed == pytest.approx(0.1875 + (0.3 - 0.1875) / 8)
    assert estimate.deviation == pytest.approx(0.103125)
    assert (estimate.latest, estimate.minimum) == (0.3, 0.1)


def test_a_steady_round_trip_is_found() -> None:
    estimate = RoundTrip()
    for _ in range(200):
        estimate.sample(0.25)
    assert estimate.smoothed == pytest.approx(0.25)
    assert estimate.deviation == pytest.approx(0, abs=1e-6)
    assert estimate.patience(0.01, FALLBACK) == pytest.approx(0.26 + LEAST_SPREAD)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_the_estimate_stays_between_the_samples(samples: list[float]) -> None:
    estimate = RoundTrip()
    for elapsed in samples:
        estimate.sample(elapsed)
    assert estimate.smoothed is not None
    assert min(samples) - 1e-9 <= estimate.smoothed <= max(samples) + 1e-9
    assert estimate.patience(0.01, FALLBACK) >= estimate.smoothed + LEAST_SPREAD


def test_what_the_peer_kept_an_ack_for_is_no_way() -> None:
    estimate = RoundTrip()
    estimate.sample(0.1)
    estimate.sample(0.16, 0.05)
    assert estimate.latest == pytest.approx(0.11)
    assert estimate.minimum == 0.1
    assert estimate.smoothed == pytest.approx(0.1 + 0.01 / 8)


def test_a_delay_that_is_not_possible_is_not_believed() -> None:
    estimate = RoundTrip()
    estimate.sample(0.1)
    estimate.sample(0.12, 0.05)
    assert estimate.latest == 0.12
    estimate.sample(0.05, 99.0)
    assert (estimate.latest, estimate.minimum) == (0.05, 0.05)
