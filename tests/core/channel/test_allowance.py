"""The packets that leave whatever congestion control says: how many, and when."""

import pytest

from sphtp.core.channel.loss_detection import RoundTrip
from sphtp.core.channel.path import (
    LOSSY_PACKETS,
    LOSSY_SHARE,
    PROBE_PACKETS,
    SILENCE,
    ResendAllowance,
)

RESEND_TIME = 0.1


def trip(*samples: float) -> RoundTrip:
    measured = RoundTrip()
    for sample in samples:
        measured.sample(sample)
    return measured


CLEAR = trip(*[0.02] * 20)
QUEUED = trip(0.02, *[0.2] * 20)


@pytest.mark.parametrize(
    ("measured", "loss", "silent", "size", "number"),
    [
        (RoundTrip(), 0.0, 0.0, 1200, PROBE_PACKETS),
        (CLEAR, LOSSY_SHARE, 0.0, 1200, PROBE_PACKETS),
        (CLEAR, 0.5, 0.0, 1200, LOSSY_PACKETS),
        (CLEAR, 0.5, 0.0, 8972, 3),
        (CLEAR, 0.5, 0.0, 65_507, PROBE_PACKETS),
        (CLEAR, 0.5, 2 * SILENCE, 1200, PROBE_PACKETS),
        (QUEUED, 0.5, 0.0, 1200, 1),
        (QUEUED, 0.0, 0.0, 1200, 1),
    ],
)
def test_how_many_is_a_matter_of_evidence(
    measured: RoundTrip, loss: float, silent: float, size: int, number: int
) -> None:
    allowance = ResendAllowance(RESEND_TIME)
    allowance.acked_at = 10.0
    assert allowance.number(10.0 + silent, measured, loss, size) == number


@pytest.mark.parametrize("patience", [0.04, 0.5])
def test_so_many_leave_in_a_period(patience: float) -> None:
    """It is the seed's 0.1 s, or what an ack takes if that is longer."""
    allowance, now, left = ResendAllowance(RESEND_TIME), 0.0, 0
    period = max(RESEND_TIME, patience)
    while (now := max(now, allowance.ready_at(now, LOSSY_PACKETS, patience))) < 10 * period:
        allowance.used += 1
        left += 1
    assert left == pytest.approx(10 * LOSSY_PACKETS, abs=PROBE_PACKETS)


def test_what_leaves_anyway_counts_and_leaves_no_debt() -> None:
    allowance = ResendAllowance(RESEND_TIME)
    assert allowance.ready_at(1.0, PROBE_PACKETS, 0.04) == 1.0
    allowance.used += 1000
    assert allowance.ready_at(1.1, PROBE_PACKETS, 0.04) == pytest.approx(1.15)
    assert allowance.ready_at(1.15, PROBE_PACKETS, 0.04) == 1.15


def test_a_probe_has_not_to_wait() -> None:
    allowance = ResendAllowance(RESEND_TIME)
    allowance.used += 1000
    assert allowance.ready_at(0.01, PROBE_PACKETS, 0.04) > 0.01
    allowance.probe(PROBE_PACKETS)
    for _ in range(PROBE_PACKETS):
        assert allowance.ready_at(0.01, PROBE_PACKETS, 0.04) == 0.01
        allowance.used += 1
    assert allowance.ready_at(0.01, PROBE_PACKETS, 0.04) > 0.01


def test_round_trips_that_vary_show_no_queue() -> None:
    assert not RoundTrip().shows_queue
    assert not CLEAR.shows_queue
    assert not trip(*[0.02, 0.04, 0.03, 0.06, 0.03] * 10).shows_queue
    assert QUEUED.shows_queue
