"""What is kept is given to every target again, and after it much that is like it."""

import pytest

from tests.fuzz.choices import Dice
from tests.fuzz.decoders import DECODERS
from tests.fuzz.keep import LONGEST, MOST
from tests.fuzz.mutations import mutate
from tests.fuzz.starts import starts
from tests.fuzz.targets import CORPUS, TARGETS, kept

MUTANTS = {True: 30, False: 3}
"""Inputs made up for a decoder, and for whatever lives longer."""

FIRST = 3
"""So many of what is kept for whatever lives longer; those that come first reach most."""

every_target = pytest.mark.parametrize("name", TARGETS)


@every_target
def test_what_is_kept_is_survived(name: str) -> None:
    inputs = kept(name)
    assert inputs, f"nothing is kept for {name}: fuzz it, and then `make fuzz-keep`"
    for path in inputs if name in DECODERS else inputs[:FIRST]:
        TARGETS[name](path.read_bytes())


@pytest.mark.soak
@every_target
def test_all_that_is_kept_is_survived(name: str) -> None:
    for path in kept(name):
        TARGETS[name](path.read_bytes())


@every_target
def test_what_is_like_it_is_survived(name: str, seed: int) -> None:
    dice = Dice(f"{seed} {name}")
    models = [*starts(name), *(path.read_bytes() for path in kept(name))]
    for number in range(MUTANTS[name in DECODERS]):
        data = mutate(dice, dice.pick(models), models)[:LONGEST]
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"input {number}, seed {seed}: {data!r}") from error


def test_every_start_of_a_decoder_is_an_input_of_a_target() -> None:
    assert all(starts(name) for name in TARGETS)


def test_what_is_kept_is_little_and_of_targets_that_are_there() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    for name in TARGETS:
        assert len(kept(name)) <= MOST
        assert all(len(path.read_bytes()) <= LONGEST for path in kept(name))
