"""When a receiver reports how far it is."""

import pytest

from sphtp.core.stream.flow_control import StatusReports
from sphtp.core.stream.wire import StatusMessage

REACH, BURST, LEAD = 8000, 100_000, 7


@pytest.fixture
def reports() -> StatusReports:
    return StatusReports(REACH, BURST)


def poll(reports: StatusReports, taken: int, room: int = REACH) -> StatusMessage | None:
    return reports.poll(LEAD, taken, 0, room)


def test_a_report_is_due_when_a_quarter_of_the_reach_is_used_up(reports: StatusReports) -> None:
    told = [taken for taken in range(0, 7000, 1000) if poll(reports, taken)]
    assert told == [0, 2000, 4000, 6000]


def test_the_first_report_needs_no_question(reports: StatusReports) -> None:
    """The source may have asked before this side listened, and waits for a report now."""
    assert not poll(reports, 2000, room=0), "it has no more room than the source knows"
    assert not reports.is_due(2000, 0, 1000)
    assert reports.is_due(2000, 0, 2000)
    assert poll(reports, 2000) == StatusMessage(LEAD, REACH)


def test_who_does_not_know_where_the_source_was_reports_when_asked() -> None:
    reports = StatusReports(REACH, BURST, knows_lead=False)
    assert not poll(reports, 1_000_000)
    reports.ask()
    assert poll(reports, 1_000_000) == StatusMessage(LEAD, REACH)
    assert poll(reports, 1_002_000) == StatusMessage(LEAD, REACH)


def test_no_more_room_is_told_than_a_reach(reports: StatusReports) -> None:
    assert poll(reports, 4000, room=10**9) == StatusMessage(LEAD, REACH)
    assert poll(reports, 8000, room=3000) is None
    assert poll(reports, 12_000, room=3000) == StatusMessage(LEAD, 3000)


def test_a_source_that_never_waits_is_told_only_when_it_asks() -> None:
    reports = StatusReports(0, BURST)
    assert not poll(reports, 100_000)
    reports.ask()
    assert poll(reports, 100_000) == StatusMessage(LEAD, REACH)
    assert not poll(reports, 200_000)


def test_what_it_fetches_and_knows_is_told_with_it(reports: StatusReports) -> None:
    reports.ask()
    status = reports.poll(LEAD, 0, 0, REACH, is_fetching=True, knows_end=True)
    assert status == StatusMessage(LEAD, REACH, is_fetching=True, knows_end=True)


def test_a_small_socket_is_not_flooded_whatever_is_missing() -> None:
    reports = StatusReports(REACH, 4000)

    def status(taken: int, behind_gap: int) -> StatusMessage | None:
        return reports.poll(LEAD, taken, behind_gap, REACH)

    assert status(0, 0) == StatusMessage(LEAD, 4000)
    assert status(1000, 0) == StatusMessage(LEAD, 4000)
    assert status(2000, 1000) == StatusMessage(LEAD, 5000), (
        "what came behind a gap has left the socket"
    )
    assert status(5000, 4000) == StatusMessage(LEAD, 8000)
    assert status(7000, 6000) is None, "a reach is a reach"
