"""Peers asked for by id: when every server asked has said that it knows nobody, nobody is there.

A search stays open until then, or until the peer is found, so that it can be repeated.
"""

from collections.abc import Iterable

_CAPACITY = 1024
"""Searches remembered; answers may be lost, so the oldest has to make room."""


class Searches:
    """Which servers still have to answer, for each peer asked for."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, set[int]] = {}

    @property
    def peers(self) -> tuple[int, ...]:
        """The peers that are still searched for."""
        return tuple(self._open)

    def begin(self, peer: int, servers: Iterable[int]) -> None:
        """Note that these servers were asked for a peer."""
        self._open.pop(peer, None)
        if len(self._open) >= _CAPACITY:
            del self._open[next(iter(self._open))]
        self._open[peer] = set(servers)

    def found(self, peer: int) -> None:
        """End a search: a server knows the peer."""
        self._open.pop(peer, None)

    def deny(self, peer: int, server: int) -> bool:
        """Note that a server knows nobody; tell whether it was the last one that had to answer."""
        waited_for = self._open.get(peer, set())
        if server not in waited_for:
            return False
        waited_for.remove(server)
        if not waited_for:
            del self._open[peer]
        return not waited_for

    def lose(self, server: int) -> None:
        """Wait for a server no more: it is gone, and what it would have said nobody knows."""
        for waited_for in self._open.values():
            waited_for.discard(server)
