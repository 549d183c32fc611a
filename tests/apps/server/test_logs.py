"""Log lines, for people and for programs."""

import io
import json
from typing import get_args

import pytest

from sphtp.core.control.events import (
    ClientEntered,
    ClientLeft,
    ClientSuspected,
    MemberLeft,
    ServerEvent,
    StateChanged,
    ViewChanged,
)
from sphtp.core.control.records import Candidate, ClusterView, Member, PeerRecord, ServerAddress
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Reason
from sphtp_server.happenings import _LINES, log_event
from sphtp_server.logs import LogLevel, open_log

CLIENT = PeerRecord(5, 9, (Candidate("127.0.0.1", 700),))
MEMBER = Member(8, 9, ServerAddress.parse("tcp://a:1"))


def logged(event: ServerEvent, level: LogLevel = "debug") -> list[dict[str, object]]:
    output = io.StringIO()
    log_event(open_log(level, "json", output), event)
    return [json.loads(line) for line in output.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            ClientEntered(CLIENT),
            {
                "event": "client entered",
                "level": "info",
                "client": 5,
                "addresses": ["127.0.0.1 700"],
            },
        ),
        (
            ClientSuspected(5),
            {"event": "client suspected", "level": "warning", "client": 5},
        ),
        (
            ClientLeft(CLIENT, Reason.EXPIRED),
            {"event": "client left", "level": "info", "client": 5, "reason": "EXPIRED"},
        ),
        (
            MemberLeft(MEMBER, Reason.LEFT),
            {
                "event": "server left",
                "level": "warning",
                "server": 8,
                "address": "tcp://a:1",
                "state": "ACTIVE",
                "reason": "LEFT",
            },
        ),
        (
            ViewChanged(ClusterView(3, (MEMBER,))),
            {"event": "view changed", "level": "info", "view": 3, "servers": [8]},
        ),
        (
            StateChanged(ServerState.ACTIVE),
            {"event": "state changed", "level": "info", "state": "ACTIVE"},
        ),
    ],
)
def test_an_event_is_one_line_with_its_facts(
    event: ServerEvent, expected: dict[str, object]
) -> None:
    (line,) = logged(event)
    assert line.pop("timestamp")
    assert line == expected


def test_less_than_the_level_is_not_written() -> None:
    assert logged(ClientEntered(CLIENT), "warning") == []
    assert len(logged(ClientSuspected(5), "warning")) == 1


def test_lines_for_people_have_no_colours_outside_a_terminal() -> None:
    output = io.StringIO()
    log_event(open_log("info", "console", output), ClientEntered(CLIENT))
    assert "client entered" in output.getvalue()
    assert "client=5" in output.getvalue()
    assert "\x1b" not in output.getvalue()


def test_every_event_has_a_line() -> None:
    assert set(_LINES) == set(get_args(ServerEvent))
