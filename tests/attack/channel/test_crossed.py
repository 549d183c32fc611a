"""A GREET that was seen once and is played again while its receiver dials its true sender."""

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.noise import (
    NO_COOKIE,
    Greet,
    decode_answer_untrusted,
    decode_greet_untrusted,
    encode_greet,
)
from sphtp.core.channel.security import HandshakeLimits, PeerPin, RosterAuthenticator
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address, Kind
from sphtp.testing import Faults
from sphtp.testing.pair import Stage
from tests.attack.channel.mallory import Knocking, answers, kind_of, watch
from tests.core.channel.sealed import LEFT, RIGHT, check_forgotten, identity, make_sealed
from tests.fuzz.census import census

MALLORY = ("10.6.6.6", 6)


class Known:
    def __init__(self, name: str) -> None:
        self.key = identity(name).public


def members(seed: int) -> Stage:
    """Left and right of one cluster, who know each other from its servers."""
    trust = RosterAuthenticator({1: Known("left"), 3: Known("right")})
    left = make_sealed("left", peer_id=1, trust=trust, seed=seed)
    right = make_sealed("right", peer_id=3, trust=trust, seed=seed)
    return Stage(seed, {LEFT: left, RIGHT: right}, Faults(delay=0.01))


def side(stage: Stage, address: Address) -> Endpoint:
    endpoint = stage.endpoints[address]
    assert endpoint.is_sealed
    return endpoint


def record(stage: Stage) -> tuple[Greet, int]:
    """Left dials right, as it did long ago; return its GREET, which is long over."""
    seen = watch(stage)
    dialled = side(stage, LEFT).dial(stage.now, [RIGHT], 3)
    stage.drive(lambda: dialled.state is State.OPEN)
    dialled.close(stage.now)
    stage.touch(dialled)
    stage.run(60)
    while side(stage, RIGHT).poll_incoming() is not None:
        pass
    greets = [it for _, to, it in seen if to == RIGHT and kind_of(it) is Kind.GREET]
    return decode_greet_untrusted(greets[-1]), dialled.handshake.token


def play(stage: Stage, greet: Greet, source: Address) -> list[bytes]:
    """Send right a GREET from elsewhere, with a cookie for there."""
    right = side(stage, RIGHT)
    (cookie,) = answers(stage, right, source, encode_greet(greet._replace(cookie=NO_COOKIE)))
    content = decode_answer_untrusted(cookie).content
    return answers(stage, right, source, encode_greet(greet._replace(cookie=content)))


def dial_and_lose(stage: Stage, token: int) -> Connection:
    """Right dials left with a token that is higher than the recorded one, so that it loses."""
    while True:
        dialled = side(stage, RIGHT).dial(stage.now, [LEFT], 1)
        if dialled.handshake.token > token:
            return dialled
        dialled.abort(stage.now)
        stage.touch(dialled)


@pytest.mark.parametrize("seed", range(4))
def test_a_recorded_greet_kills_no_attempt(seed: int):
    stage = members(seed)
    greet, token = record(stage)
    dialled = dial_and_lose(stage, token)
    began = stage.now
    play(stage, greet, MALLORY)
    stage.drive(lambda: dialled.state is State.OPEN, 1)
    assert stage.now - began < 0.1, "it costs no time either"
    stage.drive(lambda: side(stage, LEFT).has_incoming, 1)
    left = side(stage, LEFT).poll_incoming()
    assert left is not None
    assert stage.transfer(dialled, left, [b"x"]) == [b"x"]
    assert not side(stage, RIGHT).has_incoming
    dialled.close(stage.now)
    stage.touch(dialled)
    stage.run(60)
    check_forgotten(side(stage, LEFT))
    check_forgotten(side(stage, RIGHT))


def test_one_recording_takes_one_place():
    """From a hundred addresses, for as long as the first one waits, and again after that."""
    stage = members(1)
    greet, _ = record(stage)
    right = side(stage, RIGHT)
    for _ in range(3):
        before = right.handshake_counters.replayed
        for port in range(100):
            play(stage, greet, ("10.6.6.6", 1000 + port))
        assert len(right.connections) == 1
        assert right.handshake_counters.replayed == before + 99
        stage.run(ChannelSettings().connect_timeout + 1)
        assert not right.connections
    check_forgotten(right)


def test_whoever_waits_for_long_is_known_for_as_long():
    """The handshake is forgotten sooner than the channel that came of it and was never used."""
    patient = ChannelSettings(connect_timeout=60, timeout=240)
    right = make_sealed("right", settings=patient)
    stage = Stage(1, {LEFT: make_sealed("left", settings=patient), RIGHT: right})
    seen = watch(stage)
    dialled = side(stage, LEFT).dial(stage.now, [RIGHT], 0, PeerPin(identity("right").public))
    stage.drive(lambda: dialled.state is State.OPEN)
    greets = [it for _, to, it in seen if to == RIGHT and kind_of(it) is Kind.GREET]
    del stage.endpoints[LEFT]
    for second in range(50):
        play(stage, decode_greet_untrusted(greets[-1]), ("10.6.6.6", 1000 + second))
        stage.run(1)
        assert len(right.connections) == 1


def test_what_is_noted_of_greets_is_bounded():
    right = make_sealed("right", limits=HandshakeLimits(half_open=8, handshake_timeout=1))
    stage = Stage(1, {RIGHT: right})
    held = list[int]()
    for number in range(160):
        at = ("10.6.6.6", 1000 + number)
        key = identity("right").public
        Knocking(stage, right, at, 5 + number, 6, key=key, name=str(number)).enter()
        stage.run(10)
        held.append(census(right).entries)
    assert max(held[100:]) <= max(held[:100])


def test_a_greet_recorded_before_a_peer_moved_changes_no_keys():
    """Whoever gets the address that left had, and plays its GREET there, is not left."""
    stage = members(1)
    seen = watch(stage)
    left = side(stage, LEFT).dial(stage.now, [RIGHT], 3)
    stage.drive(lambda: side(stage, RIGHT).has_incoming)
    right = side(stage, RIGHT).poll_incoming()
    assert right is not None
    greet = next(it for _, to, it in reversed(seen) if to == RIGHT and kind_of(it) is Kind.GREET)
    moved = ("10.0.0.9", 900)
    stage.endpoints[moved] = stage.endpoints.pop(LEFT)
    assert stage.transfer(left, right, [b"x"]) == [b"x"]
    stage.run(1)
    assert right.address == moved
    play(stage, decode_greet_untrusted(greet), LEFT)
    assert stage.transfer(left, right, [b"y"]) == [b"y"]
    assert stage.transfer(right, left, [b"z"]) == [b"z"]
