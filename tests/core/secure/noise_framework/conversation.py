"""Two sides of a handshake, and what they say to each other."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise_framework import IK, XX, XXPSK0, NoiseHandshake, Pattern

PATTERNS = (IK, XX, XXPSK0)
SECRET = bytes(range(32))

ALICE = Identity.draw(Random("alice"))
BOB = Identity.draw(Random("bob"))


class Pair(NamedTuple):
    """A handshake between Alice, who begins, and Bob."""

    alice: NoiseHandshake
    bob: NoiseHandshake

    @property
    def writer(self) -> NoiseHandshake:
        return self.alice if self.alice.is_my_turn else self.bob

    @property
    def reader(self) -> NoiseHandshake:
        return self.bob if self.alice.is_my_turn else self.alice


def alice(
    pattern: Pattern,
    secrets: Secrets,
    *,
    identity: Identity = ALICE,
    prologue: bytes = b"",
    remote: bytes = BOB.public,
    psk: bytes = SECRET,
) -> NoiseHandshake:
    """Alice's side, with what the pattern wants."""
    return NoiseHandshake(
        pattern,
        initiator=True,
        identity=identity,
        secrets=secrets,
        prologue=prologue,
        remote=remote if pattern.responder_known else None,
        psk=psk if pattern.has_psk else None,
    )


def bob(
    pattern: Pattern,
    secrets: Secrets,
    *,
    identity: Identity = BOB,
    prologue: bytes = b"",
    psk: bytes = SECRET,
) -> NoiseHandshake:
    """Bob's side, with what the pattern wants."""
    return NoiseHandshake(
        pattern,
        initiator=False,
        identity=identity,
        secrets=secrets,
        prologue=prologue,
        psk=psk if pattern.has_psk else None,
    )


def meet(pattern: Pattern, seed: object = 1) -> Pair:
    """Both sides, with secrets of their own."""
    return Pair(alice(pattern, Random(f"alice {seed}")), bob(pattern, Random(f"bob {seed}")))


def talk(pair: Pair, payloads: Iterable[bytes]) -> Iterator[bytes]:
    """Let a payload go over with each message, and yield the messages."""
    for payload in payloads:
        writer, reader = pair.writer, pair.reader
        message = writer.write(payload)
        assert reader.read_untrusted(message) == payload
        yield message


def finish(pair: Pair) -> list[bytes]:
    """Say all that is left, without payloads."""
    messages: list[bytes] = []
    while not pair.alice.is_finished:
        messages += talk(pair, [b""])
    return messages


def told(handshake: NoiseHandshake) -> tuple[object, ...]:
    """All that a handshake shows of itself."""
    return (
        handshake.is_finished,
        handshake.is_my_turn,
        handshake.remote,
        handshake.handshake_hash,
    )


def require_agreement(pair: Pair) -> None:
    """Both have the same keys, and know whom they share them with."""
    assert pair.alice.is_finished
    assert pair.bob.is_finished
    assert pair.alice.split() == pair.bob.split()[::-1]
    assert pair.alice.handshake_hash == pair.bob.handshake_hash
    assert (pair.alice.remote, pair.bob.remote) == (BOB.public, ALICE.public)
