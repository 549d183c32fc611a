"""The table, and what the runner makes of it."""

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.handshake import ClearHandshake
from sphtp.core.channel.lifecycle import LIFECYCLE, Action, Event, State
from sphtp.core.channel.settings import ChannelSettings
from tests.core.channel.talk import offer

REPORTS = {Action.END, Action.FINISH, Action.LINGER}


def test_the_runner_has_a_method_for_every_action() -> None:
    opening = ClearHandshake(offer(), token=1)
    connection = Connection(0.0, ChannelSettings(), opening, State.ANSWERING)
    assert set(connection._ACTIONS) == set(Action) == LIFECYCLE.actions


def test_every_way_out_of_life_reports_the_end() -> None:
    for row in LIFECYCLE.rows:
        is_end = row.to in (State.CLOSED, State.LINGERING) and row.at is not row.to
        assert is_end == bool(REPORTS & set(row.do)), row


def test_what_has_ended_stays_so() -> None:
    assert all(LIFECYCLE.find(State.CLOSED, event) is None for event in Event)


@pytest.mark.parametrize("state", [state for state in State if state is not State.CLOSED])
def test_a_program_can_always_give_up(state: State) -> None:
    row = LIFECYCLE.find(state, Event.ABORT)
    assert row is not None
    assert row.to is State.CLOSED
