"""Two clients that want one id: every order of messages and faults in small cases."""

import pytest

from tests.core.control.check_model import CASES, explore, replay
from tests.core.control.model import Case, Explorer, ViolationError
from tests.core.control.model_mutants import MUTANTS

# They compare the attributes of machines, which compiled objects do not show.
pytestmark = pytest.mark.plain

QUICK = (
    Case(name="a duplicate and a loss", servers="A", ticks=1, losses=1, duplicates=1),
    Case(name="a restart", servers="A", is_established=True, ticks=2, restarts=1),
    Case(name="a partition", servers="A", is_established=True, ticks=4, partition="X"),
)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_nothing_goes_wrong_with_one_server(case: Case) -> None:
    explorer = Explorer(case)
    explorer.run()
    assert explorer.moments > 500
    assert explorer.ends > 10


def test_a_broken_rule_is_found_and_the_way_leads_there_again() -> None:
    mutant = next(it for it in MUTANTS if it.rule.startswith("a server refuses an id"))
    with mutant.change():
        explorer = Explorer(mutant.case)
        with pytest.raises(ViolationError, match="two clients") as caught:
            explorer.run()
        lines = list(Explorer(mutant.case).replay(caught.value.way))
    assert len(lines) == len(caught.value.way)
    assert sum("established 7" in line for line in lines) == 2
    Explorer(mutant.case).run()


@pytest.mark.soak
@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: CASES[index].name)
def test_no_case_has_a_violation(index: int) -> None:
    assert explore(index).rule == ""


@pytest.mark.soak
@pytest.mark.parametrize("index", range(len(MUTANTS)), ids=lambda index: MUTANTS[index].rule)
def test_each_mutant_is_caught(index: int) -> None:
    result = explore(len(CASES) + index)
    assert result.rule
    assert len(list(replay(result.number, result.way))) == len(result.way)
