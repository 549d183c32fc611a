"""Who was heard when: one clock for servers and clients (seed, step 11)."""

from collections import OrderedDict
from collections.abc import Iterable

from sphtp.core.control.counters import Count, Counters


class Liveness:
    """Suspects after half the expiry, gives up after all of it, and earlier whom it doubts.

    Refreshing takes constant time, and so does finding who is due: two queues are in the order of
    last hearing, and that of the doubted in the order of their ends.
    """

    __slots__ = ("_doubted", "_expiry", "_forgiven", "_fresh", "_suspect")

    def __init__(self, expiry: float) -> None:
        self._expiry = expiry
        self._forgiven = 0.0
        self._fresh: OrderedDict[int, float] = OrderedDict()
        self._suspect: OrderedDict[int, float] = OrderedDict()
        self._doubted: OrderedDict[int, float] = OrderedDict()

    def __contains__(self, number: int) -> bool:
        return number in self._fresh or number in self._suspect or number in self._doubted

    def __len__(self) -> int:
        return len(self._fresh) + len(self._suspect) + len(self._doubted)

    @property
    def suspects(self) -> Iterable[int]:
        """Those silent for half the expiry, and those that are doubted."""
        return (*self._suspect, *self._doubted)

    def refresh(self, now: float, number: int) -> None:
        """Note that ``number`` was heard."""
        self._suspect.pop(number, None)
        self._doubted.pop(number, None)
        self._fresh[number] = now - self._forgiven
        self._fresh.move_to_end(number)

    def doubt(self, now: float, number: int, patience: float) -> bool:
        """Give ``number`` up unless it is heard within ``patience``; tell whether that is news.

        Each call has to come with the same patience. Who expires earlier anyway is left alone, and
        so is who is not watched or doubted already.
        """
        heard = self._fresh.get(number, self._suspect.get(number))
        end = now - self._forgiven + patience
        if heard is None or heard + self._expiry <= end:
            return False
        self._doubted[number] = end
        self._suspect.pop(number, None)
        return self._fresh.pop(number, None) is not None

    def forget(self, number: int) -> None:
        """Stop watching ``number``, if it is watched."""
        self._fresh.pop(number, None)
        self._suspect.pop(number, None)
        self._doubted.pop(number, None)

    def forgive(self, lag: float) -> None:
        """Give everybody ``lag`` more seconds: this process was not listening."""
        self._forgiven += lag

    def take_suspects(self, now: float) -> list[int]:
        """Return those who become suspect now; each is returned once per silence."""
        taken = []
        while self._fresh and self._due(self._fresh, self._expiry / 2) <= now:
            number, heard = self._fresh.popitem(last=False)
            self._suspect[number] = heard
            taken.append(number)
        return taken

    def take_expired(self, now: float) -> list[int]:
        """Return those given up now, and forget them. Suspects must have been taken before."""
        taken = []
        while self._suspect and self._due(self._suspect, self._expiry) <= now:
            taken.append(self._suspect.popitem(last=False)[0])
        while self._doubted and self._due(self._doubted, 0.0) <= now:
            taken.append(self._doubted.popitem(last=False)[0])
        return taken

    def next_due(self) -> float | None:
        """Return the time at which somebody becomes suspect or is given up."""
        dues = []
        if self._fresh:
            dues.append(self._due(self._fresh, self._expiry / 2))
        if self._suspect:
            dues.append(self._due(self._suspect, self._expiry))
        if self._doubted:
            dues.append(self._due(self._doubted, 0.0))
        return min(dues, default=None)

    def _due(self, queue: OrderedDict[int, float], silence: float) -> float:
        return next(iter(queue.values())) + silence + self._forgiven


class SleepWatch:
    """Notices that this process did not run for a while, so that others are not blamed for it."""

    __slots__ = ("_awake", "_counters", "_tolerance")

    def __init__(self, tolerance: float, counters: Counters) -> None:
        self._tolerance = tolerance
        self._counters = counters
        self._awake = float("-inf")

    def overslept(self, now: float, due: float | None) -> float:
        """Return by how many seconds a timeout was missed, or 0 when this process was awake."""
        lag = 0.0 if due is None else now - max(due, self._awake)
        self._awake = now
        if lag <= self._tolerance:
            return 0.0
        self._counters.add(Count.OVERSLEPT)
        return lag
