"""Names that topics may have, and what patterns select of them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.topics import LONGEST_TOPIC, TopicPattern, check_topic
from sphtp.errors import SettingsError
from tests.cases import each
from tests.steps import steps


@each("topic", ["", "x" * (LONGEST_TOPIC + 1), "a\nb", "ä" * 128, "\ud800"])
def test_topics_that_cannot_be_are_refused(topic: str) -> None:
    with pytest.raises(SettingsError, match="topic"):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["x", "位置/1", "x" * LONGEST_TOPIC, "ä" * 127])
def test_topics_may_be_in_any_language(topic: str) -> None:
    assert check_topic(topic) == topic


NAMES = st.lists(st.sampled_from(["a", "b", "", "*", "**"]), min_size=1, max_size=6)


def model(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    """What a pattern means, said by recursion."""
    if not pattern:
        return not levels
    first, *rest = pattern
    if first == "**":
        return any(model(rest, levels[start:]) for start in range(len(levels) + 1))
    return bool(levels) and first in ("*", levels[0]) and model(rest, levels[1:])


@given(NAMES, NAMES)
def test_a_pattern_selects_what_its_stars_stand_for(pattern: list[str], levels: list[str]) -> None:
    if any(pattern) and any(levels):
        selected = TopicPattern("/".join(pattern)).matches("/".join(levels))
        assert selected == model(pattern, levels)


@each(
    ("pattern", "selected", "other"),
    [
        ("fluid", ["fluid"], ["fluid/west", "fluids"]),
        ("fluid/*", ["fluid/west", "fluid/"], ["fluid", "fluid/west/p"]),
        ("fluid/**", ["fluid", "fluid/west", "fluid/west/p"], ["solid", "fluids/west"]),
        ("*/p", ["west/p"], ["p", "a/b/p"]),
        ("**/p", ["p", "west/p", "a/b/p"], ["west/q"]),
        ("**", ["fluid", "a/b/c"], []),
    ],
)
def test_patterns_of_the_page(pattern: str, selected: list[str], other: list[str]) -> None:
    matches = TopicPattern(pattern).matches
    assert [topic for topic in selected + other if matches(topic)] == selected


@each("pattern", ["", "a*", "*a/b", "***", "a/**b", "x" * 256])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError, match="pattern is"):
        TopicPattern(pattern)


def test_many_stars_cost_no_more_than_their_number() -> None:
    pattern = TopicPattern("/".join(["**", "a"] * 50))
    assert steps(lambda: pattern.matches("/".join(["a"] * 120 + ["b"]))) < 200_000
