"""Every refusal ends in words that say why, at the side that asked."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.handshake import Refusal, Refuse, decode_refuse_untrusted, encode_refuse
from sphtp.core.channel.lifecycle import CloseReason
from sphtp.core.channel.noise import SMALLEST_GREET
from sphtp.core.channel.security import PeerPin, RosterAuthenticator
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import MOST_BYTES, VERSION, Datagrams, Kind
from sphtp.core.schema import Schema
from sphtp.testing.pair import Stage
from tests.core.channel.sealed import (
    LEFT,
    RIGHT,
    SealedPair,
    check_forgotten,
    identity,
    make_sealed,
)
from tests.recorder import Recorder

KNOWN = PeerPin(identity("right").public)
HASTY = 0.5
"""Seconds in which a signed refusal ends an attempt; one that nobody signed only explains."""


class Introduced:
    def __init__(self, name: str) -> None:
        self.key = identity(name).public


def refused(right: Endpoint, left: Endpoint,
            expectation: PeerPin | None = None, wanted: int = 0,
            seconds: float = HASTY) -> str:  # fmt: skip
    """Dial in vain; return the words."""
    stage = Stage(1, {LEFT: left, RIGHT: right})
    how = () if expectation is None else (expectation,)
    dialled = left.dial(0.0, [RIGHT], wanted, *how)
    stage.run(seconds)
    assert dialled.closed is not None
    assert dialled.closed.reason in (CloseReason.REFUSED, CloseReason.SCHEMA)
    for endpoint in (left, right):
        assert not endpoint.has_incoming
        stage.run(20)
        check_forgotten(endpoint)
    return dialled.closed.text


WAYS = pytest.mark.parametrize("expectation", [KNOWN, PeerPin()], ids=["IK", "XX"])


@WAYS
def test_full(expectation: PeerPin):
    full = make_sealed("right", settings=ChannelSettings(max_channels=1))
    third = ("10.0.0.3", 3)
    stage = Stage(1, {third: make_sealed("third"), RIGHT: full})
    stage.connect(third, RIGHT)
    stage.endpoints[LEFT] = left = make_sealed("left")
    dialled = left.dial(stage.now, [RIGHT], 0, expectation)
    stage.run(HASTY)
    assert dialled.closed is not None
    assert dialled.closed.text.endswith("refused the channel: it has too many channels")
    assert full.counters.refused_full == 1
    check_forgotten(left)


@WAYS
def test_denied(expectation: PeerPin):
    right = make_sealed("right", allow={identity("another").public})
    text = refused(right, make_sealed("left"), expectation)
    assert text.endswith("it does not accept this peer")
    assert right.handshake_counters.denied == 1


@WAYS
def test_other_types_of_messages(expectation: PeerPin):
    right = make_sealed("right", schema=Schema(["position: x, y"]))
    left = make_sealed("left", schema=Schema(["position: x, y, z"]))
    text = refused(right, left, expectation)
    assert text.endswith("position: here x, y, z, there x, y")


@WAYS
def test_another_peer_than_the_one_wanted(expectation: PeerPin):
    text = refused(make_sealed("right", peer_id=5), make_sealed("left"), expectation, wanted=7)
    assert text.endswith("it is another peer than the one wanted")


@WAYS
def test_gone(expectation: PeerPin):
    right = make_sealed("right")
    right.close(0.0, "its node closed")
    assert refused(right, make_sealed("left"), expectation).endswith(
        "it has given up, or is closing"
    )


def test_keys_are_allowed_and_forbidden_while_an_endpoint_runs():
    allow = set[bytes]()
    right = make_sealed("right", allow=allow)
    assert refused(right, make_sealed("left"), KNOWN).endswith("it does not accept this peer")
    allow.add(identity("left").public)
    stage = Stage(1, {LEFT: make_sealed("left"), RIGHT: right})
    stage.connect(LEFT, RIGHT)


def test_a_member_that_has_anothers_id_is_an_impostor():
    """Right is what left dialled, by its key; but the id that it says is of somebody else."""
    peers = {5: Introduced("somebody else"), 7: Introduced("right")}
    left = make_sealed("left", trust=RosterAuthenticator(peers))
    text = refused(make_sealed("right", peer_id=5), left, KNOWN)
    assert text.endswith("its key is not that of the peer wanted")


def test_a_key_that_nobody_there_has_explains_the_timeout():
    text = refused(make_sealed("another"), make_sealed("left"), KNOWN, seconds=6)
    assert text.endswith("it is another peer than the one wanted")


@pytest.mark.parametrize("sides", [("right", None), (None, "left"), ("right", "other")])
def test_a_secret_that_is_not_shared_explains_the_timeout(
    sides: tuple[str | None, str | None],
):
    secrets = [None if side is None else side.encode().ljust(32) for side in sides]
    right = make_sealed("right", psk=secrets[0])
    text = refused(right, make_sealed("left", psk=secrets[1]), PeerPin(), seconds=6)
    assert text.endswith("it does not accept this peer")
    assert right.half_open == 0


def test_a_sealed_node_and_one_in_the_clear():
    clear = Endpoint(Random(1), ChannelSettings())
    text = refused(clear, make_sealed("left"), KNOWN, seconds=6)
    assert text.endswith("it accepts no sealed channels")
    assert clear.counters.refused_sealed > 1
    clear = Endpoint(Random(1), ChannelSettings())
    text = refused(make_sealed("right"), clear)
    assert text.endswith("it accepts only sealed channels")


def in_version(version: int, datagram: bytes) -> bytes:
    return bytes([version << 4 | datagram[0] & 0x0F]) + datagram[1:]


def test_a_greet_of_another_version_is_refused_in_its_own():
    seen = Recorder()
    right = make_sealed("right", observer=seen)
    for version in (0, 2, 15):
        greet = in_version(
            version, bytes([Kind.GREET]) + bytes(4) + bytes([7, 0, 0, 0]) + b"12345678"
        )
        right.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, greet.ljust(SMALLEST_GREET, b"?")))
        row = right.poll_transmit(0.0)
        assert row is not None
        assert row.address == LEFT
        assert row.data[0] == version << 4 | Kind.REFUSE
        refuse = decode_refuse_untrusted(row.data)
        assert refuse == Refuse(int.from_bytes(b"12345678", "little"), Refusal.VERSION)
        assert right.poll_transmit(0.0) is None
    assert right.half_open == 0
    assert right.counters.refused_version == 3
    assert seen.of("channel_refused") == [(0.0, LEFT, Refusal.VERSION)] * 3


class Translated:
    """An endpoint of version 2. It answers with a REFUSE, which is in our version."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def handle_rows_untrusted(self, now: float, rows: Sequence[Datagrams]) -> None:
        others = [row._replace(data=in_version(VERSION + 1, row.data)) for row in rows]
        self._endpoint.handle_rows_untrusted(now, others)

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        row = self._endpoint.poll_transmit(now, most)
        return row and row._replace(data=in_version(VERSION, row.data))


