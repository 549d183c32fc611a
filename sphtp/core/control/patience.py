"""How often to ask for what a server may never be able to give."""


class Patience:
    """Lets the first question pass at once, and later ones after rests that double."""

    __slots__ = ("_longest", "_not_before", "_rest")

    def __init__(self, shortest: float, longest: float) -> None:
        self._rest = shortest
        self._longest = longest
        self._not_before = float("-inf")

    def allows(self, now: float) -> bool:
        """Tell whether to ask now; the next rest begins with the question."""
        if now < self._not_before:
            return False
        self._not_before = now + self._rest
        self._rest = min(2 * self._rest, self._longest)
        return True
