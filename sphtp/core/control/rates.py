"""How often a server does what costs it, or its clients, the most."""

from collections.abc import Callable

from sphtp.core.control.client_messages import Announce, Lookup
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.fields import Holder
from sphtp.core.control.intake import AnyMessage
from sphtp.core.control.limits import ServerLimits
from sphtp.core.token_bucket import TokenBucket


class RatesPerHolder:
    """A bucket for each holder of an id; those of holders that are gone are thrown out in bulk."""

    __slots__ = ("_buckets", "_is_holder", "_rate")

    def __init__(self, rate: float, is_holder: Callable[[Holder], bool]) -> None:
        self._rate = rate
        self._is_holder = is_holder
        self._buckets: dict[Holder, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, now: float, holder: Holder, holders: int) -> bool:
        """Take a token of a holder, of which there are ``holders`` at the moment, if it has one."""
        bucket = self._buckets.get(holder)
        if bucket is None:
            if len(self._buckets) >= 2 * holders:
                kept = filter(self._is_holder, self._buckets)
                self._buckets = {each: self._buckets[each] for each in kept}
            bucket = self._buckets[holder] = TokenBucket(self._rate)
        return bucket.take(now)


class Rates:
    """Drops and counts what comes too often. Whoever means it says it again."""

    __slots__ = ("_buckets", "_counters")

    def __init__(self, limits: ServerLimits, counters: Counters) -> None:
        self._counters = counters
        self._buckets: dict[type, tuple[TokenBucket, Count]] = {
            Announce: (TokenBucket(limits.announces_per_second), Count.OVER_ANNOUNCES_PER_SECOND),
            Lookup: (TokenBucket(limits.lookups_per_second), Count.OVER_LOOKUPS_PER_SECOND),
        }

    def allows(self, now: float, message: AnyMessage) -> bool:
        """Tell whether to do something about a message."""
        limited = self._buckets.get(type(message))
        if limited is None or limited[0].take(now):
            return True
        self._counters.add(limited[1])
        return False
