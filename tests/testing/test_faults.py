"""Faults outside their range are refused, by name."""

from dataclasses import fields, replace
from math import inf, nan
from typing import Any

import pytest

from sphtp.errors import SettingsError
from sphtp.testing import Faults
from sphtp.testing.network import RANGES
from tests.cases import each


def changed(name: str, value: float) -> Faults:
    change: dict[str, Any] = {name: value}
    return replace(Faults(), **change)


def test_every_field_has_a_range_and_both_ends_are_allowed() -> None:
    assert list(RANGES) == [field.name for field in fields(Faults)]
    for name, ends in RANGES.items():
        for end in ends:
            assert getattr(changed(name, end), name) == end


@each("name", RANGES)
def test_what_is_beyond_is_refused_by_name(name: str) -> None:
    low, high = RANGES[name]
    wrong = [low - 1, nan, *([] if high == inf else [high + 1])]
    for value in wrong:
        with pytest.raises(SettingsError, match=f"^{name} is "):
            changed(name, value)
