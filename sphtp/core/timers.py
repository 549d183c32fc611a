"""Timers: a queue of deadlines, a dict whose entries expire, and failure detection by silence.

Nothing here has a clock. Times are absolute, in seconds of the caller's clock. The caller reads
``next_due``, sleeps until then, and takes the keys that are due.

``TimerQueue`` holds one time for each key, in a heap. A heap cannot remove from its middle, so the
entry of a time that is removed or postponed stays in the heap until it reaches the top (lazy
deletion). Most timers are postponed and never fire: each packet postpones an idle timeout.
Postponing does not touch the heap; an entry that reaches the top too early is put back at its
present time. Only one entry of a key is put back, the earliest. Setting an earlier time leaves an
older entry behind, which is dropped when it reaches the top.

``ExpiringDict`` is for entries with equal periods: the last one put expires last, so that the order
of insertion is the order of expiry, and no heap is needed. It also bounds the memory spent on
peers: the entry of the peer that was silent for longest is dropped first.

``Liveness`` detects failure by silence, of servers and of clients (SphTP, step 11). It has an
``ExpiringDict`` for each stage of silence, since all members pass a stage at the same age.
"""

from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

INFINITY: Final = float("inf")

SLACK: Final = 64
"""The number of entries, beyond two for each key, up to which a heap is not rebuilt."""


def earliest(*times: float | None) -> float | None:
    """Return the earliest of several times; None stands for no time."""
    first = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


Entry = tuple[Any, ...]
"""Time, order and key. Entries are compared by identity, which compiled code keeps only for tuples
of variable length."""


class TimerQueue(Generic[K]):
    """A queue of deadlines, with one time for each key.

    Keys of the same time are due in the order in which they were set. Setting and taking cost the
    logarithm of the number of keys; removing and postponing cost a lookup. The heap is
    rebuilt when a new entry makes it larger than twice the number of keys, and 64 more.
    """

    __slots__ = ("_due", "_heap", "_order", "_queued")

    def __init__(self) -> None:
        # The order decides between equal times, so that keys are never compared.
        self._due: dict[K, Entry] = {}
        # For each key that is set, ``_queued`` has the one entry of the heap that is not later than
        # the time of the key. All other entries of the heap are stale.
        self._heap: list[Entry] = []
        self._queued: dict[K, Entry] = {}
        self._order = count()

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, when: float | None) -> None:
        """Set or change the time of ``key``; None removes it."""
        if when is None:
            self._due.pop(key, None)
            return
        before = self._due.get(key)
        if before is not None and before[0] == when:
            return
        entry: Entry = (when, next(self._order), key)
        self._due[key] = entry
        queued = self._queued.get(key)
        if queued is None or when < queued[0]:
            self._queued[key] = entry
            heappush(self._heap, entry)
            if len(self._heap) > SLACK + 2 * len(self._due):
                self._queued = self._due.copy()
                self._heap = list(self._due.values())
                heapify(self._heap)

    def next_due(self) -> float | None:
        """Return the earliest time; None if none is set."""
        heap = self._heap
        while heap:
            entry = heap[0]
            key = entry[2]
            due = self._due.get(key)
            if due is entry:
                when: float = entry[0]
                return when
            if self._queued.get(key) is not entry:
                heappop(heap)
            elif due is None:
                heappop(heap)
                del self._queued[key]
            else:
                self._queued[key] = due
                heapreplace(heap, due)
        return None

    def first(self) -> K | None:
        """Return the key of the earliest time, due or not; None if none is set."""
        return None if self.next_due() is None else self._heap[0][2]

    def pop(self) -> K | None:
        """Remove and return the key of the earliest time, due or not; None if none is set."""
        if self.next_due() is None:
            return None
        return self._take_first()

    def take_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys that are due by ``now``, the earliest first.

        A key that the caller sets again meanwhile, to a time not after ``now``, is yielded again.
        """
        while (when := self.next_due()) is not None and when <= now:
            yield self._take_first()

    def _take_first(self) -> K:
        key: K = heappop(self._heap)[2]
        del self._due[key], self._queued[key]
        return key


class ExpiringDict(Generic[K, V]):
    """A dict whose entries expire, by time or because there are too many.

    With a ``capacity``, a new entry beyond it drops the oldest one. An entry that has expired by
    time stays until ``take_expired``. Entries must be put in the order of their expiry, as they are
    if all have the same period, or none.
    """

    __slots__ = ("_capacity", "_entries", "_postponed")

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._entries: dict[K, tuple[float, V]] = {}
        # Added to each stored time, so that postponing all of them costs nothing.
        self._postponed = 0.0

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V, due: float = INFINITY) -> None:
        """Set ``key`` to ``value`` until ``due``, as the newest entry."""
        entries = self._entries
        entries.pop(key, None)
        if self._capacity is not None and len(entries) >= self._capacity:
            del entries[next(iter(entries))]
        entries[key] = due - self._postponed, value

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, expired or not; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def due(self, key: K) -> float | None:
        """Return the time at which ``key`` expires or has expired; None if it is not there."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0] + self._postponed

    def pop(self, key: K) -> V | None:
        """Remove ``key`` and return its value; None if it is not there."""
        entry = self._entries.pop(key, None)
        return None if entry is None else entry[1]

    def take_expired(self, now: float) -> list[tuple[K, float]]:
        """Remove the entries expired by ``now``; return keys and times of expiry, oldest first."""
        taken = list[tuple[K, float]]()
        for key, (due, _) in self._entries.items():
            if due + self._postponed > now:
                break
            taken.append((key, due + self._postponed))
        for key, _ in taken:
            del self._entries[key]
        return taken

    def postpone(self, seconds: float) -> None:
        """Postpone the expiry of every entry by ``seconds``."""
        self._postponed += seconds

    def next_due(self) -> float | None:
        """Return the time at which the oldest entry expires; None if there is no entry."""
        for due, _ in self._entries.values():
            return due + self._postponed
        return None


