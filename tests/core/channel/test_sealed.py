"""Sealed channels between two endpoints, as they should be."""

import pytest

from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, check_forgotten, identity
from tests.soaked import soaked

KNOWN = PeerPin(identity("right").public)
UNKNOWN = PeerPin()
PATIENT = ChannelSettings(connect_timeout=60)


@pytest.mark.parametrize("expectation", [KNOWN, UNKNOWN], ids=["IK", "XX"])
@pytest.mark.parametrize("psk", [None, bytes(32)], ids=["open", "psk"])
def test_messages_pass_both_ways(expectation: PeerPin, psk: bytes | None):
    pair = SealedPair(psk=psk)
    left, right = pair.open(expectation)
    payloads = [bytes([n]) * size for n, size in enumerate((1, 100, 5_000, 200_000))]
    assert pair.transfer(left, right, payloads) == payloads
    assert pair.transfer(right, left, payloads) == payloads
    assert left.peer_key == identity("right").public
    assert right.peer_key == identity("left").public


@pytest.mark.parametrize("seeds", [range(2), *soaked([range(2, 50)])], ids=str)
@pytest.mark.parametrize("expectation", [KNOWN, UNKNOWN], ids=["IK", "XX"])
def test_a_bad_network_delays_and_nothing_else(expectation: PeerPin, seeds: range):
    for seed in seeds:
        faults = Faults(loss=0.2, delay=0.02, jitter=0.03, duplicate=0.1, corrupt=0.05)
        pair = SealedPair(seed, faults, PATIENT)
        left, right = pair.open(expectation)
        payloads = [bytes([n]) * (n * 50) for n in range(60)]
        assert pair.transfer(left, right, payloads) == payloads, seed
        left.close(pair.now)
        pair.touch(left)
        pair.run(30)
        assert left.state is State.CLOSED


def test_a_channel_with_a_known_key_opens_in_two_round_trips():
    pair = SealedPair(0, Faults(delay=0.05))
    left = pair.left.dial(pair.now, [RIGHT], 0, KNOWN)
    pair.drive(lambda: left.state is State.OPEN)
    assert pair.now == pytest.approx(0.2)
    pair.drive(lambda: pair.right.has_incoming)
    assert pair.now == pytest.approx(0.25)


def test_nothing_is_kept_after_the_end():
    pair = SealedPair(0, Faults(delay=0.05))
    for expectation in (KNOWN, UNKNOWN):
        left, _ = pair.open(expectation)
        left.close(pair.now)
        pair.touch(left)
    pair.run(60)
    for endpoint in (pair.left, pair.right):
        endpoint.poll_incoming()
        check_forgotten(endpoint)
    assert LEFT != RIGHT
