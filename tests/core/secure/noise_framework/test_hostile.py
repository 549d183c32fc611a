"""Messages that are cut, altered, out of order or invented: refused, and as if never come."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.core.secure.noise_framework import (
    IK,
    PRIME,
    SMALL_ORDER,
    XX,
    XXPSK0,
    NoiseHandshake,
    Pattern,
    require_useful,
)
from sphtp.errors import LocalError, RemoteError
from tests.core.secure.noise_framework.conversation import (
    ALICE,
    PATTERNS,
    Pair,
    alice,
    bob,
    finish,
    meet,
    require_agreement,
    talk,
    told,
)
from tests.profiles import few

each_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
patterns = st.sampled_from(PATTERNS)
seeds = st.integers(0, 2**32)

# How many messages pass before the one in which Alice says who she is.
BEFORE_ALICE_IS_KNOWN = {"IK": 0, "XX": 2, "XXpsk0": 2}

WRITTEN_SMALL = [
    (number + top).to_bytes(KEY_SIZE, "little")
    for number in sorted(SMALL_ORDER)
    for top in (0, 2**255)
]


def refuse(reader: NoiseHandshake, message: bytes) -> None:
    """Have the reader refuse a message and stay as it is."""
    before = told(reader)
    with pytest.raises(RemoteError):
        reader.read_untrusted(message)
    assert told(reader) == before


def flipped(message: bytes, bit: int) -> bytes:
    altered = bytearray(message)
    altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)


def is_in_the_clear(pattern: Pattern, number: int) -> bool:
    """The first message of XX is a bare key: whoever alters it is found out by the next one."""
    return pattern is XX and number == 0


def spoilt(message: bytes, *, clear: bool) -> Iterator[bytes]:
    """Every cut, every bit the other way round, and a byte too many."""
    yield from (message[:size] for size in range(KEY_SIZE if clear else len(message)))
    if not clear:
        yield from (flipped(message, bit) for bit in range(8 * len(message)))
        yield message + b"\0"


@each_pattern
def test_every_cut_and_every_bit_is_noticed_and_changes_nothing(pattern: Pattern, seed: int):
    pair = meet(pattern, seed)
    for number in range(len(pattern.messages)):
        reader, message = pair.reader, pair.writer.write(b"x")
        for bad in spoilt(message, clear=is_in_the_clear(pattern, number)):
            refuse(reader, bad)
        assert reader.read_untrusted(message) == b"x"
    require_agreement(pair)


def test_an_altered_first_message_of_xx_is_noticed_by_the_second():
    for bit in range(8 * KEY_SIZE):
        pair = meet(XX, bit)
        pair.bob.read_untrusted(flipped(pair.alice.write(b""), bit))
        refuse(pair.alice, pair.bob.write(b""))


@st.composite
def bad_messages(draw: st.DrawFn, true: bytes, others: list[bytes]) -> bytes:
    """What somebody in between might make of a message."""
    kind = draw(st.sampled_from(["junk", "cut", "flip", "longer", "other", "patched"]))
    if kind == "junk":
        return draw(st.binary(max_size=200))
    if kind == "cut":
        return true[: draw(st.integers(0, len(true) - 1))]
    if kind == "flip":
        return flipped(true, draw(st.integers(0, 8 * len(true) - 1)))
    if kind == "longer":
        return true + draw(st.binary(min_size=1, max_size=32))
    other = draw(st.sampled_from(others))
    if kind == "other":
        return other
    at = draw(st.integers(1, len(true) - 1))
    return true[:at] + other[at:]


@few
@given(st.data(), patterns, seeds, st.binary(max_size=100))
def test_whatever_comes_in_between_the_true_messages_are_read(
    data: st.DataObject, pattern: Pattern, seed: int, payload: bytes
):
    """Among what comes is what was said before, and what was said in another handshake."""
    pair = meet(pattern, seed)
    # Not its first message, which is as good a beginning as this one's.
    _, *others = finish(meet(pattern, f"not {seed}"))
    for number in range(len(pattern.messages)):
        reader, true = pair.reader, pair.writer.write(payload)
        if not is_in_the_clear(pattern, number):
            for bad in data.draw(st.lists(bad_messages(true, others), max_size=4)):
                if bad != true:
                    refuse(reader, bad)
        assert reader.read_untrusted(true) == payload
        others.append(true)
    require_agreement(pair)


@each_pattern
def test_messages_in_another_order_are_refused(pattern: Pattern):
    messages = finish(meet(pattern))
    for number, true in enumerate(messages):
        pair = meet(pattern)
        list(talk(pair, [b""] * number))
        for other in messages[:number] + messages[number + 1 :]:
            if not is_in_the_clear(pattern, number):
                refuse(pair.reader, other)
        assert pair.reader.read_untrusted(true) == b""


@each_pattern
def test_a_first_message_can_be_played_again_and_leads_nowhere(pattern: Pattern):
    """Nothing in it may be acted on: only the next message shows that somebody is there."""
    pair = meet(pattern)
    first, *_ = finish(pair)
    again = bob(pattern, Random("again"))
    assert again.read_untrusted(first) == b""
    answer = again.write(b"")
    # Whoever has only the copy has no ephemeral key that fits it.
    player = alice(pattern, Random("player"))
    player.write(b"")
    refuse(player, answer)


def test_the_wrong_responder_cannot_read_ik():
    wrong = Identity.draw(Random("wrong"))
    message = alice(IK, Random(1)).write(b"for Bob")
    refuse(bob(IK, Random(2), identity=wrong), message)


def test_who_has_another_secret_gets_no_answer():
    message = alice(XXPSK0, Random(1), psk=bytes(32)).write(b"")
    refuse(bob(XXPSK0, Random(2)), message)


@each_pattern
@pytest.mark.parametrize("other", PATTERNS, ids=lambda pattern: pattern.name)
def test_patterns_are_not_mistaken_for_each_other(pattern: Pattern, other: Pattern):
    pair = Pair(alice(pattern, Random(1)), bob(other, Random(2)))
    if pattern is other:
        finish(pair)
        require_agreement(pair)
    elif other is XX:
        # It takes anything for a beginning. Its answer shows what it is.
        pair.bob.read_untrusted(pair.alice.write(b""))
        refuse(pair.alice, pair.bob.write(b""))
    else:
        refuse(pair.bob, pair.alice.write(b""))


class TestSmallOrder:
    """Keys that share zero with everybody would give keys that everybody has."""

    @pytest.mark.parametrize("key", WRITTEN_SMALL, ids=bytes.hex)
    def test_they_share_no_secret(self, key: bytes):
        """The table against the curve itself."""
        with pytest.raises(LocalError):
            ALICE.exchange(key)
        with pytest.raises(LocalError):
            require_useful(key)

    @given(st.integers(-40, 40).map(lambda near: near % PRIME) | st.integers(0, 2**256 - 1))
    def test_no_other_is_refused(self, number: int):
        key = number.to_bytes(KEY_SIZE, "little")
        if key not in WRITTEN_SMALL:
            require_useful(key)
            assert len(ALICE.exchange(key)) == KEY_SIZE

    @each_pattern
    @pytest.mark.parametrize("key", WRITTEN_SMALL, ids=bytes.hex)
    def test_as_an_ephemeral_key(self, pattern: Pattern, key: bytes):
        pair = meet(pattern)
        for _ in range(2):
            reader, message = pair.reader, pair.writer.write(b"")
            refuse(reader, key + message[KEY_SIZE:])
            reader.read_untrusted(message)

    @each_pattern
    def test_as_the_identity_of_who_begins(self, pattern: Pattern):
        pair = Pair(alice(pattern, Random(1), identity=liar()), bob(pattern, Random(2)))
        list(talk(pair, [b""] * BEFORE_ALICE_IS_KNOWN[pattern.name]))
        refuse(pair.bob, pair.alice.write(b""))

    @pytest.mark.parametrize("pattern", [XX, XXPSK0], ids=lambda pattern: pattern.name)
    def test_as_the_identity_of_who_answers(self, pattern: Pattern):
        pair = Pair(alice(pattern, Random(1)), bob(pattern, Random(2), identity=liar()))
        list(talk(pair, [b""]))
        refuse(pair.alice, pair.bob.write(b""))


def liar() -> Identity:
    """Somebody who sends another key than that of the identity."""
    identity = Identity.draw(Random("liar"))
    identity.public = bytes(KEY_SIZE)
    return identity


@each_pattern
def test_who_sends_the_key_of_somebody_else_is_refused(pattern: Pattern):
    """To know a public key is not to be the one."""
    thief = Identity.draw(Random("thief"))
    thief.public = ALICE.public
    pair = Pair(alice(pattern, Random(1), identity=thief), bob(pattern, Random(2)))
    list(talk(pair, [b""] * BEFORE_ALICE_IS_KNOWN[pattern.name]))
    refuse(pair.bob, pair.alice.write(b""))
