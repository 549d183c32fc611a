"""Turns, limits, keys, and what a handshake wants to be given."""

from random import Random
from typing import Any

import pytest

from sphtp.core.secure.identity import KEY_SIZE
from sphtp.core.secure.noise_framework import (
    IK,
    MOST_BYTES,
    XX,
    XXPSK0,
    NoiseHandshake,
    Pattern,
    SymmetricState,
)
from sphtp.errors import MessageTooLargeError, RemoteError, SettingsError, StateError
from tests.cases import each
from tests.core.secure.noise_framework.conversation import (
    ALICE,
    BOB,
    PATTERNS,
    SECRET,
    Pair,
    alice,
    bob,
    finish,
    meet,
    require_agreement,
    talk,
    told,
)

each_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)


@each_pattern
def test_both_agree_and_know_each_other(pattern: Pattern):
    pair = meet(pattern)
    messages = list(talk(pair, [b"one", b"two", b"three"][: len(pattern.messages)]))
    assert len(messages) == len(pattern.messages)
    require_agreement(pair)


@each_pattern
def test_the_two_directions_have_keys_of_their_own(pattern: Pattern):
    pair = meet(pattern)
    finish(pair)
    sending, receiving = pair.alice.split()
    assert len(sending) == len(receiving) == KEY_SIZE
    assert len({sending, receiving, pair.alice.handshake_hash}) == 3


@each_pattern
def test_each_side_speaks_in_its_turn(pattern: Pattern):
    pair = meet(pattern)
    for number in range(len(pattern.messages)):
        writer, reader = pair.writer, pair.reader
        assert (writer is pair.alice) == (number % 2 == 0)
        assert not reader.is_my_turn
        before = told(reader), told(writer)
        with pytest.raises(StateError, match="turn"):
            reader.write(b"")
        with pytest.raises(RemoteError, match="turn"):
            writer.read_untrusted(bytes(100))
        assert (told(reader), told(writer)) == before
        list(talk(pair, [b""]))
    require_agreement(pair)


@each_pattern
def test_at_the_end_nobody_speaks(pattern: Pattern):
    pair = meet(pattern)
    messages = finish(pair)
    for side in pair:
        before = told(side)
        assert not side.is_my_turn
        with pytest.raises(StateError, match="turn"):
            side.write(b"")
        for message in messages:
            with pytest.raises(RemoteError, match="turn"):
                side.read_untrusted(message)
        assert told(side) == before


@each_pattern
def test_there_are_no_keys_before_the_end(pattern: Pattern):
    pair = meet(pattern)
    for _ in pattern.messages:
        for side in pair:
            with pytest.raises(StateError, match="finished"):
                side.split()
        list(talk(pair, [b""]))
    require_agreement(pair)


@each_pattern
def test_the_longest_message_passes_and_a_longer_one_is_not_written(pattern: Pattern):
    lengths = [len(message) for message in finish(meet(pattern))]
    pair = meet(pattern)
    for empty in lengths:
        before = told(pair.writer)
        with pytest.raises(MessageTooLargeError, match=r"65536 bytes.*65535"):
            pair.writer.write(bytes(MOST_BYTES - empty + 1))
        assert told(pair.writer) == before
        (message,) = talk(pair, [bytes(MOST_BYTES - empty)])
        assert len(message) == MOST_BYTES
    require_agreement(pair)


@each_pattern
def test_a_longer_message_is_not_read(pattern: Pattern):
    pair = meet(pattern)
    before = told(pair.bob)
    with pytest.raises(RemoteError, match="65536 bytes"):
        pair.bob.read_untrusted(bytes(MOST_BYTES + 1))
    assert told(pair.bob) == before


@each_pattern
def test_what_both_must_agree_on_without_saying_it(pattern: Pattern):
    """In the clear there is nothing to see it by, so that XX notices one message later."""
    pair = Pair(alice(pattern, Random(1), prologue=b"1"), bob(pattern, Random(2), prologue=b"2"))
    if pattern is XX:
        list(talk(pair, [b""]))
    with pytest.raises(RemoteError, match="authentic"):
        list(talk(pair, [b""]))


@each(
    ("pattern", "initiator", "given", "complaint"),
    [
        (IK, True, {}, "remote is missing"),
        (IK, False, {"remote": ALICE.public}, "remote has no place"),
        (XX, True, {"remote": BOB.public}, "remote has no place"),
        (XX, False, {"psk": SECRET}, "psk has no place"),
        (IK, True, {"remote": BOB.public, "psk": SECRET}, "psk has no place"),
        (XXPSK0, True, {}, "psk is missing"),
        (XXPSK0, False, {}, "psk is missing"),
        (XXPSK0, False, {"psk": b""}, "psk has 0 bytes"),
        (XXPSK0, True, {"psk": SECRET + b"!"}, "psk has 33 bytes"),
        (IK, True, {"remote": BOB.public[:-1]}, "remote has 31 bytes"),
        (IK, True, {"remote": bytes(KEY_SIZE)}, "remote is a public key of small order"),
    ],
)
def test_what_is_given_has_to_fit_the_pattern(
    pattern: Pattern, initiator: bool, given: dict[str, Any], complaint: str
):
    with pytest.raises(SettingsError, match=complaint):
        NoiseHandshake(pattern, initiator=initiator, identity=BOB, secrets=Random(1), **given)


@each_pattern
def test_one_seed_gives_one_trace(pattern: Pattern, seed: int):
    assert finish(meet(pattern, seed)) == finish(meet(pattern, seed))
    others = finish(meet(pattern, seed + 1))
    assert all(a != b for a, b in zip(finish(meet(pattern, seed)), others, strict=True))


def test_the_keys_are_new_each_time(seed: int):
    """The ephemeral keys see to it, with the same identities and the same secret."""
    entropy = Random(seed)
    seen = set()
    for _ in range(3):
        pair = meet(XXPSK0, entropy.random())
        finish(pair)
        seen |= {*pair.alice.split(), pair.alice.handshake_hash}
    assert len(seen) == 9


def test_a_long_name_is_hashed():
    """Section 5.2: up to 32 bytes it stands for itself."""
    assert SymmetricState(b"x" * 32).hash == b"x" * 32
    assert SymmetricState(b"x" * 31).hash == b"x" * 31 + b"\0"
    long = SymmetricState(b"x" * 33).hash
    # printf 'x%.0s' $(seq 33) | sha256sum
    assert long.hex() == "11ba55a3a7c1ee0f8eb8867dc40a62c67240eb4a5ea125ee5c383fe996b57cd6"
    assert all(len(pattern.protocol_name) <= 32 for pattern in PATTERNS)
