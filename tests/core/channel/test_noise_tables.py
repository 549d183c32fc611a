"""The tables of the two sides: every pair has a row or is refused, every action is performed."""

from typing import Any

import pytest

from sphtp.core.channel.initiator import INITIATOR, InitiatorAction, InitiatorEvent, InitiatorState
from sphtp.core.channel.responder import RESPONDER, ResponderAction, ResponderEvent, ResponderState
from sphtp.core.fsm import Machine, Name


@pytest.mark.parametrize(
    ("machine", "states", "events"),
    [(INITIATOR, InitiatorState, InitiatorEvent), (RESPONDER, ResponderState, ResponderEvent)],
)
def test_every_pair_has_a_row_or_is_refused(
    machine: Machine[Any, Any, Any], states: type[Name], events: type[Name]
):
    for state in states:
        for event in events:
            row = machine.find(state, event)
            assert (row is None) == (event in machine.refused[state]), (state, event)


def test_every_action_is_in_a_row():
    assert {action for row in INITIATOR.rows for action in row.do} == set(InitiatorAction)
    assert {action for row in RESPONDER.rows for action in row.do} == set(ResponderAction)
