"""One seed gives one trace, so that what a soak found can be had again."""

from tests.soak.figures import Figures
from tests.soak.scenarios import SCENARIOS

SCENARIO = SCENARIOS["one-way blackouts"]


def played(seed: int) -> Figures:
    conversation = SCENARIO.begin(seed)
    conversation.talk(8)
    conversation.settle()
    conversation.part()
    return conversation.figures()


def test_one_seed_gives_one_trace_and_another_another(seed: int) -> None:
    figures = played(seed)
    assert figures.packets > 100
    assert figures.cuts > 0
    assert figures == played(seed)
    assert figures.digest != played(seed + 1).digest
