"""A wrong setting is named when it is given, not when it bites."""

from dataclasses import fields
from typing import Any

import pytest

from sphtp.core.channel.settings import RANGES, ChannelSettings, Lane
from sphtp.errors import SettingsError
from tests.cases import each


def test_every_setting_has_a_range() -> None:
    others = {"array_views", "congestion", "lanes"}
    assert {field.name for field in fields(ChannelSettings)} == set(RANGES) | others


@each("name", RANGES)
def test_out_of_range_is_named(name: str) -> None:
    low, high = RANGES[name]
    for value in (low - 1, high + 1, float("nan")):
        changes: dict[str, Any] = {name: value}
        with pytest.raises(SettingsError, match=f"^{name} is "):
            ChannelSettings(**changes)


@pytest.mark.parametrize("count", [0, 65])
def test_a_number_of_lanes_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(SettingsError, match=f"lanes has {count} entries; allowed is 1 to 64"):
        ChannelSettings(lanes=(Lane(),) * count)


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan")])
def test_a_weight_that_means_nothing_is_refused(weight: float) -> None:
    with pytest.raises(SettingsError, match="weight is"):
        Lane(weight=weight)


def test_an_unknown_congestion_control_is_refused() -> None:
    with pytest.raises(SettingsError, match="'vegas'"):
        ChannelSettings(congestion="vegas")


def test_a_buffer_that_may_not_take_a_message_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"receive_buffer_bytes .* twice max_message"):
        ChannelSettings(receive_buffer_bytes=1999, max_message=1000)


def test_a_keepalive_that_keeps_nothing_alive_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"timeout .* keepalive"):
        ChannelSettings(keepalive=5.1, timeout=10)


def test_without_a_keepalive_it_follows_the_timeout() -> None:
    assert ChannelSettings().keepalive_interval == 5
    assert ChannelSettings(timeout=2).keepalive_interval == 1
    assert ChannelSettings(timeout=2, keepalive=0.5).keepalive_interval == 0.5
