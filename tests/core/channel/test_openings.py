"""How long a channel takes to open where datagrams get lost, on long paths, and with nobody there.

The share that may fail follows from the tries: of 27 in the 5 s of silence that end an attempt, all
come to nothing in 0.04 % of the flights where half of the datagrams are lost each way.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.handshake import INITIAL, LONGEST, SHORTEST, HandshakeTimer
from sphtp.core.channel.lifecycle import CloseReason, State
from sphtp.core.channel.security import PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.secure.identity import Identity
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT

IDENTITY = Identity.draw(Random("right"))
HANDSHAKES = ["clear", "IK", "XX", "XXpsk0"]
ONE_WAY = 0.02
PATIENCE = ChannelSettings().connect_timeout


def dial(pair: Pair, handshake: str) -> Connection:
    """Dial from left to right; they are as ``make_pair`` makes them."""
    if pair.left.is_sealed:
        key = IDENTITY.public if handshake == "IK" else None
        return pair.left.dial(pair.now, [RIGHT], 0, PeerPin(key))
    return pair.left.dial(pair.now, [RIGHT])


def make_pair(seed: int, handshake: str, faults: Faults) -> Pair:
    """Two who open channels by this handshake, with the default settings."""
    if handshake == "clear":
        return Pair(seed, faults)
    psk = bytes(range(32)) if handshake == "XXpsk0" else None
    right = Security(identity=IDENTITY, psk=psk)
    return Pair(seed, faults, security=Security(psk=psk), right_security=right)


@dataclass
class Openings:
    """Seconds until the dialler may send, and the seeds of those that failed on either side."""

    seconds: list[float] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        return sorted(self.seconds)[round(share * (len(self.seconds) - 1))]


def open_many(handshake: str, number: int, faults: Faults) -> Openings:
    """Open that many channels, each on a network of its own."""
    result = Openings()
    for seed in range(number):
        pair = make_pair(seed, handshake, faults)
        dialled = dial(pair, handshake)
        pair.drive(lambda dialled=dialled: dialled.state is not State.CONNECTING)  # type: ignore[misc]
        seconds = pair.now
        while dialled.closed is None and not pair.right.has_incoming:
            pair.step()
        if dialled.closed is None:
            result.seconds.append(seconds)
        else:
            result.failed.append(seed)
    return result


ALLOWED = {0.1: 0.0, 0.2: 0.0, 0.3: 0.001, 0.5: 0.03}
"""The share of attempts that may fail, by the loss."""


@pytest.mark.parametrize("handshake", HANDSHAKES)
@pytest.mark.parametrize(
    ("loss", "number"),
    [
        *((0.1, 15), (0.3, 15), (0.5, 35)),
        *(pytest.param(loss, 1000, marks=pytest.mark.soak) for loss in ALLOWED),
    ],
)
def test_a_channel_opens_through_loss(loss: float, number: int, handshake: str) -> None:
    openings = open_many(handshake, number, Faults(delay=ONE_WAY, loss=loss))
    assert len(openings.failed) <= ALLOWED[loss] * number, openings.failed
    if loss == 0.1:
        assert openings.quantile(0.99) <= 0.6


@pytest.mark.parametrize("handshake", HANDSHAKES)
@pytest.mark.parametrize("round_trip", [0.3, 1.7, 3.0])
def test_a_channel_opens_on_a_long_path(round_trip: float, handshake: str) -> None:
    """Each flight takes a round trip, and no more."""
    (seconds,) = open_many(handshake, 1, Faults(delay=round_trip / 2)).seconds
    flights = {"clear": 1, "IK": 2, "XX": 3, "XXpsk0": 3}[handshake]
    assert seconds == pytest.approx(flights * round_trip)


@pytest.mark.parametrize("handshake", HANDSHAKES)
def test_where_nobody_is_an_attempt_ends_when_its_time_is_over(handshake: str) -> None:
    pair = make_pair(1, handshake, Faults(blocked=True))
    dialled = dial(pair, handshake)
    pair.run(PATIENCE - 0.01)
    assert dialled.state is State.CONNECTING
    pair.run(0.02)
    assert dialled.closed is not None
    assert dialled.closed.reason is CloseReason.UNREACHABLE
    assert dialled.closed.text.endswith("did not answer within 5.0 s")
    assert pair.network.dropped == 27


@pytest.mark.parametrize("handshake", HANDSHAKES[1:])
def test_a_peer_that_falls_silent_has_its_time_from_its_last_answer(handshake: str) -> None:
    pair = make_pair(1, handshake, Faults(delay=ONE_WAY))
    dialled = dial(pair, handshake)
    pair.network.set_faults(Faults(delay=1), RIGHT, LEFT)
    pair.run(1.03)
    pair.network.set_default(Faults(blocked=True))
    pair.network.set_faults(Faults(blocked=True), RIGHT, LEFT)
    pair.run(PATIENCE - 0.02)
    assert dialled.state is State.CONNECTING, "its cookie came after 1.02 s"
    pair.run(0.02)
    assert dialled.closed is not None
    assert dialled.closed.reason is CloseReason.UNREACHABLE
    assert "answered, but the channel was not open after 6.02 s" in dialled.closed.text


def test_waits_grow_by_a_quarter_up_to_a_bound() -> None:
    timer = HandshakeTimer()
    waits = [timer.sent(0.0) for _ in range(8)]
    assert waits[:3] == pytest.approx([INITIAL, 0.125, 0.15625])
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST


@pytest.mark.parametrize(
    ("answer", "wait"), [(0.001, SHORTEST), (0.04, 0.06), (0.1, 0.15), (3.0, LONGEST)]
)
def test_the_next_flight_waits_as_the_last_one_took(answer: float, wait: float) -> None:
    timer = HandshakeTimer()
    timer.sent(1.0)
    assert timer.answered(1.0 + answer) == pytest.approx(wait)


def test_an_answer_to_what_left_twice_says_nothing_of_the_round_trip() -> None:
    timer = HandshakeTimer()
    for when in (0.0, 0.1, 0.225):
        timer.sent(when)
    assert timer.answered(0.226) == INITIAL
    assert timer.sent(0.326) == pytest.approx(INITIAL * 1.25)
    assert timer.answered(0.4) == INITIAL
