"""The names of topics."""

from typing import Final

from sphtp.errors import SettingsError

LONGEST_TOPIC: Final = 255
"""The most bytes of a topic's name in UTF-8."""


def check_topic(topic: str, what: str = "topic") -> str:
    """Return the name of a topic, or of ``what``; raise ``SettingsError`` if it is not valid."""
    size = len(topic.encode(errors="replace"))
    if not 1 <= size <= LONGEST_TOPIC or not topic.isprintable():
        raise SettingsError(
            f"{what} is {topic!r}; allowed are 1 to {LONGEST_TOPIC} bytes of printable text"
        )
    return topic
