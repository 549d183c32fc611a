"""Numbers for which something happened a moment ago."""

from collections import OrderedDict


class Recent:
    """Remembers each number for ``interval`` seconds from when it was marked last."""

    __slots__ = ("_interval", "_times")

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._times: OrderedDict[int, float] = OrderedDict()

    def mark(self, now: float, number: int) -> None:
        """It happened now."""
        self._forget(now)
        self._times[number] = now
        self._times.move_to_end(number)

    def remaining(self, now: float, number: int) -> float:
        """How long it still counts, in seconds; 0 when it does not."""
        at = self._times.get(number)
        return 0.0 if at is None else max(at + self._interval - now, 0.0)

    def _forget(self, now: float) -> None:
        times = self._times
        while times and next(iter(times.values())) + self._interval <= now:
            times.popitem(last=False)

    def __len__(self) -> int:
        return len(self._times)
