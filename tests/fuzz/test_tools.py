"""What drives the targets: choices, mutations, the choice of what is kept, the names of targets."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.choices import Dice, Script
from tests.fuzz.keep import Line, reach, smallest_cover
from tests.fuzz.mutations import MOST, mutate
from tests.fuzz.run import chosen
from tests.fuzz.starts import starts
from tests.fuzz.targets import TARGETS

CODE = (lambda: None).__code__


@given(st.binary(max_size=40), st.integers(1, 2**20))
def test_a_script_is_read_to_its_end_and_then_says_the_first_of_all(
    data: bytes, limit: int
) -> None:
    script = Script(data)
    choices = 0
    while script:
        assert 0 <= script.below(limit) < limit
        choices += 1
    assert choices <= len(data)
    assert (script.below(limit), script.pick("abc"), script.some_bytes(10)) == (0, "a", b"")


@given(st.integers(0, 99), st.binary(max_size=200), st.lists(st.binary(max_size=50), max_size=3))
def test_mutations_come_again_with_their_seed(seed: int, data: bytes, others: list[bytes]) -> None:
    mutants = [mutate(Dice(str(seed)), data, others) for _ in range(2)]
    assert mutants[0] == mutants[1]
    assert len(mutants[0]) <= MOST


def test_most_mutants_are_new() -> None:
    dice, (model, *others) = Dice("1"), starts("channel-packet")
    mutants = {mutate(dice, model, others) for _ in range(1000)}
    assert len(mutants - {model}) > 900


def test_as_few_and_as_small_inputs_are_kept_as_reach_all() -> None:
    def lines(*numbers: int) -> set[Line]:
        return {(CODE, number) for number in numbers}

    found = {
        b"aaaa": lines(1, 2, 3),
        b"bb": lines(1, 2, 3),
        b"c": lines(3),
        b"ddd": lines(4),
        b"": lines(),
    }
    assert list(smallest_cover(found)) == [b"bb", b"ddd"]


@pytest.mark.plain  # compiled code has no lines to follow
def test_what_an_input_reaches_are_lines_of_the_library() -> None:
    (good, *_), short = starts("channel-header"), b"\x10"
    files = {code.co_filename.rpartition("/")[2] for code, _ in reach("channel-header", good)}
    assert "frames.py" in files
    assert "decoders.py" not in files
    assert reach("channel-header", good) != reach("channel-header", short)


def test_targets_are_chosen_by_parts_of_their_names() -> None:
    assert list(chosen("")) == list(TARGETS)
    assert list(chosen("runs, siege-clear")) == ["channel-runs", "siege-clear"]
    with pytest.raises(click.BadParameter, match="channel-front"):
        chosen("siege nonsense")
