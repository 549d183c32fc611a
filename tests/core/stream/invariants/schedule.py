"""Schedules of trouble: who comes and goes when, what is sent, and what the network does to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from sphtp.core.stream.settings import StreamSettings
from sphtp.testing.network import Faults
from sphtp.testing.stream import LineFaults, SubscriberTerms

ALL: Final = 1 << 40
DELAY: Final = 0.002


class Fate(Enum):
    """How a source ends."""

    CLOSE = "as it should"
    CRASH = "its node vanishes, and receivers hear of it"
    SILENCE = "its node vanishes, and nobody says so"


class Lie(Enum):
    """What comes that was not sent, or not by this source, or not now."""

    NOISE = "random bytes"
    FOREIGN = "of another session"
    TRUNCATED = "not whole"
    REPLAYED = "what was there before"


class Send(NamedTuple):
    """Messages of these sizes leave together; who it is counts among those that are there."""

    source: int
    topic: int
    sizes: tuple[int, ...]


class Join(NamedTuple):
    source: int
    terms: SubscriberTerms
    send_naks: bool


class Leave(NamedTuple):
    who: int
    says_so: bool


class Partition(NamedTuple):
    down: bool
    up: bool
    seconds: float


class Cut(NamedTuple):
    """Nothing passes, this way or that, until another one says otherwise."""

    down: bool
    up: bool


class Wait(NamedTuple):
    seconds: float


class Restart(NamedTuple):
    """A source ends; another one at the same address gets its receivers."""

    source: int
    fate: Fate


class Tell(NamedTuple):
    """One more datagram comes to somebody."""

    lie: Lie


Step = Send | Join | Leave | Partition | Cut | Wait | Restart | Tell


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One of them; ``seed`` is that of everything that is not said here.

    ``is_fair`` says that limits are ample, and that sources live long enough for every repair.
    """

    seed: int
    profile: str
    changes: dict[str, Any]
    is_fair: bool
    shared: bool
    sources: int
    topics: int
    first: int
    down: Faults
    up: Faults
    line: LineFaults
    steps: tuple[Step, ...]
    fate: Fate
    dark: float = 0.0
    """Seconds from when the sources end in which nothing passes."""

    @property
    def settings(self) -> StreamSettings:
        """Those of all sources and receivers."""
        make = {"lan": StreamSettings.lan, "um": StreamSettings.um, "wan": StreamSettings.wan}
        settings: StreamSettings = make[self.profile](**self.changes)
        return settings


Menu = dict[str, Sequence[Any]]

FAULTS: Final[Menu] = {
    "loss": (0.0, 0.05, 0.3),
    "duplicate": (0.0, 0.1),
    "reorder": (0.0, 0.2),
    "jitter": (0.0, 0.005),
    "burst": (0.0, 0.01),
}
HASTY: Final[dict[str, Any]] = {
    "generation": 2.0,
    "activity_timeout": 2.0,
    "session_max": 0.5,
    "fetch_timeout": 2.0,
    "fetch_interval": 0.1,
}
"""Short intervals, so that everything runs out."""
TIGHT: Final[Menu] = {
    "window": (65_536,),
    "window_age": (0.1, 1.0),
    "ignore": (0.0, 0.01),
    "data_rate": (1e6, 20_000.0),
    "repair_rate": (5000.0, 20_000.0),
    "repair_queue": (1, 5),
    "repair_share": (None,),
    "nak_budget": (3.0, 50.0),
    "nak_spacing": (0.0, 0.05),
    "initial_backoff": (0.0, 0.1),
    "loss_map": (1, 3),
    "order_map": (8,),
    "retention": (0, 2000),
    "retention_count": (3,),
    "caching_proximity": (5,),
    "flow_window": (0, 16_384),
}
"""Of these some at a time."""
CROWDS: Final = (1, 2, 3, 13, 50, 8, 5, 1)
SIZES: Final = (0, 40, 900)
LARGE: Final = 5000


def draw_schedule(random: Random) -> Schedule:
    """Draw one; whatever the generator says, it can be played."""
    is_fair = random.random() < 0.4
    crowd, topics = random.choice(CROWDS), random.choice((1, 1, 3))
    length = random.randrange(8, 30) if crowd < 10 else random.randrange(4, 10)
    steps: list[Step] = [_draw_step(random, topics, is_fair) for _ in range(length)]
    for place in range(crowd):
        # Half of them are there first.
        at = random.randrange(len(steps)) if place > crowd // 2 else 0
        steps.insert(at, _draw_join(random, topics, is_fair))
    return Schedule(
        seed=random.randrange(1 << 32),
        is_fair=is_fair,
        shared=random.random() < 0.3,
        sources=random.choice((1, 1, 1, 2)),
        topics=topics,
        first=random.choice((1, 2**32 - 20, 2**40)),
        down=_draw_faults(random, is_fair),
        up=_draw_faults(random, is_fair),
        line=LineFaults(refused=random.choice((0.0, 0.2)), cut=random.choice((0.0, 0.05))),
        steps=tuple(steps),
        fate=Fate.CLOSE if is_fair else random.choice((Fate.CLOSE, *Fate)),
        **_draw_settings(random, is_fair),
    )


