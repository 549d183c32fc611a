"""Strangers knock without end: members of a cluster get in all the same, and so do other peers."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.security import HandshakeLimits, PeerPin, RosterAuthenticator
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address
from sphtp.testing import Faults
from sphtp.testing.pair import Stage
from tests.attack.channel.mallory import Knocking
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, identity, make_sealed

KNOWN = PeerPin(identity("right").public)
MEMBER = 5


@dataclass(frozen=True)
class Introduced:
    key: bytes


def cluster(peers: Mapping[int, str]) -> Stage:
    """A node that lets in who was introduced, and one of those."""
    trust = RosterAuthenticator(
        {number: Introduced(identity(name).public) for number, name in peers.items()}
    )
    right = make_sealed("right", peer_id=7, trust=trust)
    return Stage(
        1,
        {LEFT: make_sealed("left", peer_id=MEMBER), RIGHT: right},
        Faults(delay=0.02),
    )


@pytest.mark.parametrize(("hosts", "key"), [(1, KNOWN.key), (1000, None)], ids=["IK", "XX"])
def test_strangers_do_not_delay_members(hosts: int, key: bytes | None):
    """393 greetings a second, more than are kept: a member is in after two round trips.

    Those by IK have nothing true in them but the node's key.
    """
    stage = cluster({MEMBER: "left"})
    node = sealed(stage, RIGHT)
    dialled = list[Connection]()
    for number in range(1, 600):
        at = f"10.8.{number % hosts >> 8}.{number % hosts & 255}", 1 + number
        knocking = Knocking(stage, node, at, number, number, key=key)
        if key:
            knocking.noise = knocking.noise[:32] + bytes(len(knocking.noise) - 32)
        knocking.enter()
        stage.run(1 / 393)
        if number >= 400 and number % 40 == 0:
            dialled.append(sealed(stage, LEFT).dial(stage.now, [RIGHT], 7, KNOWN))
            stage.run(0.12)
            assert dialled[-1].state is State.OPEN, f"member {len(dialled)} waits"
            taken = node.poll_incoming()
            assert taken is not None
    assert len(dialled) == 5
    assert node.half_open <= HandshakeLimits().half_open


def sealed(stage: Stage, address: Address) -> Endpoint:
    node = stage.endpoints[address]
    assert node.is_sealed
    return node


def test_a_stranger_with_few_attempts_is_not_shut_out_by_one_with_many():
    pair = SealedPair(limits=HandshakeLimits(half_open=8, handshakes_per_second=1000))
    for number in range(1, 100):
        Knocking(pair, pair.right, ("10.6.6.6", number), number, number).enter()
    (welcome,) = Knocking(pair, pair.right, ("10.6.6.7", 1), 5, 6).enter()
    assert len(welcome) > 29
    assert pair.right.half_open == 8
    counters = pair.right.handshake_counters
    assert counters.handshakes_over_limit == 99 - 8 + 1


def enter(pair: SealedPair, at: Address, number: int, name: str) -> bool:
    """Open a channel, as far as it goes without using it; false if it is refused."""
    knocking = Knocking(pair, pair.right, at, number, number, key=KNOWN.key, name=name)
    before = pair.right.counters.refused_full
    knocking.enter()
    return pair.right.counters.refused_full == before


def test_one_identity_does_not_shut_the_others_out_of_the_backlog():
    pair = SealedPair(settings=ChannelSettings(backlog=16))
    assert sum(enter(pair, ("10.6.6.6", 1 + n), 1 + n, "mallory") for n in range(40)) == 16
    for number in range(8):
        assert enter(pair, ("10.6.6.6", 900 + number), 900 + number, f"other {number}")
    assert not enter(pair, ("10.6.6.6", 999), 999, "mallory")
    assert len(pair.right.connections) <= 16
    channel = pair.left.dial(pair.now, [RIGHT], 0, KNOWN)
    pair.run(1)
    assert channel.state is State.OPEN
    assert pair.right.poll_incoming() is not None


def test_nobody_keeps_the_places_of_the_backlog_for_good():
    """Open, used and taken by nobody: after `timeout` each gives its place to somebody else."""
    pair = SealedPair(settings=ChannelSettings(backlog=4))
    held = []
    for number in range(4):
        name, at = f"mallory {number}", ("10.6.6.6", 1 + number)
        pair.endpoints[at] = make_sealed(name)
        held.append(pair.endpoints[at].dial(pair.now, [RIGHT]))
    pair.run(1)
    assert [it.state for it in held] == [State.OPEN] * 4
    refused = pair.left.dial(pair.now, [RIGHT], 0, KNOWN)
    pair.run(1)
    assert refused.state is State.CLOSED
    pair.run(ChannelSettings().timeout)
    later = pair.left.dial(pair.now, [RIGHT], 0, KNOWN)
    pair.run(1)
    assert later.state is State.OPEN
    assert [it.state for it in held].count(State.OPEN) == 3
    (text,) = [it.closed.text for it in held if it.closed is not None]
    assert "no task accepted the channel, and others wait" in text
