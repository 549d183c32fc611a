"""Faults of etcd, of servers and between them: no id twice, no false ACK, agreement in the end."""

import pytest

from tests.apps.server.registry.faults import check
from tests.soaked import soaked


# The last two of the quick ones once left a client behind that nobody heard.
@pytest.mark.parametrize("seed", [0, 2, 1075, 1076, *soaked((1, *range(3, 20)))])
def test_no_id_is_held_twice_and_all_agree_in_the_end(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 10_100, 100))
def test_no_id_is_held_twice_in_many_schedules(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)
