"""The names of topics, of groups and of clients, and the patterns that select topics.

The name of a topic has levels, separated by "/": ``fluid/west/pressure``. In a pattern, the level
``*`` stands for any one level, and the level ``**`` for any number of levels, including none. So
``fluid/*`` selects ``fluid/west`` and not ``fluid/west/pressure``. ``fluid/**`` selects both, and
``fluid``; and ``**`` selects every topic. In the name of a topic, a star has no special meaning.
"""

from collections.abc import Sequence
from typing import Final

from sphtp.errors import SettingsError

LONGEST_TOPIC: Final = 255
"""The most bytes of a topic's name in UTF-8."""

SEPARATOR: Final = "/"
ONE_LEVEL: Final = "*"
ANY_LEVELS: Final = "**"

LONGEST_NAME: Final = 64
"""The most characters of a client's name."""


def check_topic(topic: str, what: str = "topic") -> str:
    """Return the name of a topic; raise ``SettingsError`` if it is not valid.

    ``what`` is the word for the name in the error.
    """
    size = len(topic.encode(errors="replace"))
    if not 1 <= size <= LONGEST_TOPIC or not topic.isprintable():
        raise SettingsError(
            f"{what} is {topic!r}; allowed are 1 to {LONGEST_TOPIC} bytes of printable text"
        )
    return topic


def check_group(group: str) -> str:
    """Return the name of a group; raise ``SettingsError`` if it is not valid."""
    return check_topic(group, "group")


def check_name(name: str) -> str:
    """Return the name of a client, which may be empty.

    Raises ``SettingsError`` if the name is too long or not printable.
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise SettingsError(
            f"name is {name!r}; allowed are up to {LONGEST_NAME} printable characters"
        )
    return name


class TopicPattern:
    """A pattern that selects topics. Raises ``SettingsError`` if the text is not a pattern."""

    def __init__(self, pattern: str) -> None:
        self.text = check_topic(pattern, "pattern")
        self._levels = pattern.split(SEPARATOR)
        wild = [level for level in self._levels if ONE_LEVEL in level]
        if not {ONE_LEVEL, ANY_LEVELS}.issuperset(wild):
            raise SettingsError(
                f"pattern is {pattern!r}; allowed is a topic, of which a level may be * or **"
            )

    def __repr__(self) -> str:
        return f"TopicPattern({self.text!r})"

    def matches(self, topic: str) -> bool:
        """Return True if the pattern selects the topic."""
        return self._matches(topic.split(SEPARATOR))

    def _matches(self, levels: Sequence[str]) -> bool:
        # The positions in the pattern to which the levels so far can have led. There are at most as
        # many of them as the pattern has levels, and one more, however many stars it has.
        positions = self._skip({0})
        for level in levels:
            following = set[int]()
            for position in positions:
                if position == len(self._levels):
                    continue
                wanted = self._levels[position]
                if wanted == ANY_LEVELS:
                    following.add(position)
                elif wanted in (ONE_LEVEL, level):
                    following.add(position + 1)
            positions = self._skip(following)
        return len(self._levels) in positions

    def _skip(self, positions: set[int]) -> set[int]:
        """Return the positions, and those behind each ``**``, which may stand for no level."""
        reached = set(positions)
        for position in range(min(positions, default=0), len(self._levels)):
            if position in reached and self._levels[position] == ANY_LEVELS:
                reached.add(position + 1)
        return reached
