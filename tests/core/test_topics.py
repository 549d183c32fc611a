"""Names that topics may have."""

import pytest

from sphtp.core.topics import LONGEST_TOPIC, check_topic
from sphtp.errors import SettingsError


@pytest.mark.parametrize("topic", ["", "x" * (LONGEST_TOPIC + 1), "a\nb", "ä" * 128, "\ud800"])
def test_topics_that_cannot_be_are_refused(topic: str) -> None:
    with pytest.raises(SettingsError, match="topic"):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["x", "位置/1", "x" * LONGEST_TOPIC, "ä" * 127])
def test_topics_may_be_in_any_language(topic: str) -> None:
    assert check_topic(topic) == topic
