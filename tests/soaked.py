"""Parameters of a test that only the soak takes."""

from collections.abc import Iterable
from typing import Any

import pytest


def soaked(values: Iterable[Any]) -> list[Any]:
    """Mark them, so that the quick suite leaves them out."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]
