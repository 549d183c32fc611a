"""The names of topics, of groups and of clients, and the patterns that select topics.

A name has levels, separated by "/": ``fluid/west/pressure``. A pattern is a name of which a level
may be ``*``, any one level, or ``**``, any number of levels, none included. So ``fluid/*`` has
``fluid/west`` and not ``fluid/west/pressure``; ``fluid/**`` has both, and ``fluid``; and ``**`` has
every topic. In a name of a topic, a star has no meaning.
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
    """Return the name of a topic, or of ``what``; raise ``SettingsError`` if it is not valid."""
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
    """Return the name of a client, or an empty one; raise ``SettingsError`` if it is not valid."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise SettingsError(
            f"name is {name!r}; allowed are up to {LONGEST_NAME} printable characters"
        )
    return name


class TopicPattern:
    """A pattern of topics. Raises ``SettingsError`` if it is none."""

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
        """Return true if the pattern selects the topic."""
        return self._matches(topic.split(SEPARATOR))

    def _matches(self, levels: Sequence[str]) -> bool:
        # The positions in the pattern that the levels so far can have led to. There are no more of
        # them than the pattern has levels, however many stars it has.
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
        """Add the positions behind each ``**``, which may stand for no level."""
        reached = set(positions)
        for position in range(min(positions, default=0), len(self._levels)):
            if position in reached and self._levels[position] == ANY_LEVELS:
                reached.add(position + 1)
        return reached
