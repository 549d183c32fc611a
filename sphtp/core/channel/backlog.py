"""Channels that others opened and nobody here has taken yet."""

from collections import deque

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import State


class Backlog:
    """Those half open, and those that wait to be taken; ``limit`` of them at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._half_open: set[int] = set()
        self._waiting: deque[Connection] = deque()

    def __len__(self) -> int:
        return len(self._half_open) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return len(self) >= self._limit

    @property
    def has_any(self) -> bool:
        """Whether one waits to be taken."""
        return bool(self._waiting)

    def expect(self, connection: Connection) -> None:
        """Take note of one that was answered and has to confirm it."""
        self._half_open.add(connection.connection_id)

    def settle(self, connection: Connection) -> None:
        """Note whether it opened or ended meanwhile."""
        connection_id = connection.connection_id
        if connection_id in self._half_open and connection.state is not State.ANSWERING:
            self._half_open.discard(connection_id)
            # What closed without having opened was never a channel.
            if connection.state is not State.CLOSED:
                self._waiting.append(connection)
        is_over = connection.state is State.CLOSED and not connection.port.readable
        if is_over and connection in self._waiting:
            self._waiting.remove(connection)

    def take(self) -> Connection | None:
        """The one that waits for longest."""
        return self._waiting.popleft() if self._waiting else None
