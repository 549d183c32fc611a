"""The tables of the two sides: every pair has a row or is refused, every action is performed."""

from typing import Any

import pytest

from sphtp.core.channel.gate.tables import (
    GREETING,
    VISIT,
    Greeted,
    Knock,
    Reply,
    Respond,
    Say,
    Visit,
)
from sphtp.core.fsm import Machine, Name
from tests.core.channel.gate.sealed import SealedPair


@pytest.mark.parametrize(
    ("machine", "states", "events"), [(GREETING, Greeted, Reply), (VISIT, Visit, Knock)]
)
def test_every_pair_has_a_row_or_is_refused(
    machine: Machine[Any, Any, Any], states: type[Name], events: type[Name]
):
    for state in states:
        for event in events:
            row = machine.find(state, event)
            assert (row is None) == (event in machine.refused[state]), (state, event)


def test_every_action_has_a_method():
    gate = SealedPair().left._gate
    assert set(gate.caller._say) == set(Say)
    assert set(gate._host._respond) == set(Respond)


def test_every_action_is_in_a_row():
    assert {action for row in GREETING.rows for action in row.do} == set(Say)
    assert {action for row in VISIT.rows for action in row.do} == set(Respond)
