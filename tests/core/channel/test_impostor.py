"""Somebody answers who is not the one meant: the program is told, and nobody else can say it."""

import pytest

from sphtp.core.channel.endings import refused_by_peer
from sphtp.core.channel.handshake import Objection, Refuse, encode_refuse
from sphtp.core.channel.security import AllowKeys, PeerPin
from sphtp.core.schema import Schema
from sphtp.errors import LocalError
from tests.core.channel.sealed import RIGHT, SealedPair, identity


def refuses_right(key: bytes) -> bool:
    return key != identity("right").public


@pytest.mark.parametrize(
    ("expectation", "trust"),
    [
        pytest.param(PeerPin(pin=refuses_right), None, id="its key is not pinned"),
        pytest.param(PeerPin(), AllowKeys(refuses_right), id="XX, trust says no"),
        pytest.param(
            PeerPin(identity("right").public), AllowKeys(refuses_right), id="IK, trust says no"
        ),
    ],
)
def test_an_impostor_is_called_one(expectation: PeerPin, trust: AllowKeys | None):
    pair = SealedPair(trust=trust)
    left = pair.left.dial(pair.now, [RIGHT], 0, expectation)
    pair.drive(lambda: left.closed is not None, seconds=1.0)
    assert left.closed is not None
    assert left.closed.refusal == "impostor"
    assert left.closed.text.endswith("its key is not that of the peer wanted")
    assert pair.left.handshake_counters.denied == 1
    assert not pair.right.has_incoming


def test_no_peer_can_say_so_itself():
    with pytest.raises(LocalError):
        encode_refuse(1, Refuse(2, Objection.IMPOSTOR))
    assert refused_by_peer("it", Refuse(2, 9), Schema()).refusal == "reason 9"