def _draw_settings(random: Random, is_fair: bool) -> dict[str, Any]:
    if is_fair:
        # So long that not all session messages get lost.
        return {"profile": random.choice(("lan", "wan")), "changes": {"activity_timeout": 90.0}}
    profile = random.choice(("lan", "lan", "lan", "lan", "um", "wan"))
    changes: dict[str, Any] = dict(HASTY) if profile == "lan" else {}
    for name in random.sample(tuple(TIGHT), random.randrange(6)):
        changes[name] = random.choice(TIGHT[name])
    if (rate := changes.get("data_rate")) is not None:
        changes["repair_rate"] = min(changes.get("repair_rate", rate), rate)
    return {"profile": profile, "changes": changes}


def _draw_faults(random: Random, is_fair: bool) -> Faults:
    faults = {name: random.choice(some) for name, some in FAULTS.items()}
    if is_fair:
        # Session messages are seldom: a burst of losses may take all of a minute.
        del faults["burst"]
    return Faults(delay=DELAY, **faults)


def _draw_join(random: Random, topics: int, is_fair: bool) -> Join:
    terms = SubscriberTerms(
        topic=random.randrange(topics),
        ordered=random.random() < 0.7,
        late_join=random.choice((0, 0, 5, ALL)),
        recover=random.random() < 0.7,
    )
    return Join(random.randrange(2), terms, is_fair or random.random() < 0.9)


def _draw_step(random: Random, topics: int, is_fair: bool) -> Step:
    chance = random.random()
    if chance < 0.5:
        return _draw_send(random, topics)
    if chance < 0.75:
        return Wait(random.choice((0.001, 0.01, 0.1)))
    if chance < 0.82:
        return Tell(random.choice(tuple(Lie)))
    if chance < 0.88:
        return _draw_join(random, topics, is_fair)
    if chance < 0.92:
        return Leave(random.randrange(50), random.random() < 0.7)
    if chance < 0.97 or is_fair:
        seconds = random.choice((0.1, 0.5) if is_fair else (0.1, 0.5, 3.0))
        return Partition(random.random() < 0.7, random.random() < 0.5, seconds)
    return Restart(random.randrange(2), random.choice(tuple(Fate)))


def _draw_send(random: Random, topics: int) -> Send:
    count = random.randrange(1, 12)
    sizes = tuple(random.choice(SIZES) for _ in range(count))
    large = random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 10))
    sizes = (LARGE,) * large or sizes
    return Send(random.randrange(2), random.randrange(topics), sizes)


CUTS: Final = (0.05, 0.3, 1.5, 4.0, 12.0)
"""Seconds, from less than a round of repairs to more than a generation interval."""


def draw_cuts(random: Random) -> Schedule:
    """Draw one in which a source sends to a few receivers, and the network is cut meanwhile.

    That may be at the head, before anything came, in the middle, and at the end, while the source
    closes or vanishes.
    """
    places = random.sample(("head", "middle", "end"), random.choice((1, 1, 2, 3)))
    steps: list[Step] = []
    if random.random() < 0.3:
        steps.append(_draw_send(random, 1))
    steps += [_draw_cut_join(random) for _ in range(random.choice((1, 1, 2, 4)))]
    for place in ("head", "middle", "tail"):
        if place in places:
            steps.append(Cut(down=True, up=random.random() < 0.8))
            steps += [_draw_send(random, 1) for _ in range(random.randrange(4))]
            steps += [Wait(random.choice(CUTS)), _draw_send(random, 1), Cut(down=False, up=False)]
        if random.random() < 0.3:
            steps.append(_draw_cut_join(random))
        steps += [_draw_send(random, 1), Wait(random.choice((0.001, 0.05, 1.0)))]
    is_dark = "end" in places
    if is_dark:
        steps += [Cut(down=True, up=True), _draw_send(random, 1)]
    changes: dict[str, Any] = dict(HASTY) if random.random() < 0.5 else {}
    if random.random() < 0.5:
        changes |= random.choice(
            ({"retention": 0}, {"retention_count": 3}, {"window_age": 0.1}, {"linger": 1.0})
        )
    return Schedule(
        seed=0,
        profile="lan",
        changes=changes,
        is_fair=False,
        shared=random.random() < 0.2,
        sources=1,
        topics=1,
        first=random.choice((1, 2**32 - 20)),
        down=Faults(delay=DELAY, loss=random.choice((0.0, 0.0, 0.05, 0.3))),
        up=Faults(delay=DELAY, loss=random.choice((0.0, 0.05, 0.3))),
        line=LineFaults(refused=random.choice((0.0, 0.5)), cut=random.choice((0.0, 0.05))),
        steps=tuple(steps),
        fate=random.choice((Fate.CLOSE, Fate.CLOSE, *Fate)),
        dark=random.choice(CUTS) if is_dark else 0.0,
    )


def _draw_cut_join(random: Random) -> Join:
    terms = SubscriberTerms(
        ordered=random.random() < 0.7,
        late_join=random.choice((0, 0, 3, ALL)),
        recover=random.random() < 0.5,
    )
    if not terms.late_join and random.random() < 0.2:
        terms = terms._replace(after=random.choice((-1, 2)))
    return Join(0, terms, True)


schedules: st.SearchStrategy[Schedule] = st.randoms(use_true_random=False).map(draw_schedule)
