"""Weather: what a path does all the time, and when it is cut."""

from dataclasses import dataclass
from math import inf
from random import Random

from sphtp.testing import Faults, SimulatedNetwork
from sphtp.testing.network import Path
from sphtp.testing.pair import LEFT, RIGHT
from tests.soak.traffic import Span

PATHS: tuple[Path, Path] = ((LEFT, RIGHT), (RIGHT, LEFT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Climate:
    """What each direction does; and, if at all, how long it is fair between cuts, and one lasts."""

    there: Faults
    back: Faults
    between: Span | None = None
    cut: Span = (0.0, 0.0)


class Weather:
    """Cuts one direction at a time, and mends it."""

    def __init__(self, network: SimulatedNetwork, climate: Climate, random: Random) -> None:
        self.cuts = 0
        self._network = network
        self._climate = climate
        self._faults = dict(zip(PATHS, (climate.there, climate.back), strict=True))
        self._random = random
        self._cut: Path | None = None
        self.next_time = inf
        self.wake(0.0)

    def act(self, now: float) -> None:
        """Cut, or mend, what is due."""
        if now < self.next_time or self._climate.between is None:
            return
        if self._cut is not None:
            self.wake(now)
            return
        self._cut = self._random.choice(PATHS)
        self._network.set_faults(Faults(blocked=True), *self._cut)
        self.cuts += 1
        self.next_time = now + self._random.uniform(*self._climate.cut)

    def hush(self) -> None:
        """Cut nothing more."""
        self.next_time = inf
        self._mend()

    def clear_up(self) -> None:
        """Be fair from now on."""
        self.next_time = inf
        for path in PATHS:
            self._network.set_faults(Faults(), *path)

    def wake(self, now: float) -> None:
        """Go on."""
        self._mend()
        between = self._climate.between
        self.next_time = now + self._random.uniform(*between) if between else inf

    def _mend(self) -> None:
        self._cut = None
        for path, faults in self._faults.items():
            self._network.set_faults(faults, *path)
