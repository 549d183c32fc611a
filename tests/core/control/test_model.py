"""Two clients, one id, two servers: never two owners, and in the end two ids."""

import pytest

from sphtp.core.control.directory import Directory
from tests.core.control.model import Explorer, Moment
from tests.core.control.model_world import CLIENTS, SERVERS
from tests.soaked import soaked


def both_get_ids(explorer: Explorer, moment: Moment) -> bool:
    world = explorer.rebuild(moment)
    world.finish()
    ids = {world.machines[name].id for name in CLIENTS}
    known = [set(world.machines[name].clients) for name in SERVERS]
    return len(ids) == len(CLIENTS) and all(ids <= clients for clients in known)


@pytest.mark.parametrize("lower", CLIENTS)
def test_no_order_makes_two_owners_when_any_message_is_lost(lower: str) -> None:
    """Or none: that is one of the orders."""
    explorer = Explorer(lower, losses=1)
    ends = list(explorer.ends())
    # An id that was given up has no acknowledgements, so many orders end in one moment.
    assert explorer.moments > 5_000
    assert all(both_get_ids(explorer, end) for end in ends)


@pytest.mark.soak
@pytest.mark.parametrize("lower", ["X", *soaked("Y")])
def test_no_order_makes_two_owners_when_announcements_repeat(lower: str) -> None:
    explorer = Explorer(lower, repeats=1)
    ends = list(explorer.ends())
    assert explorer.moments > 25_000
    assert all(both_get_ids(explorer, end) for end in ends)


@pytest.mark.soak
@pytest.mark.parametrize("lower", CLIENTS)
def test_no_order_makes_two_owners_with_repeats_and_losses(lower: str) -> None:
    explorer = Explorer(lower, repeats=1, losses=2)
    ends = list(explorer.ends())
    assert explorer.moments > 200_000
    assert all(both_get_ids(explorer, end) for end in ends)


def test_the_search_finds_two_owners_when_one_answer_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    any_answer = property(lambda self: bool(self._acknowledged_by))
    monkeypatch.setattr(Directory, "is_unanimous", any_answer)
    with pytest.raises(AssertionError, match="two clients"):
        list(Explorer("X").ends())
