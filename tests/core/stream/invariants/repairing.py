"""Judges of what sources say beside new data, at each place by itself (invariants 5, 7 and 8).

A place is a receiver of unicast, or a group: what holds there holds whether a repair goes to all
or only to who asked.
"""

from collections import defaultdict

from sphtp.core.stream.wire import Body, BodyFlag, Ncf, StreamData, Window
from sphtp.core.token_bucket import BURST, HOLD
from sphtp.testing.broadcast import Party
from sphtp.testing.network import Address
from sphtp.testing.stream import Publisher
from tests.core.stream.invariants.play import Judge, Play

ROUNDING = 1e-9
Listener = tuple[Publisher, Address]


class Leak:
    """A bucket that ``rate`` bytes a second run out of: so much came at once as stands in it."""

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def add(self, now: float, size: int, rate: float) -> float:
        """Pour ``size`` bytes in; return how much is there."""
        self._level = max(self._level - (now - self._at) * rate, 0.0) + size
        self._at = now
        return self._level


class RepairsAreSpacedAndPaced(Judge):
    """No sqn twice to one place within the ignore interval; repairs and data at their rates (5)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._repaired: dict[tuple[Listener, int], float] = {}
        self._leaks = defaultdict[tuple[Listener, bool], Leak](Leak)

    def left(self, now: float, publisher: Publisher, place: Address, said: Body, size: int) -> None:
        if not isinstance(said, StreamData):
            return
        listener, settings = (publisher, place), publisher.settings
        is_repair = BodyFlag.REPAIR in said.flags
        if is_repair:
            last = self._repaired.get((listener, said.sqn), -3600.0)
            assert now >= last + settings.ignore - ROUNDING, f"{said.sqn} again after {now - last}"
            self._repaired[listener, said.sqn] = now
        rate = settings.repair_rate if is_repair else settings.data_rate
        if rate is not None:
            at_once = max(BURST * publisher.source.size, rate * HOLD)
            assert self._leaks[listener, is_repair].add(now, size, rate) <= at_once + 1


class ConfirmsOnce(Judge):
    """An NCF names what is in the window, once per place and ignore interval (7)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._confirmed: dict[tuple[Listener, int], float] = {}

    def left(self, now: float, publisher: Publisher, place: Address, said: Body, size: int) -> None:
        if not isinstance(said, Ncf):
            return
        lead, trail = said.window
        for first, end in said.spans:
            assert trail <= first <= end <= lead, f"{first} to {end} of {said.window}"
            for sqn in range(first, end + 1):
                key = (publisher, place), sqn
                last = self._confirmed.get(key, -3600.0)
                assert now >= last + publisher.settings.ignore - ROUNDING
                self._confirmed[key] = now


class WindowIsBounded(Judge):
    """It holds what it may, from a trail that only rises, and what was evicted stays gone (8)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._trails: dict[Listener, int] = {}
        self._seen: dict[Publisher, Window] = {}

    def touched(self, now: float, party: Party) -> None:
        if isinstance(party, Publisher) and party.source.window != self._seen.get(party):
            window, statistics = party.source.window, party.source.statistics()
            self._seen[party] = window
            assert statistics.window_bytes <= party.settings.window + party.source.size
            assert statistics.window_datagrams == window.lead - window.trail + 1

    def left(self, now: float, publisher: Publisher, place: Address, said: Body, size: int) -> None:
        listener, (lead, trail) = (publisher, place), said.window
        assert trail >= self._trails.get(listener, 0), "a trail does not fall"
        self._trails[listener] = trail
        assert lead >= trail - 1
        if isinstance(said, StreamData):
            assert trail <= said.sqn <= lead, f"{said.sqn} was evicted"
