"""Each bad day in brief, for the quick suite, and at length."""

from collections.abc import Callable

import pytest

from tests.soak.scenarios import BEFORE, SCENARIOS, STARTS, across, least_numbered
from tests.soaked import soaked

Tell = Callable[[str], None]


# Even in brief these take many seconds of the processor.
LONG = [
    "90 % lost",
    "99 % lost",
    "a day of loss, jitter, duplicates and reordering",
    "hardly any room",
    "readers that stop",
    "slow readers",
]
BRIEF = [*(name for name in SCENARIOS if name not in LONG), *soaked(LONG)]


@pytest.mark.parametrize("name", BRIEF)
def test_in_brief(name: str, seed: int, tell: Tell) -> None:
    scenario = SCENARIOS[name]
    print(scenario.play(seed, scenario.brief, tell))


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_at_length(name: str, seed: int, tell: Tell, record: Tell) -> None:
    scenario = SCENARIOS[name]
    record(scenario.play(seed, scenario.long, tell))


ROUND = 65536


def cross(start: int, seed: int, numbers: int, tell: Tell) -> str:
    """Talk until everything that is numbered has had so many numbers."""
    conversation = across(start).begin(seed)
    conversation.talk(1)
    before = conversation.settle()
    conversation.wake()
    while least_numbered(conversation) < numbers:
        conversation.talk(60, lambda: least_numbered(conversation) >= numbers)
        tell(conversation.progress)
    memory = conversation.settle().check_no_more_than(before)
    figures = conversation.figures()
    conversation.part()
    return f"{figures}; {memory}"


@pytest.mark.parametrize("start", [*STARTS[2:5:2], *soaked([*STARTS[:2], *STARTS[3::2]])])
def test_numbers_cross_a_wrap(start: int, seed: int, tell: Tell) -> None:
    print(cross(start, seed, 2 * BEFORE, tell))


@pytest.mark.soak
@pytest.mark.parametrize("start", STARTS)
def test_numbers_wrap_several_times(start: int, seed: int, tell: Tell, record: Tell) -> None:
    record(cross(start, seed, 3 * ROUND, tell))
