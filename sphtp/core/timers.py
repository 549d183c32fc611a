"""What is due when."""


def earliest(one: float | None, other: float | None) -> float | None:
    """The earlier of two times that need not be set."""
    if one is None or other is None:
        return other if one is None else one
    return one if one <= other else other
