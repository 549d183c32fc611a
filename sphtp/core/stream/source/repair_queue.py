"""Repairs that wait for their turn: the oldest datagram first."""

from heapq import heappop, heappush


class RepairQueue:
    """At most ``limit`` sqns, each once."""

    __slots__ = ("_heap", "_limit", "_sizes", "size")

    def __init__(self, limit: int) -> None:
        self.size = 0
        """Bytes of the datagrams that wait."""
        self._limit = limit
        self._heap: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether nothing more may wait."""
        return len(self._heap) >= self._limit

    @property
    def first(self) -> int:
        """The sqn whose turn is next; there must be one."""
        return self._heap[0]

    def add(self, sqn: int, size: int) -> None:
        """Let a datagram wait that does not yet."""
        heappush(self._heap, sqn)
        self._sizes[sqn] = size
        self.size += size

    def pop(self) -> int:
        """Take the one whose turn is next."""
        sqn = heappop(self._heap)
        self.size -= self._sizes.pop(sqn)
        return sqn

    def drop_below(self, trail: int) -> int:
        """Take out those that were evicted; return how many."""
        before = len(self._heap)
        while self._heap and self._heap[0] < trail:
            self.pop()
        return before - len(self._heap)

    def clear(self) -> None:
        """Take all out."""
        self._heap.clear()
        self._sizes.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, sqn: int) -> bool:
        return sqn in self._sizes
