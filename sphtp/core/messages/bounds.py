"""Bounds that stand beside a type in ``Annotated``: ``Annotated[int, Range(0, 100)]``."""

import math
from dataclasses import dataclass, field
from functools import lru_cache

from sphtp.errors import SettingsError, WireError

# The least resolution, relative to the largest value. A finer step is lost in the rounding of a
# double, so that its value would be decoded as another step.
_FINEST = 2.0**-48
_SMALLEST = 1e-300


@dataclass(frozen=True, slots=True)
class Range:
    """An integer from ``low`` to ``high``, both included.

    Raises ``SettingsError`` if ``low`` is above ``high``.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise SettingsError(f"a range from {self.low} to {self.high} is empty")

    def __str__(self) -> str:
        return f"integer({self.low}..{self.high})"


@dataclass(frozen=True, slots=True)
class Bits:
    """An unsigned integer of ``width`` bits. Raises ``SettingsError`` for a negative width."""

    width: int

    def __post_init__(self) -> None:
        if self.width < 0:
            raise SettingsError(f"an integer of {self.width} bits")

    @property
    def range(self) -> Range:
        """The same bound, as a ``Range``."""
        return Range(0, (1 << self.width) - 1)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of ``maximum``: bytes of a byte string or of text in UTF-8, or items of a list, tuple
    or dict.

    Raises ``SettingsError`` for a negative maximum.
    """

    maximum: int

    def __post_init__(self) -> None:
        if self.maximum < 0:
            raise SettingsError(f"a limit of {self.maximum}")


@dataclass(frozen=True, slots=True)
class Float32:
    """A float of single precision in a ``BitMessage``."""

    def __str__(self) -> str:
        return "float32"


@dataclass(frozen=True, slots=True)
class Compressed:
    """A float from ``low`` to ``high``, in equal steps of at most ``resolution``.

    In a ``BitMessage`` it takes the fewest bits that can number the steps. Raises
    ``SettingsError`` for a range that is empty or has no end, and for a resolution that is too fine
    for a double or infinite.
    """

    low: float
    high: float
    resolution: float
    steps: int = field(init=False, repr=False, compare=False)
    """The number of the last step; the first is 0."""

    def __post_init__(self) -> None:
        largest = max(abs(self.low), abs(self.high))
        if not 0.0 < self.high - self.low < math.inf:
            raise SettingsError(f"{self}: the range is empty, or has no end")
        if not max(largest * _FINEST, _SMALLEST) <= self.resolution < math.inf:
            raise SettingsError(f"{self}: the resolution is out of reach of a double")
        # A range far below the resolution still has two steps, although the quotient may be 0.
        steps = max(1, math.ceil((self.high - self.low) / self.resolution))
        object.__setattr__(self, "steps", steps)

    def step_of(self, value: float) -> int:
        """Return the step nearest to a value.

        Raises:
            WireError: the value is outside the range, or not a number.
        """
        self.check(value)
        return round((value - self.low) / (self.high - self.low) * self.steps)

    def value_of(self, step: int) -> float:
        """Return the value of a step, a number from 0 to ``steps``."""
        if step == self.steps:
            return float(self.high)
        return self.low + step / self.steps * (self.high - self.low)

    def check(self, value: float) -> None:
        """Check that a value is in the range.

        Raises:
            WireError: the value is outside the range.
        """
        if not self.low <= value <= self.high:
            raise WireError(f"{value} is outside {self.low}..{self.high}")

    def __str__(self) -> str:
        low, high, resolution = float(self.low), float(self.high), float(self.resolution)
        return f"compressed({low}..{high} by {resolution})"


Bound = Range | Bits | Limit | Float32 | Compressed


@lru_cache(maxsize=1024)
def compressed(low: float, high: float, resolution: float) -> Compressed:
    """Return a ``Compressed`` from a cache, since each ``serialize`` uses the same few."""
    return Compressed(low, high, resolution)
