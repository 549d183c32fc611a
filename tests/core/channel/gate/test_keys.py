"""Keys that are none, and those that are not needed any more."""

import pytest

from sphtp.core.channel.gate.trust import Expectation, Roster
from sphtp.core.secure.noise.small_order import PRIME, SMALL_ORDER
from sphtp.errors import SettingsError, UnreachableError
from tests.core.channel.gate.sealed import RIGHT, SealedPair
from tests.core.channel.gate.test_refusals import check_empty


class Told:
    def __init__(self, key: bytes) -> None:
        self.key = key


NO_KEYS = [b"", b"x", bytes(33), *(number.to_bytes(32, "little") for number in SMALL_ORDER)]


@pytest.mark.parametrize("key", NO_KEYS)
def test_whoever_gives_a_key_that_is_none_is_told_so(key: bytes):
    with pytest.raises(SettingsError, match=r"^key "):
        Expectation(key)


def test_any_other_is_a_key():
    assert Expectation((PRIME + 2).to_bytes(32, "little")).key
    assert Expectation((9).to_bytes(32, "little")).key


@pytest.mark.parametrize("key", NO_KEYS[1:])
def test_a_peer_that_tells_a_key_that_is_none_is_unreachable(key: bytes):
    """Its key is no setting of the one who dials; and nothing of the attempt is left."""
    pair = SealedPair(trust=Roster({3: Told(key)}))
    with pytest.raises(UnreachableError, match=r"^peer 0x00000003 .*: its key "):
        pair.left.dial(0.0, [RIGHT], 3)
    check_empty(pair.left)
