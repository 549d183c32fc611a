"""Keys: written down and read again, and what two of them share."""

from random import Random

import pytest

from sphtp.core.secure.identity import Identity, format_key, parse_key
from sphtp.errors import LocalError, SettingsError
from tests.cases import each

# RFC 7748, section 6.1.
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_two_identities_share_the_secret_of_the_standard():
    alice, bob = Identity(bytes.fromhex(ALICE)), Identity(bytes.fromhex(BOB))
    assert (alice.public.hex(), bob.public.hex()) == (ALICE_PUBLIC, BOB_PUBLIC)
    assert alice.exchange(bob.public).hex() == bob.exchange(alice.public).hex() == SHARED


def test_a_public_key_that_shares_one_secret_with_everybody_is_refused():
    """RFC 7748, section 6: a point of small order gives zeros."""
    with pytest.raises(LocalError, match="no secret"):
        Identity(bytes.fromhex(ALICE)).exchange(bytes(32))


def test_what_is_written_down_is_read_again():
    identity = Identity.draw(Random(7))
    assert len(identity.export()) == 44
    assert Identity.parse(identity.export() + "\n").public == identity.public
    assert parse_key(format_key(identity.public)) == identity.public


@each("text", ["", "no key", "AAAA", "ä" * 44, format_key(bytes(31)), "!" + format_key(bytes(32))])
def test_what_is_no_key_is_refused(text: str):
    with pytest.raises(SettingsError, match="key"):
        Identity.parse(text)


def test_the_private_key_is_not_shown():
    identity = Identity(bytes.fromhex(ALICE))
    assert identity.export() not in repr(identity)
    assert format_key(identity.public) in repr(identity)


def test_a_derived_secret_depends_on_key_and_purpose():
    alice, bob = Identity(bytes.fromhex(ALICE)), Identity(bytes.fromhex(BOB))
    derived = {who.derive(purpose) for who in (alice, bob) for purpose in (b"one", b"two")}
    assert len(derived) == 4
    assert alice.derive(b"one") == alice.derive(b"one")
    assert len(alice.derive(b"one", 16)) == 16
