"""The topics of one client: how many, how long, and how they are written and read."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from unicodedata import category

from sphtp.core.topics import check_topic
from sphtp.core.wire import decode_text
from sphtp.errors import SettingsError, WireError

MAX_TOPICS: Final = 64
MAX_TOPICS_SIZE: Final = 2048
"""Bytes of all names together as they travel, so that a list of clients stays within its bounds."""

_REMEMBERED: Final = 256
"""Lists kept as they were read: those of one simulation are alike, and come again."""

_CONTROL: Final = "Cc"
"""The only category of Unicode that no later version adds to, so that all readers agree on it."""


def check_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the names, each once. Raises ``SettingsError`` when a client cannot have these."""
    names = tuple(dict.fromkeys(map(check_topic, topics)))
    if len(names) > MAX_TOPICS:
        raise SettingsError(f"{len(names)} topics; allowed are {MAX_TOPICS} of one client")
    if (size := size_of_topics(names)) > MAX_TOPICS_SIZE:
        raise SettingsError(
            f"the names of {len(names)} topics take {size} bytes, one more than each is long; "
            f"allowed are {MAX_TOPICS_SIZE}"
        )
    return names


def size_of_topics(topics: Iterable[str]) -> int:
    """Return how many bytes these names take."""
    return sum(1 + len(name.encode()) for name in topics)


def encode_topics(topics: Iterable[str]) -> bytes:
    """Return names, each behind its length u8."""
    parts: list[bytes] = []
    for name in topics:
        text = name.encode()
        parts += (bytes((len(text),)), text)
    return b"".join(parts)


@lru_cache(maxsize=_REMEMBERED)
def decode_topics(data: bytes) -> tuple[str, ...]:
    """Read names to the end. Raises ``WireError`` when no client can have these."""
    if len(data) > MAX_TOPICS_SIZE:
        raise WireError(f"{len(data)} bytes of topics are over {MAX_TOPICS_SIZE}")
    names = list[str]()
    start = 0
    while start < len(data):
        end = start + 1 + data[start]
        if end > len(data):
            raise WireError("a name of a topic is cut off")
        names.append(_name(data[start + 1 : end]))
        start = end
    if len(names) > MAX_TOPICS or len(set(names)) < len(names):
        raise WireError(f"{len(names)} topics are over {MAX_TOPICS}, or two are the same")
    return tuple(names)


def _name(data: bytes) -> str:
    name = decode_text(data)
    if not name or any(category(one) == _CONTROL for one in name):
        raise WireError(f"{name!r} is no name of a topic")
    return name
