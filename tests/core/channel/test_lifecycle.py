"""The table, and what the runner makes of it."""

from sphtp.core.channel.lifecycle import LIFECYCLE, Action, Event, State
from tests.cases import each

REPORTS = {Action.END, Action.FINISH, Action.LINGER}


def test_every_way_out_of_life_reports_the_end() -> None:
    for row in LIFECYCLE.rows:
        is_end = row.to in (State.CLOSED, State.LINGERING) and row.at is not row.to
        assert is_end == bool(REPORTS & set(row.do)), row


def test_what_has_ended_stays_so() -> None:
    assert all(LIFECYCLE.find(State.CLOSED, event) is None for event in Event)


@each("state", [state for state in State if state is not State.CLOSED])
def test_a_program_can_always_give_up(state: State) -> None:
    row = LIFECYCLE.find(state, Event.ABORT)
    assert row is not None
    assert row.to is State.CLOSED
