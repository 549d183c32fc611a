"""Keys that are none, and those that are not needed any more."""

import pytest

from sphtp.core.channel.security import HandshakeLimits, PeerPin, RosterAuthenticator
from sphtp.core.secure import seal
from sphtp.core.secure.noise_framework import PRIME, SMALL_ORDER, HandshakeState, NoiseHandshake
from sphtp.errors import SettingsError, UnreachableError
from tests.cases import each
from tests.core.channel.sealed import RIGHT, SealedPair, check_forgotten, identity
from tests.reach import reach

KNOWN = PeerPin(identity("right").public)


@pytest.mark.parametrize("expectation", [KNOWN, PeerPin()], ids=["IK", "XX"])
def test_keys_are_forgotten_while_the_channel_lives(
    expectation: PeerPin, monkeypatch: pytest.MonkeyPatch
):
    """Two epochs on, neither side has anything left that gives the first keys again."""
    first: set[bytes] = set()
    split = NoiseHandshake.split

    def overheard(handshake: NoiseHandshake) -> tuple[bytes, bytes]:
        keys = split(handshake)
        first.update(keys)
        return keys

    monkeypatch.setattr(NoiseHandshake, "split", overheard)
    monkeypatch.setattr(seal, "EPOCH_BITS", 3)
    pair = SealedPair()
    left, right = pair.open(expectation)
    assert len(first) == 2
    assert first & {it for it in reach(pair.left, pair.right) if isinstance(it, bytes)}
    pair.run(HandshakeLimits().handshake_timeout + 1)
    for _ in range(3 << 3):
        for connection, other in ((left, right), (right, left)):
            assert pair.transfer(connection, other, [b"x"]) == [b"x"]
    held = list(reach(pair.left, pair.right))
    assert not [it for it in held if isinstance(it, bytes) and it in first]
    assert not [it for it in held if isinstance(it, NoiseHandshake | HandshakeState)]


class Told:
    def __init__(self, key: bytes) -> None:
        self.key = key


NO_KEYS = [b"", b"x", bytes(33), *(number.to_bytes(32, "little") for number in SMALL_ORDER)]


@each("key", NO_KEYS)
def test_whoever_gives_a_key_that_is_none_is_told_so(key: bytes):
    with pytest.raises(SettingsError, match=r"^key "):
        PeerPin(key)


def test_any_other_is_a_key():
    assert PeerPin((PRIME + 2).to_bytes(32, "little")).key
    assert PeerPin((9).to_bytes(32, "little")).key


@each("key", NO_KEYS[1:])
def test_a_peer_that_tells_a_key_that_is_none_is_unreachable(key: bytes):
    """Its key is no setting of the one who dials; and nothing of the attempt is left."""
    pair = SealedPair(trust=RosterAuthenticator({3: Told(key)}))
    with pytest.raises(UnreachableError, match=r"^peer 0x00000003 .*: its key "):
        pair.left.dial(0.0, [RIGHT], 3)
    check_forgotten(pair.left)
