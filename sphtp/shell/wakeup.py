"""Wakes one task out of its wait."""

import math

import trio


class Wakeup:
    """Wakes the one task that waits on it; called from Trio's thread.

    The task waits inside ``waiting`` and calls ``clear`` afterwards. A wake-up that finds nobody
    waiting is not lost: the next wait ends at once.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._scope = trio.CancelScope()

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._is_set = True
        self._scope.cancel()

    def waiting(self, deadline: float | None) -> trio.CancelScope:
        """Return the scope to wait in, until a wake-up or ``deadline``, if there is one."""
        self._scope = trio.CancelScope(deadline=math.inf if deadline is None else deadline)
        if self._is_set:
            self._scope.cancel()
        return self._scope

    def clear(self) -> bool:
        """Return whether there was a wake-up since the last call."""
        is_set, self._is_set = self._is_set, False
        return is_set
