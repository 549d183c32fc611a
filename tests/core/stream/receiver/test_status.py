"""When a receiver reports how far it is."""

import pytest

from sphtp.core.stream.bodies import Status
from sphtp.core.stream.receiver.status import StatusReports

REACH, SIZE, BURST = 8, 1000, 100
ROOM = REACH * SIZE


@pytest.fixture
def reports() -> StatusReports:
    return StatusReports(REACH, SIZE, BURST, 100)


def poll(reports: StatusReports, lead: int, room: int = ROOM) -> Status | None:
    return reports.poll(lead, lead, room, is_fetching=False)


def test_a_report_is_due_when_a_quarter_of_the_reach_is_used_up(reports: StatusReports) -> None:
    told = [lead for lead in range(100, 107) if poll(reports, lead)]
    assert told == [100, 102, 104, 106]


def test_the_first_report_needs_no_question(reports: StatusReports) -> None:
    """The source may have asked before this side listened, and waits for a report now."""
    assert not poll(reports, 102, room=0), "it has no more room than the source knows"
    assert not reports.is_due(102, 102, SIZE)
    assert reports.is_due(102, 102, 2 * SIZE)
    assert poll(reports, 102) == Status(102, ROOM)


def test_who_does_not_know_where_the_source_was_reports_when_asked() -> None:
    reports = StatusReports(REACH, SIZE, BURST)
    assert not poll(reports, 1000)
    reports.ask()
    assert poll(reports, 1000) == Status(1000, ROOM)
    assert poll(reports, 1002) == Status(1002, ROOM)


def test_no_more_room_is_told_than_a_reach(reports: StatusReports) -> None:
    assert poll(reports, 104, room=10**9) == Status(104, ROOM)
    assert poll(reports, 108, room=3 * SIZE) is None
    assert poll(reports, 112, room=3 * SIZE) == Status(112, 3 * SIZE)


def test_a_source_that_never_waits_is_told_only_when_it_asks() -> None:
    reports = StatusReports(0, SIZE, BURST, 100)
    assert not poll(reports, 100_000)
    reports.ask()
    assert poll(reports, 100_000) == Status(100_000, ROOM)
    assert not poll(reports, 200_000)


def test_a_small_socket_is_not_flooded_whatever_is_missing() -> None:
    reports = StatusReports(REACH, SIZE, 4, 100)

    def status(settled: int, lead: int) -> Status | None:
        return reports.poll(settled, lead, ROOM, is_fetching=False)

    assert status(100, 100) == Status(100, 4 * SIZE)
    assert status(101, 101) == Status(101, 4 * SIZE)
    assert status(101, 102) == Status(101, 5 * SIZE), "what came behind a gap has left the socket"
    assert status(101, 105) == Status(101, 8 * SIZE)
    assert status(101, 107) is None, "a reach is a reach"
