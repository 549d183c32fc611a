"""Random waits: their bounds, and what they are shaped like."""

from math import exp, log
from random import Random

import pytest

from sphtp.core.stream.nak import draw_exponential, draw_nak_backoff, draw_uniform
from sphtp.core.stream.settings import Backoff, StreamSettings


class Fixed(Random):
    """Draws what it is told."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_uniform_is_between_half_and_one_and_a_half() -> None:
    assert [draw_uniform(Fixed(it), 0.2) for it in (0.0, 0.5, 1.0)] == pytest.approx(
        [0.1, 0.2, 0.3]
    )


@pytest.mark.parametrize("group_size", [1, 10, 100, 1_000_000])
@pytest.mark.parametrize("uniform", [0.0, 0.1, 0.5, 0.999])
def test_exponential_is_the_formula_of_rfc_5401(group_size: int, uniform: float) -> None:
    most = 0.03
    steepness = log(group_size) + 1
    least = steepness / (most * (exp(steepness) - 1))
    drawn = uniform * steepness / most + least
    told = most / steepness * log(drawn * (exp(steepness) - 1) * most / steepness)
    assert draw_exponential(Fixed(uniform), most, group_size) == pytest.approx(told, abs=1e-12)


@pytest.mark.parametrize("group_size", [1, 100, 1_000_000])
def test_exponential_is_between_nothing_and_the_most(group_size: int) -> None:
    assert draw_exponential(Fixed(0.0), 0.03, group_size) == 0
    assert draw_exponential(Fixed(1.0), 0.03, group_size) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("receivers", "most_naks"),
    [(10, 1.1), (100, 1.2), pytest.param(1000, 1.6, marks=pytest.mark.soak)],
)
def test_of_many_that_share_a_loss_few_ask(seed: int, receivers: int, most_naks: float) -> None:
    """One round trip after the first NAK its repair is there, in time for those that draw later."""
    entropy, round_trip, asked, times = Random(seed), 0.0003, 0, 40
    for _ in range(times):
        waits = [draw_exponential(entropy, 0.03, 100) for _ in range(receivers)]
        asked += sum(wait < min(waits) + round_trip for wait in waits)
    assert asked / times < most_naks


@pytest.mark.parametrize("backoff", Backoff)
def test_later_waits_are_half_at_least_and_all_of_it_on_average(
    seed: int, backoff: Backoff
) -> None:
    entropy = Random(seed)
    settings = StreamSettings(nak_backoff=0.1, backoff=backoff)
    waits = [draw_nak_backoff(entropy, settings) for _ in range(4000)]
    assert 0.05 <= min(waits) < 0.07
    assert max(waits) <= 0.15
    assert sum(waits) / len(waits) == pytest.approx(0.1, rel=0.04)


def test_in_a_group_the_first_one_waits_much_longer_than_half(seed: int) -> None:
    entropy, groups = Random(seed), 200
    firsts = dict.fromkeys(Backoff, 0.0)
    for backoff in Backoff:
        settings = StreamSettings(nak_backoff=0.1, backoff=backoff)
        for _ in range(groups):
            waits = (draw_nak_backoff(entropy, settings) for _ in range(20))
            firsts[backoff] += min(waits) / groups
    assert firsts[Backoff.UNIFORM] < 0.06
    assert firsts[Backoff.EXPONENTIAL] > 0.07
