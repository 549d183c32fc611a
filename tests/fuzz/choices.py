"""Where a target's choices come from: the bytes of an input, or a generator with a seed.

A target asks for one choice after the other and never sees which of the two it is given, so that
what drives it for a moment under a coverage-guided fuzzer drives it for hours by itself.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """Gives choices until there are none left, and then the first of all that there is."""

    def __bool__(self) -> bool:
        """Whether there are more."""
        ...

    def below(self, limit: int) -> int:
        """A number from 0 to less than ``limit``."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""
        ...

    def some_bytes(self, most: int) -> bytes:
        """Up to so many bytes."""
        ...


class Script:
    """The choices that the bytes of an input stand for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def below(self, limit: int) -> int:
        size = max(1, ((limit - 1).bit_length() + 7) // 8)
        return int.from_bytes(self._take(size), "little") % limit

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def some_bytes(self, most: int) -> bytes:
        return self._take(self.below(most + 1))

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]


class Dice:
    """Choices without end, from a seed."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def __bool__(self) -> bool:
        return True

    def below(self, limit: int) -> int:
        # A tenth of what `randrange` takes, and as good here.
        return int(self._random.random() * limit)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random.random() * len(options))]

    def some_bytes(self, most: int) -> bytes:
        return self._random.randbytes(self.below(most + 1))
