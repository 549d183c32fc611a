"""Repairs that wait for their turn: the oldest datagram first."""

from bisect import bisect_left, insort


class RepairQueue:
    """At most ``limit`` sqns, each once."""

    __slots__ = ("_limit", "_order", "_sizes", "size")

    def __init__(self, limit: int) -> None:
        self.size = 0
        """Bytes of the datagrams that wait."""
        self._limit = limit
        # Negative, so that whose turn is next stands at the end, where it is cheap to take away.
        self._order: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether nothing more may wait."""
        return len(self._order) >= self._limit

    @property
    def first(self) -> int:
        """The sqn whose turn is next; there must be one."""
        return -self._order[-1]

    def add(self, sqn: int, size: int) -> None:
        """Let a datagram wait that does not yet."""
        insort(self._order, -sqn)
        self._sizes[sqn] = size
        self.size += size

    def size_up_to(self, sqn: int) -> float:
        """About how many bytes will have left when it was the turn of ``sqn``; some must wait."""
        waiting = len(self._order)
        return (waiting - bisect_left(self._order, -sqn)) * self.size / waiting

    def pop(self) -> int:
        """Take the one whose turn is next."""
        sqn = -self._order.pop()
        self.size -= self._sizes.pop(sqn)
        return sqn

    def drop_below(self, trail: int) -> int:
        """Take out those that were evicted; return how many."""
        before = len(self._order)
        while self._order and self.first < trail:
            self.pop()
        return before - len(self._order)

    def clear(self) -> None:
        """Take all out."""
        self._order.clear()
        self._sizes.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, sqn: int) -> bool:
        return sqn in self._sizes
