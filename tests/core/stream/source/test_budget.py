"""What one receiver may ask for."""

from sphtp.core.stream.bodies import Status
from sphtp.core.stream.source.audience import Audience
from sphtp.core.stream.source.budget import NakBudget


def test_so_many_at_once_and_so_many_a_second() -> None:
    budget = NakBudget(0.0, 10.0)
    assert budget.take(0.0, 7) == 7
    assert budget.take(0.0, 7) == 3
    assert budget.take(0.05, 7) == 0
    assert budget.take(0.25, 7) == 2
    assert budget.take(100.0, 70) == 10, "saved for a second at most"


def test_time_that_goes_back_gives_nothing() -> None:
    budget = NakBudget(10.0, 10.0)
    assert budget.take(10.0, 10) == 10
    assert budget.take(5.0, 10) == 0
    assert budget.take(10.0, 10) == 0
    assert budget.take(10.25, 10) == 2


def test_a_slow_one_gets_one_at_a_time() -> None:
    budget = NakBudget(0.0, 1.0)
    assert [budget.take(at, 5) for at in (0.0, 0.5, 1.0, 1.5, 2.0)] == [1, 0, 1, 0, 1]


def test_it_is_reported_once_in_an_interval() -> None:
    budget = NakBudget(0.0, 10.0)
    assert [budget.report(at, 10.0) for at in (0.0, 5.0, 9.9, 10.0, 11.0)] == [
        True, False, False, True, False,
    ]  # fmt: skip


def test_who_joins_again_gets_no_new_budget() -> None:
    audience = Audience(10.0)
    audience.join(0.0, 1, lead=5)
    listener = audience.find(1)
    audience.join(0.0, 1, lead=9)
    assert audience.find(1) is listener
    assert audience.behind(9) == 4


def test_the_slowest_counts() -> None:
    audience = Audience(10.0)
    assert audience.behind(9) == 0, "nobody is behind where nobody is"
    audience.join(0.0, 1, lead=5)
    audience.join(0.0, 2, lead=7)
    assert audience.behind(9) == 4
    audience.confirm(0.0, 1, Status(20, 0))
    assert audience.behind(9) == 2
    audience.leave(2)
    audience.leave(2)
    assert audience.behind(9) == 0
    assert len(audience) == 1
