"""Log lines, for people and for programs."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import get_args

import pytest

from sphtp.core.control.counters import Count
from sphtp.core.control.records import ClusterView, Member, Peer, ServerAddress
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import MemberState, Reason
from sphtp.events import (
    JoinFailing,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    ServerEvent,
    ServerLeft,
    StateChanged,
    ViewChanged,
)
from sphtp_server.daemon import FIXED_LIMITS, LIMITS, log_drops
from sphtp_server.event_log import LINES, EventLog
from sphtp_server.logs import LogFormat, LogLevel, LogTarget, open_log, open_log_at
from sphtp_server.settings import ServerSettings
from tests.cases import each

CLIENT = Peer(5, b"", (("127.0.0.1", 700),), 9)
NAMED = replace(CLIENT, name="fluid-1")
MEMBER = Member(8, 9, ServerAddress.parse("tcp://a:1"))
OWN = Member(4, 9, ServerAddress.parse("tcp://b:1"))


def written(*events: ServerEvent, level: LogLevel = "debug", form: LogFormat = "json") -> list[str]:
    with TemporaryFile("w+") as output:
        log = open_log(level, form, output)
        event_log = EventLog(log, ClusterView(1, (OWN,)), lambda: OWN.id)
        for event in events:
            event_log.record(event)
        output.seek(0)
        return output.read().splitlines()


def logged(*events: ServerEvent, level: LogLevel = "debug") -> list[dict[str, object]]:
    return [json.loads(line) for line in written(*events, level=level)]


@each(
    ("event", "expected"),
    [
        (
            PeerEntered(CLIENT),
            {
                "event": "client entered",
                "level": "info",
                "client": 5,
                "addresses": ["127.0.0.1 700"],
            },
        ),
        (
            PeerSuspected(NAMED),
            {"event": "client suspected", "level": "warning", "name": "fluid-1", "client": 5},
        ),
        (
            PeerLeft(CLIENT, Reason.EXPIRED),
            {"event": "client left", "level": "info", "client": 5, "reason": "expired"},
        ),
        (
            ServerLeft(MEMBER, Reason.EXPIRED),
            {
                "event": "server left",
                "level": "warning",
                "server": 8,
                "address": "tcp://a:1",
                "state": "active",
                "reason": "expired",
            },
        ),
        (
            ViewChanged(ClusterView(3, (MEMBER,))),
            {"event": "view changed", "level": "info", "view": 3, "servers": [8]},
        ),
        (
            JoinFailing(ServerAddress.parse("tcp://b:1"), "connection refused by b:1"),
            {
                "event": "waiting for a server to join",
                "level": "warning",
                "address": "tcp://b:1",
                "why": "connection refused by b:1",
            },
        ),
        (
            StateChanged(ServerState.ACTIVE),
            {"event": "state changed", "level": "info", "state": "active"},
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
    assert logged(PeerEntered(CLIENT), level="warning") == []
    assert len(logged(PeerSuspected(CLIENT), level="warning")) == 1


def test_a_server_that_says_goodbye_is_no_reason_to_worry() -> None:
    assert logged(ServerLeft(MEMBER, Reason.LEFT), level="warning") == []
    (line,) = logged(ServerLeft(MEMBER, Reason.LEFT))
    assert (line["level"], line["reason"]) == ("info", "left")


def test_a_view_is_told_once_and_then_what_is_new_about_it() -> None:
    joining = replace(MEMBER, state=MemberState.JOINING)
    own_joining = replace(OWN, state=MemberState.JOINING)
    views = [
        ClusterView(2, (own_joining, joining)),
        ClusterView(2, (own_joining, joining)),
        ClusterView(2, (OWN, joining)),
        ClusterView(3, (OWN, MEMBER)),
    ]
    events = [ViewChanged(view) for view in views]
    told = [
        (line["event"], line.get("view"), line.get("servers"), line.get("server"))
        for line in logged(*events)
    ]
    assert told == [
        ("view changed", 2, [4, 8], None),
        ("server is active", None, None, 8),
        ("view renumbered", 3, None, None),
    ]
    assert len(logged(*events, level="info")) == 2


def test_what_is_counted_in_everyday_life_is_for_those_who_debug() -> None:
    with TemporaryFile("w+") as output:
        log_drops(open_log("debug", "json", output), {"foreign": 2, "malformed": 1})
        log_drops(open_log("debug", "json", output), {})
        output.seek(0)
        usual, unusual = map(json.loads, output)
    assert (usual["level"], usual["foreign"], "malformed" in usual) == ("debug", 2, False)
    assert (unusual["level"], unusual["malformed"], "foreign" in unusual) == ("warning", 1, False)


def test_a_limit_that_was_reached_is_named_as_its_setting() -> None:
    with TemporaryFile("w+") as output:
        log_drops(open_log("info", "json", output), dict.fromkeys(LIMITS, 3))
        output.seek(0)
        lines = [json.loads(line) for line in output]
    assert [(line["level"], line["setting"], line["times"]) for line in lines] == [
        ("warning", setting, 3) for setting in LIMITS.values()
    ]
    assert set(LIMITS.values()) <= set(ServerSettings.model_fields)
    assert {f"over_{setting}" for setting in LIMITS.values()} == set(LIMITS)
    of_clients = {Count.OVER_MAX_PEERS}
    limits = {count for count in Count if count.startswith("over_")} - of_clients
    assert limits == {*LIMITS, *FIXED_LIMITS}


def test_a_limit_that_no_setting_changes_is_named_as_one() -> None:
    with TemporaryFile("w+") as output:
        log_drops(open_log("info", "json", output), dict.fromkeys(FIXED_LIMITS, 3))
        output.seek(0)
        lines = [json.loads(line) for line in output]
    assert [(line["event"], line["limit"], line["times"]) for line in lines] == [
        ("a fixed limit was reached", limit, 3) for limit in FIXED_LIMITS.values()
    ]


def test_a_server_that_did_not_run_has_dropped_no_message() -> None:
    with TemporaryFile("w+") as output:
        log_drops(open_log("info", "json", output), {"overslept": 1})
        output.seek(0)
        (line,) = map(json.loads, output)
    assert (line["level"], line["times"]) == ("warning", 1)
    assert "did not run for a while" in line["event"]


def test_lines_for_people_have_no_colours_outside_a_terminal() -> None:
    (line,) = written(PeerEntered(CLIENT), form="console")
    assert "client entered" in line
    assert "\x1b" not in line


def test_people_read_ids_as_everywhere_else() -> None:
    entered, changed = written(
        PeerEntered(CLIENT), ViewChanged(ClusterView(2, (OWN, MEMBER))), form="console"
    )
    assert "client=0x00000005" in entered
    assert "servers=[0x00000004, 0x00000008]" in changed


def test_every_event_has_a_line() -> None:
    assert {*LINES, ViewChanged} == set(get_args(ServerEvent))


@pytest.mark.parametrize("form", get_args(LogFormat))
def test_what_others_say_steers_no_terminal(form: LogFormat) -> None:
    hostile = "\x1b[2J\x9b1m\u202e"
    with TemporaryFile("w+") as output:
        open_log("info", form, output).info("heard", text=hostile, names=[hostile, 1])
        output.seek(0)
        (line,) = output.read().splitlines()
    assert line.isprintable()
    assert line.count("[2J") == 2


def test_no_line_is_lost_however_often_the_file_is_rotated(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    with LogTarget("info", file) as target:
        log = open_log_at(target, "json")
        for number in range(300):
            log.info("line", number=number)
            if number % 3 == 0:
                # Until the signal arrives, lines go on into the renamed file.
                file.rename(tmp_path / f"server.log.{number:03}")
            elif number % 3 == 1:
                target.reopen()
    parts = [*sorted(tmp_path.glob("server.log.*")), file]
    lines = [line for part in parts for line in part.read_text().splitlines()]
    assert len(parts) == 101
    assert [json.loads(line)["number"] for line in lines] == [*range(300)]
