"""The names of topics, of groups and of clients."""

from typing import Final

from sphtp.errors import SettingsError

LONGEST_TOPIC: Final = 255
"""The most bytes of a topic's name in UTF-8."""


LONGEST_NAME: Final = 64
"""The most characters of a client's name."""


def check_topic(topic: str) -> str:
    """Return the name of a topic; raise ``SettingsError`` if it is not valid."""
    return _checked("topic", topic)


def check_group(group: str) -> str:
    """Return the name of a group; raise ``SettingsError`` if it is not valid."""
    return _checked("group", group)


def check_name(name: str) -> str:
    """Return the name of a client, or an empty one; raise ``SettingsError`` if it is not valid."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise SettingsError(
            f"name is {name!r}; allowed are up to {LONGEST_NAME} printable characters"
        )
    return name


def _checked(kind: str, text: str) -> str:
    size = len(text.encode(errors="replace"))
    if not 1 <= size <= LONGEST_TOPIC or not text.isprintable():
        raise SettingsError(
            f"{kind} is {text!r}; allowed are 1 to {LONGEST_TOPIC} bytes of printable text"
        )
    return text
