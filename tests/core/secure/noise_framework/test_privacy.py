"""What somebody who only listens learns, and what somebody who only asks."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.secure.noise_framework import XX, XXPSK0, Pattern
from sphtp.errors import RemoteError
from tests.core.secure.noise_framework.conversation import (
    ALICE,
    BOB,
    PATTERNS,
    SECRET,
    alice,
    bob,
    finish,
    meet,
    talk,
)
from tests.profiles import brisk

each_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)


@brisk
@given(st.sampled_from(PATTERNS), st.integers(0, 2**32))
def test_no_identity_and_no_secret_is_in_the_clear(pattern: Pattern, seed: int):
    said = b"|".join(finish(meet(pattern, seed)))
    assert len(said) > 100
    for hidden in (ALICE.public, BOB.public, SECRET):
        assert hidden not in said
        assert hidden[::-1] not in said


@each_pattern
def test_payloads_are_sealed_but_for_the_first_of_xx(pattern: Pattern):
    payloads = [b"payload %d" % number for number in range(len(pattern.messages))]
    messages = talk(meet(pattern), payloads)
    seen = [payload in message for payload, message in zip(payloads, messages, strict=True)]
    assert seen == [pattern is XX, *[False] * (len(payloads) - 1)]


def test_who_asks_learns_who_answers_in_xx():
    asks = alice(XX, Random(1))
    answers = bob(XX, Random(2))
    answers.read_untrusted(asks.write(b""))
    asks.read_untrusted(answers.write(b""))
    assert asks.remote == BOB.public


def test_who_asks_without_the_secret_learns_nothing():
    answers = bob(XXPSK0, Random(2))
    with pytest.raises(RemoteError):
        answers.read_untrusted(alice(XXPSK0, Random(1), psk=bytes(32)).write(b""))
    assert not answers.is_my_turn


@each_pattern
def test_when_the_other_one_is_known(pattern: Pattern):
    """IK: Alice knows beforehand, and Bob with the first message. XX: one, then the other."""
    pair = meet(pattern)
    known = [(pair.alice.remote, pair.bob.remote)]
    for _ in pattern.messages:
        list(talk(pair, [b""]))
        known.append((pair.alice.remote, pair.bob.remote))
    both = (BOB.public, ALICE.public)
    expected = {
        "IK": [(BOB.public, None), both, both],
        "XX": [(None, None), (None, None), (BOB.public, None), both],
    }
    assert known == expected[pattern.name.removesuffix("psk0")]
