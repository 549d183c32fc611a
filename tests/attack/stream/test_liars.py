"""Receivers that are in, and ask for too much or say what is not so: a source and honest others."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random

import pytest

from sphtp.core.stream.events import Batch
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.records import RUN_OVERHEAD
from sphtp.core.stream.settings import OVERHEAD, StreamSettings
from sphtp.core.stream.source import SourceState, SourceTransport
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.core.stream.wire import DATA_OVERHEAD, Nak, StatusMessage, encode_nak, encode_status

HONEST, LIAR = 1, 2
STEP = 0.001
SECONDS = 0.5
SENDING = (SourceState.IDLE, SourceState.ACTIVE)
SETTINGS = StreamSettings(
    nak_budget=100, repair_rate=1_000_000, repair_queue=64, flow_window=200_000, patience=0.1
)

Lie = Callable[["Hall"], bytes]


@dataclass
class Hall:
    """A source, an honest receiver one step away, and a liar who says ``lie`` at each step."""

    lie: Lie | None = None
    settings: StreamSettings = SETTINGS
    now: float = 0.0
    sent: int = 0
    worst: float = 0.0
    told: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = SourceTransport(Random(1), self.settings, now=0.0)
        self.reader = SubscriptionMachine(
            self.settings,
            0.0,
            Receiver(Random(2), self.settings, 0.0, self.source.window),
            self.source.session,
            0,
            0,
            recover=False,
            reach=self.source.reach,
        )
        self.left_at: dict[bytes, float] = {}
        for receiver in (HONEST, LIAR):
            self.source.handle_joined(0.0, receiver)

    def run(self, seconds: float) -> None:
        """A message of 1,000 bytes at each step, as far as the source has room."""
        for _ in range(round(seconds / STEP)):
            self._step()

    def _step(self) -> None:
        self.now += STEP
        source, reader = self.source, self.reader
        source.handle_timeout(self.now)
        if source.state in SENDING and source.room > 900_000:
            payload = self.sent.to_bytes(8, "little") * 125
            source.send_many(self.now, 0, [payload])
            self.left_at[payload] = self.now
            self.sent += 1
        if self.lie is not None:
            source.handle_feedback_untrusted(self.now, LIAR, self.lie(self))
        while (outgoing := source.poll_transmit(self.now)) is not None:
            if outgoing.receiver != LIAR:
                reader.handle_bodies_untrusted(self.now, outgoing.bodies)
        reader.handle_timeout(self.now)
        while (body := reader.poll_transmit(self.now)) is not None:
            source.handle_feedback_untrusted(self.now, HONEST, body)
        while isinstance(item := reader.poll_item(), Batch):
            reader.handle_read(self.now)
            for payload in item.payloads:
                self.told.append(payload)
                self.worst = max(self.worst, self.now - self.left_at.pop(payload))


def everything(hall: Hall) -> bytes:
    """All that the source has is missing, as one range or as many as a NAK holds."""
    lead, trail = hall.source.window
    return encode_nak(Nak([Span(trail, max(lead, trail))]))


def scattered(hall: Hall) -> bytes:
    lead, trail = hall.source.window
    sqns = range(trail, max(lead, trail) + 1, max((lead - trail) // 30, 2))
    return encode_nak(Nak([Span(sqn, sqn) for sqn in sqns]))


def what_is_to_come(hall: Hall) -> bytes:
    return encode_nak(Nak([Span(hall.source.window.lead + 1, hall.source.window.lead + 9)]))


def what_is_gone(_: Hall) -> bytes:
    return encode_nak(Nak([Span(0, 0)]))


@cache
def undisturbed(seconds: float) -> Hall:
    hall = Hall()
    hall.run(seconds)
    return hall


@pytest.mark.parametrize("lie", [everything, scattered], ids=["everything", "scattered"])
def test_a_flood_of_naks_gets_what_its_budget_allows_and_delays_nobody(lie: Lie) -> None:
    alone, beset = undisturbed(SECONDS), Hall(lie)
    beset.run(SECONDS)
    figures = beset.source.statistics()
    assert figures.naks_over_budget > 500
    assert figures.repairs_sent <= SETTINGS.nak_budget * (SECONDS + 1)
    assert figures.crybabies >= 1
    assert figures.waiting_repairs <= SETTINGS.repair_queue
    assert beset.told == alone.told
    assert beset.worst <= alone.worst + 0.01


@pytest.mark.parametrize("lie", [what_is_to_come, what_is_gone], ids=["to come", "gone"])
def test_naks_for_what_is_not_there_bring_nothing(lie: Lie) -> None:
    hall = Hall(lie)
    hall.run(SECONDS)
    figures = hall.source.statistics()
    assert figures.repairs_sent == figures.ncfs_sent == 0
    assert figures.feedback_invalid + figures.naks_out_of_window >= 0.95 * SECONDS / STEP
    # The trail is told once in an ignore interval, not once for each.
    assert figures.sessions_sent <= SECONDS / SETTINGS.ignore + 20
    assert len(hall.told) == hall.sent


def test_a_lead_that_was_not_reached_is_not_believed() -> None:
    """Beyond the source's: nothing was sent that could have been received."""
    hall = Hall(lambda hall: encode_status(StatusMessage(hall.source.window.lead + 1, 2**32 - 1)))
    hall.run(SECONDS)
    assert hall.source.statistics().feedback_invalid >= 0.95 * SECONDS / STEP
    assert hall.source.statistics().left_behind == 1
    assert len(hall.told) == hall.sent