@WAYS
def test_a_node_of_another_version_explains_the_timeout(expectation: PeerPin):
    right: Any = Translated(make_sealed("right"))
    text = refused(right, make_sealed("left"), expectation, seconds=6)
    assert text.endswith("it uses another version of the protocol")


def test_what_nobody_signed_decides_nothing():
    """A REFUSE that is made up by somebody on the path, for every reason: the channel opens."""
    pair = SealedPair(1)
    dialled: Connection = pair.left.dial(0.0, [RIGHT], 0, KNOWN)
    for reason in (*Refusal, 99):
        refuse = encode_refuse(dialled.connection_id, Refuse(dialled.handshake.token, reason))
        refuse += bytes(12) if reason == Refusal.SCHEMA else b""
        pair.left.handle_datagrams_untrusted(0.0, Datagrams.of(RIGHT, refuse))
    pair.drive(lambda: pair.right.has_incoming)
    assert dialled.closed is None
    assert pair.left.counters.malformed == 0


def test_a_stranger_is_let_in_once_it_is_introduced():
    peers: dict[int, Introduced] = {}
    right = make_sealed("right", trust=RosterAuthenticator(peers))
    stage = Stage(1, {LEFT: make_sealed("left", peer_id=5), RIGHT: right})
    dialled = stage.endpoints[LEFT].dial(0.0, [RIGHT], 0, KNOWN)
    stage.run(1)
    assert right.handshake_counters.strangers > 1
    assert right.half_open == 0
    assert dialled.closed is None
    peers[5] = Introduced("left")
    stage.drive(lambda: right.has_incoming, 3)
