"""A snapshot holds what was counted and what was measured, and does not change."""

from dataclasses import FrozenInstanceError, fields

import pytest

from sphtp.core.channel.statistics import ChannelStatistics, Counters, Estimates, snapshot


def test_a_snapshot_holds_both_parts() -> None:
    figures = snapshot(Counters(sent=3, lost=1), Estimates(rtt=0.5, waiting=2))
    assert (figures.sent, figures.lost, figures.rtt, figures.waiting) == (3, 1, 0.5, 2)
    assert {field.name for field in fields(ChannelStatistics)} == {
        field.name for part in (Counters, Estimates) for field in fields(part)
    } - {"bounds"}


def test_a_snapshot_does_not_change() -> None:
    counters = Counters()
    figures = snapshot(counters, Estimates())
    counters.sent += 1
    assert figures.sent == 0
    with pytest.raises(FrozenInstanceError):
        figures.sent = 1  # type: ignore[misc]
