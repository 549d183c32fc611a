"""Those who have come and not said yet who they are: few, and for a short time."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Strangers:
    """At most ``most`` at once, for ``patience`` seconds each; the one who came first makes room.

    Who means well is done within a round trip, and is shut out only by a flood that is faster.
    """

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        # In the order of their coming.
        self._scopes: dict[trio.CancelScope, None] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Let the block be the time of one; raises ``trio.TooSlowError`` when that is over."""
        with trio.CancelScope(deadline=trio.current_time() + self._patience) as scope:
            self._scopes[scope] = None
            if len(self._scopes) > self._most:
                self._dismiss(next(iter(self._scopes)))
            try:
                yield
            finally:
                self._scopes.pop(scope, None)
        if scope.cancelled_caught:
            raise trio.TooSlowError

    def _dismiss(self, oldest: trio.CancelScope) -> None:
        del self._scopes[oldest]
        oldest.cancel()
