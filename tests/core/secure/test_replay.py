"""The replay window against a set that remembers everything."""

from gc import get_referents

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.secure.seal import WINDOW, ReplayWindow

STEPS = st.integers(-2 * WINDOW, 2 * WINDOW) | st.integers(-3, 3) | st.integers(-2050, -2046)


@given(st.integers(0, 2**63), st.lists(STEPS, max_size=100))
def test_a_window_agrees_with_a_set(first: int, steps: list[int]):
    window, seen, newest = ReplayWindow(first), set[int](), first - 1
    for step in steps:
        number = max(newest + step, first)
        is_recent = newest - number < WINDOW
        assert window.is_new(number) == (number not in seen and is_recent)
        if window.is_new(number):
            window.mark(number)
            seen.add(number)
            newest = max(newest, number)
        assert not window.is_new(number)
        assert window.newest == newest
    # The number of the newest, and a bit for each before it.
    held = sorted(it.bit_length() for it in get_referents(window) if isinstance(it, int))
    assert held[-1] <= WINDOW


@given(st.permutations(range(40)))
def test_any_order_passes_once(order: list[int]):
    window = ReplayWindow()
    for number in order:
        assert window.is_new(number)
        window.mark(number)
    assert not any(window.is_new(number) for number in order)


def test_what_is_too_old_to_tell_is_not_new():
    window = ReplayWindow()
    window.mark(WINDOW)
    assert window.is_new(1)
    assert not window.is_new(0)