class Liveness:
    """Failure detection by silence, for members with numbers. Times in seconds.

    A member that is silent for half of ``expiry`` becomes a suspect, and one that is silent for
    ``expiry`` has expired. A doubted member expires earlier: see ``doubt``. Refreshing takes
    constant time, and so does finding a member that is due.
    """

    __slots__ = ("_doubted", "_fresh", "_half", "_suspect")

    def __init__(self, expiry: float) -> None:
        self._half = expiry / 2
        self._fresh = ExpiringDict[int, None]()
        self._suspect = ExpiringDict[int, None]()
        self._doubted = ExpiringDict[int, None]()

    def __contains__(self, number: int) -> bool:
        return number in self._fresh or number in self._suspect or number in self._doubted

    def __len__(self) -> int:
        return len(self._fresh) + len(self._suspect) + len(self._doubted)

    @property
    def suspects(self) -> Iterable[int]:
        """The members that are doubted, or have been silent for half of ``expiry``."""
        return (*self._suspect, *self._doubted)

    def refresh(self, now: float, number: int) -> None:
        """Record a sign of life of ``number``, and watch it from now on."""
        self._suspect.pop(number)
        self._doubted.pop(number)
        self._fresh.put(number, None, now + self._half)

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Let ``number`` expire in ``wait`` seconds unless it is refreshed before.

        All calls need the same ``wait``. A call has no effect on a member that expires earlier
        anyway, is not watched, or is doubted already. Return True if the call has made a suspect of
        the member.
        """
        suspected_at, end = self._fresh.due(number), self._suspect.due(number)
        is_new = suspected_at is not None
        if suspected_at is not None:
            end = suspected_at + self._half
        if end is None or end <= now + wait:
            return False
        self._fresh.pop(number)
        self._suspect.pop(number)
        self._doubted.put(number, None, now + wait)
        return is_new

    def forget(self, number: int) -> None:
        """Stop watching ``number``, if it is watched."""
        for watched in (self._fresh, self._suspect, self._doubted):
            watched.pop(number)

    def postpone_expiries(self, lag: float) -> None:
        """Give every member ``lag`` more seconds, for which this process did not run."""
        for watched in (self._fresh, self._suspect, self._doubted):
            watched.postpone(lag)

    def take_suspects(self, now: float) -> list[int]:
        """Return the members that become suspects now, each once per silence."""
        taken = self._fresh.take_expired(now)
        for number, suspected_at in taken:
            self._suspect.put(number, None, suspected_at + self._half)
        return [number for number, _ in taken]

    def take_expired(self, now: float) -> list[int]:
        """Return the members that have expired, and stop watching them.

        Call ``take_suspects`` before: a member expires only after it has become a suspect.
        """
        taken = self._suspect.take_expired(now) + self._doubted.take_expired(now)
        return [number for number, _ in taken]

    def next_due(self) -> float | None:
        """Return the time at which the next member becomes a suspect or expires; None if there is
        no member.
        """
        return earliest(self._fresh.next_due(), self._suspect.next_due(), self._doubted.next_due())
