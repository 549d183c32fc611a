"""Two clients that want one id: every order of messages and faults in small cases."""

from pathlib import Path
from typing import Final

import pytest

from tests.core.control.check_model import SEARCHES, explore, replay
from tests.core.control.model import Case, Explorer, ViolationError
from tests.core.control.model_mutants import MUTANTS

# They compare the attributes of machines, which compiled objects do not show.
pytestmark = pytest.mark.plain

ROOT: Final = Path(__file__).resolve().parents[3]
QUICK: Final = (
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


def test_the_page_names_each_case_and_each_mutant() -> None:
    names = [it.name for it in SEARCHES]
    assert len(set(names)) == len(names)
    page = (ROOT / "docs" / "explanation" / "registration.md").read_text("utf-8")
    assert [name for name in names if f"| {name} |" not in page] == []


@pytest.mark.soak
@pytest.mark.parametrize("number", range(len(SEARCHES)), ids=lambda it: SEARCHES[it].name)
def test_no_case_has_a_violation_and_each_mutant_has_one(number: int) -> None:
    result = explore(number)
    assert bool(result.rule) is SEARCHES[number].is_mutant
    assert len(list(replay(number, result.way))) == len(result.way)
