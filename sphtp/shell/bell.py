"""Wakes one task out of its wait."""

import math

import trio


class Bell:
    """Rung by whoever has news, from Trio's thread; listened to by one task.

    The task waits inside ``listening`` and asks ``answer`` afterwards. What rings while nobody
    listens is not lost: the next wait ends at once.
    """

    def __init__(self) -> None:
        self._rung = False
        self._scope = trio.CancelScope()

    @property
    def has_rung(self) -> bool:
        """Whether the next wait ends at once."""
        return self._rung

    def ring(self) -> None:
        """End the present wait, or the next one."""
        self._rung = True
        self._scope.cancel()

    def listening(self, deadline: float | None) -> trio.CancelScope:
        """Return the scope to wait in, until the bell rings or ``deadline``, if there is one."""
        self._scope = trio.CancelScope(deadline=math.inf if deadline is None else deadline)
        if self._rung:
            self._scope.cancel()
        return self._scope

    def hurry(self, deadline: float | None) -> None:
        """End the present wait at ``deadline``, should that be earlier than it would end."""
        if deadline is not None and deadline < self._scope.deadline:
            self._scope.deadline = deadline

    def answer(self) -> bool:
        """Tell whether it rang since the last answer."""
        rung, self._rung = self._rung, False
        return rung
