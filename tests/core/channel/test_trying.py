"""Properties of channels are tried harder than others: what all else stands on."""

from hypothesis import given
from hypothesis import strategies as st

TRIED: list[int] = []


@given(st.integers())
def look(number: int) -> None:
    TRIED.append(number)


def test_a_property_of_channels_has_500_examples_at_least() -> None:
    look()
    assert len(TRIED) >= 500
