"""A wrong setting is named when it is given, not when it bites."""

from dataclasses import fields
from typing import Any

import pytest

from sphtp.core.channel.settings import RANGES, ChannelSettings
from sphtp.errors import SettingsError


def test_every_setting_has_a_range() -> None:
    assert {field.name for field in fields(ChannelSettings)} == set(RANGES)


@pytest.mark.parametrize("name", RANGES)
def test_out_of_range_is_named(name: str) -> None:
    low, high = RANGES[name]
    for value in (low - 1, high + 1, float("nan")):
        changes: dict[str, Any] = {name: value}
        with pytest.raises(SettingsError, match=f"^{name} is "):
            ChannelSettings(**changes)


def test_a_keepalive_that_keeps_nothing_alive_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"timeout .* keepalive"):
        ChannelSettings(keepalive=5.1, timeout=10)