def test_more_room_than_a_window_is_not_believed() -> None:
    """It has got nothing and has room for everything: the source goes no further for that."""
    hall = Hall(
        lambda _: encode_status(StatusMessage(0, 2**32 - 1)),
        StreamSettings(flow_window=200_000, patience=3600.0),
    )
    hall.run(SECONDS)
    charge = DATA_OVERHEAD + RUN_OVERHEAD + 1000 + OVERHEAD
    assert 200_000 - 2 * charge < hall.source.window.lead * charge <= 200_000


@pytest.mark.parametrize("room", [0, 2**32 - 1])
def test_whoever_does_not_go_on_holds_the_source_up_for_its_patience_and_no_longer(
    room: int,
) -> None:
    alone, beset = undisturbed(SECONDS), Hall(lambda _: encode_status(StatusMessage(0, room)))
    beset.run(SECONDS)
    assert beset.source.statistics().left_behind == 1
    assert beset.worst <= SETTINGS.patience + 0.02
    assert alone.told == beset.told


def test_a_receiver_that_says_it_has_everything_ends_nothing_for_the_others() -> None:
    """The source closes; the liar has all, it says, and the honest one has nothing yet."""
    hall = Hall(lambda hall: encode_status(StatusMessage(hall.source.window.lead, 2**32 - 1)))
    hall.run(0.5)
    hall.source.send_many(hall.now, 0, [b"last words"])
    hall.source.close(hall.now)
    lost = hall.source.poll_transmit(hall.now)
    assert lost
    hall.source.handle_feedback_untrusted(
        hall.now, LIAR, encode_status(StatusMessage(hall.source.window.lead, 1))
    )
    assert hall.source.state is SourceState.CLOSING
    hall.left_at[b"last words"] = hall.now
    hall.run(1.0)
    assert hall.told[-1] == b"last words"


def test_a_receiver_that_never_has_anything_keeps_a_source_for_its_linger_only() -> None:
    hall = Hall(lambda _: encode_status(StatusMessage(0, 0, is_fetching=True)))
    hall.run(0.5)
    hall.source.close(hall.now)
    hall.run(SETTINGS.linger + 0.1)
    assert hall.source.state in (SourceState.ENDING, SourceState.CLOSED)
