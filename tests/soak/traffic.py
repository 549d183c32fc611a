"""What is said, and how it is listened to: tables, and the random choices among their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from random import Random

from sphtp.core.channel.settings import Lane
from tests.soak.payloads import LEAST

Span = tuple[float, float]
"""The least and the most of something that is drawn at random."""

LANES = (Lane(), Lane(priority=1), Lane(ordered=False, weight=3), Lane(ordered=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mood:
    """How somebody talks for ``lasting`` seconds: ``count`` messages every ``gap`` seconds."""

    sizes: str
    count: tuple[int, int] = (1, 1)
    gap: Span = (0.0, 0.2)
    lasting: Span = (1.0, 30.0)


MOODS = {
    "chat": Mood(sizes="small"),
    "story": Mood(sizes="medium", gap=(0.05, 0.5)),
    "burst": Mood(sizes="small", count=(50, 500), gap=(1.0, 5.0), lasting=(1.0, 5.0)),
    "files": Mood(sizes="large", gap=(1.0, 10.0)),
    "pause": Mood(sizes="small", count=(0, 0), gap=(5.0, 60.0), lasting=(1.0, 1.0)),
    "flood": Mood(sizes="packet", count=(1, 60), gap=(0.0, 0.05)),
}

WISHES = {
    "many": 8,
    "followed": 6,
    "perishable": 3,
    "copied": 2,
    "empty": 1,
    "unreliable": 5,
    "sequenced": 5,
}
"""How often each of a speaker's ways to send is chosen, out of their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What somebody says, moods and wishes by weight; and in which lanes."""

    moods: Mapping[str, float] = field(
        default_factory=lambda: {"chat": 5, "story": 3, "burst": 1, "files": 1, "pause": 1}
    )
    wishes: Mapping[str, float] = field(default_factory=lambda: WISHES)
    lanes: Sequence[int] = range(len(LANES))

    def mood(self, random: Random) -> Mood:
        """Draw how somebody talks next."""
        return MOODS[_draw(self.moods, random)]

    def wish(self, random: Random) -> str:
        """Draw how a message is sent."""
        return _draw(self.wishes, random)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How somebody listens: up to ``limit`` messages every ``gap`` seconds.

    With the chance ``stops`` it then reads nothing for the seconds of ``stop``.
    """

    limit: int = 1_000_000
    gap: Span = (0.0, 0.0)
    stops: float = 0.0
    stop: Span = (0.0, 0.0)

    def pause(self, random: Random) -> float:
        """Draw how long nothing is read, in seconds."""
        return random.uniform(*(self.stop if random.random() < self.stops else self.gap))


TALKATIVE = Traffic()
SILENT = Traffic(moods={"pause": 1})
PROMPT = Reading()


def draw_size(name: str, limit: int, random: Random) -> int:
    """Draw how many bytes a message has; large ones of every magnitude, and some at the limit."""
    if name == "large" and random.random() < 0.05:
        return limit
    low, high = {
        "small": (LEAST, 200),
        "packet": (100, 200),
        "medium": (200, 6000),
        "large": (6000, limit),
    }[name]
    return round(exp(random.uniform(log(low), log(high))))


def _draw(weights: Mapping[str, float], random: Random) -> str:
    return random.choices(list(weights), list(weights.values()))[0]
