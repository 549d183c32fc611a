"""The bad days a channel has to get through."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults
from tests.soak.conversation import Conversation, Side
from tests.soak.payloads import Kind
from tests.soak.traffic import LANES, PROMPT, SILENT, TALKATIVE, Reading, Traffic
from tests.soak.weather import Climate

HOUR = 3600.0
DAY = 24 * HOUR
STRETCHES = 24
"""How often a long run tells how far it is."""


COMMON: dict[str, Any] = {
    "lanes": LANES,
    "max_message": 100_000,
    "send_buffer": 2048,
    "send_buffer_bytes": 1_000_000,
    "receive_buffer": 1024,
    "receive_buffer_bytes": 500_000,
}


def side(traffic: Traffic | None = None, reading: Reading | None = None, **changes: Any) -> Side:
    """One side, with the settings that differ from the common ones."""
    settings = ChannelSettings(**COMMON | changes)
    return Side(traffic=traffic or TALKATIVE, reading=reading or PROMPT, settings=settings)


USUAL = side()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A climate and two sides; for how many seconds they talk, at length and in brief.

    ``patience`` is how many seconds the last message may then take, and ``shows`` the figure that
    must not be zero, or the day was not bad.
    """

    climate: Climate
    left: Side = USUAL
    right: Side = USUAL
    long: float
    brief: float
    patience: float = HOUR
    shows: str = "lost"

    def begin(self, seed: int) -> Conversation:
        """Open the channel, and let the climate begin."""
        return Conversation(seed, self.climate, self.left, self.right, self.patience)

    def play(self, seed: int, seconds: float, tell: Callable[[str], None]) -> str:
        """Talk, settle, talk for much longer, settle; memory is back where it was, and both part.

        Return what happened, in words.
        """
        conversation = self.begin(seed)
        conversation.talk(seconds / 10)
        before = conversation.settle()
        conversation.wake()
        for _ in range(STRETCHES):
            conversation.talk(seconds * 9 / 10 / STRETCHES)
            tell(conversation.progress)
        after = conversation.settle()
        memory = after.check_no_more_than(before)
        figures = conversation.figures()
        assert getattr(figures, self.shows) > 0, f"{self.shows}: {figures}"
        conversation.part()
        return f"{figures}; {memory}"


BAD = Faults(
    loss=0.05,
    duplicate=0.02,
    delay=0.03,
    jitter=0.01,
    reorder=0.02,
    reorder_delay=0.05,
    mtu=1452,
)
EVERYWHERE_BAD = Climate(there=BAD, back=BAD)
# Nobody is taken for gone, however bad it gets.
PATIENT: dict[str, Any] = {"timeout": DAY, "close_timeout": HOUR}
# No loss is taken for a full path.
STEADY: dict[str, Any] = PATIENT | {"congestion": "fixed:1e6"}
FEW = Traffic(moods={"chat": 1, "pause": 4})
FLOOD = Traffic(moods={"flood": 1})

SCENARIOS = {
    "a day of loss, jitter, duplicates and reordering": Scenario(
        climate=EVERYWHERE_BAD, right=side(congestion="tolerant"), long=DAY, brief=600
    ),
    "90 % lost": Scenario(
        climate=Climate(there=Faults(loss=0.9, jitter=0.02), back=Faults(loss=0.9, jitter=0.02)),
        left=side(**STEADY),
        right=side(**PATIENT),
        long=2 * HOUR,
        brief=60,
        patience=1000 * HOUR,
    ),
    "99 % lost": Scenario(
        climate=Climate(there=Faults(loss=0.99), back=Faults(loss=0.99)),
        left=side(FEW, **STEADY),
        right=side(FEW, **PATIENT),
        long=600,
        brief=1,
        patience=10_000 * HOUR,
    ),
    "half of all acks lost": Scenario(
        climate=Climate(there=Faults(jitter=0.005), back=Faults(loss=0.5)),
        right=side(SILENT),
        long=HOUR,
        brief=30,
    ),
    "99 % of all acks lost": Scenario(
        climate=Climate(there=Faults(jitter=0.005), back=Faults(loss=0.99)),
        left=side(**STEADY),
        right=side(SILENT, **PATIENT),
        long=HOUR,
        brief=20,
        patience=100 * HOUR,
    ),
    "one-way blackouts": Scenario(
        climate=Climate(there=BAD, back=BAD, between=(0.5, 20), cut=(0.1, 30)),
        left=side(timeout=120, close_timeout=120),
        right=side(timeout=120, close_timeout=120, congestion="newreno"),
        long=3 * HOUR,
        brief=40,
        shows="cuts",
    ),
    "slow readers": Scenario(
        climate=EVERYWHERE_BAD,
        left=side(reading=Reading(limit=3, gap=(0.01, 0.5))),
        right=side(FLOOD, Reading(limit=1, gap=(0.05, 0.5))),
        long=HOUR,
        brief=20,
        shows="held_back",
    ),
    "hardly any room": Scenario(
        climate=Climate(there=Faults(loss=0.3, jitter=0.02), back=Faults(loss=0.3)),
        left=side(receive_buffer=4, receive_buffer_bytes=200_000, send_buffer=8),
        right=side(FLOOD, Reading(limit=2, gap=(0.0, 0.1)), receive_buffer=1),
        long=HOUR,
        brief=30,
        shows="held_back",
    ),
    "readers that stop": Scenario(
        climate=EVERYWHERE_BAD,
        left=side(FLOOD, Reading(stops=0.02, stop=(10, 90))),
        right=side(reading=Reading(stops=0.02, stop=(10, 90))),
        long=HOUR,
        brief=20,
        shows="held_back",
    ),
}

STARTS = (0, 32767, 65535, 2**31 - 1, 2**32 - 1, 2**48 - 1)
"""Where the 16 bits of a number, or more of them, are about to wrap."""

BEFORE = 60
"""How many numbers before that somebody begins."""


def across(start: int) -> Scenario:
    """Much traffic whose packets and messages are numbered from a little before ``start``.

    The other side's start at zero, and little is said there.
    """
    faults = Faults(loss=0.05, duplicate=0.05, delay=0.005, jitter=0.002)
    wishes = {"many": 8, "unreliable": 8, "sequenced": 8, "perishable": 1}
    steady: dict[str, Any] = {"max_datagram": 1000, "congestion": "fixed:2e7"}
    return Scenario(
        climate=Climate(there=faults, back=faults),
        left=side(
            Traffic(moods={"flood": 1}, wishes=wishes, lanes=(0, 2)),
            first_sequence=max(0, start - BEFORE),
            **steady,
        ),
        right=side(FEW, **steady),
        long=0,
        brief=0,
    )


def least_numbered(conversation: Conversation) -> int:
    """How many numbers were given at least: to packets each way, and to messages of each sort."""
    says = conversation.speakers[0].says
    counts = [number for kind in Kind for number in says.numbers(kind)]
    counts += [it.connection.port.statistics().sent for it in conversation.speakers]
    return min(counts)
