"""Another implementation of Noise (noiseprotocol) on the other side, in both roles."""

from random import Random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from noise.connection import Keypair, NoiseConnection

from sphtp.core.secure.identity import Identity, parse_key
from sphtp.core.secure.noise_framework import MOST_BYTES, NoiseHandshake, Pattern
from tests.cases import each
from tests.core.secure.noise_framework.conversation import ALICE, BOB, PATTERNS, SECRET, alice, bob

# It warns of ephemeral keys that are given, as they are here to have the same run again.
pytestmark = pytest.mark.filterwarnings("ignore:One of ephemeral keypairs:UserWarning")

PROLOGUE = b"of both"
SIZES = (0, 1, 15, 16, 17, 1_000, MOST_BYTES - 100)


def stranger(pattern: Pattern, seed: int, *, initiator: bool) -> NoiseConnection:
    """The other implementation in the role of Alice or Bob."""
    noise = NoiseConnection.from_name(pattern.protocol_name)
    (noise.set_as_initiator if initiator else noise.set_as_responder)()
    noise.set_prologue(PROLOGUE)
    noise.set_keypair_from_private_bytes(Keypair.STATIC, private(ALICE if initiator else BOB))
    ephemeral = Identity.draw(Random(f"stranger {seed}"))
    noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, private(ephemeral))
    if initiator and pattern.responder_known:
        noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, BOB.public)
    if pattern.has_psk:
        noise.set_psks(psk=SECRET)
    noise.start_handshake()
    return noise


def private(identity: Identity) -> bytes:
    return parse_key(identity.export())


def shake_hands(ours: NoiseHandshake, theirs: NoiseConnection, random: Random, size: int) -> None:
    while not ours.is_finished:
        payload = random.randbytes(size)
        if ours.is_my_turn:
            assert theirs.read_message(ours.write(payload)) == payload
        else:
            assert ours.read_untrusted(bytes(theirs.write_message(payload))) == payload
    assert theirs.handshake_finished


@each("size", SIZES)
@each("pattern", PATTERNS)
@each("begins", [True, False])
def test_two_implementations_agree(pattern: Pattern, begins: bool, size: int, seed: int):
    random = Random(f"ours {seed}")
    ours = (alice if begins else bob)(pattern, random, prologue=PROLOGUE)
    theirs = stranger(pattern, seed, initiator=not begins)
    shake_hands(ours, theirs, random, size)

    assert ours.remote == (BOB if begins else ALICE).public
    assert ours.handshake_hash == theirs.get_handshake_hash()
    sending, receiving = ours.split()
    for number in range(3):
        nonce, text = number.to_bytes(12, "big"), random.randbytes(size)
        assert theirs.decrypt(AESGCM(sending).encrypt(nonce, text, None)) == text
        assert AESGCM(receiving).decrypt(nonce, theirs.encrypt(text), None) == text
