"""A server's events as log lines: which words, how serious, and which fields."""

from collections.abc import Callable
from typing import Any, Final

from sphtp.core.control.events import (
    ClientChanged,
    ClientEntered,
    ClientLeft,
    ClientSuspected,
    MemberEntered,
    MemberLeft,
    ServerEvent,
    StateChanged,
    UserMessage,
    ViewChanged,
)
from sphtp.core.control.records import Member, PeerRecord
from sphtp_server.logs import Log, LogLevel

Fields = dict[str, Any]


def log_event(log: Log, event: ServerEvent) -> None:
    """Write the line of one event."""
    level, words, fields = _LINES[type(event)]
    getattr(log, level)(words, **fields(event))


def _client(record: PeerRecord) -> Fields:
    return {"client": record.id, "addresses": [f"{c.host} {c.port}" for c in record.candidates]}


def _member(member: Member) -> Fields:
    address = None if member.address is None else str(member.address)
    return {"server": member.id, "address": address, "state": member.state.name}


_LINES: Final[dict[type[ServerEvent], tuple[LogLevel, str, Callable[[Any], Fields]]]] = {
    ClientEntered: ("info", "client entered", lambda event: _client(event.record)),
    ClientChanged: ("debug", "client changed", lambda event: _client(event.record)),
    ClientSuspected: ("warning", "client suspected", lambda event: {"client": event.id}),
    ClientLeft: (
        "info",
        "client left",
        lambda event: {"client": event.record.id, "reason": event.reason.name},
    ),
    MemberEntered: ("info", "server entered", lambda event: _member(event.member)),
    MemberLeft: (
        "warning",
        "server left",
        lambda event: {**_member(event.member), "reason": event.reason.name},
    ),
    ViewChanged: (
        "info",
        "view changed",
        lambda event: {
            "view": event.view.number,
            "servers": [member.id for member in event.view.members],
        },
    ),
    StateChanged: ("info", "state changed", lambda event: {"state": event.state.name}),
    UserMessage: (
        "debug",
        "message of the application",
        lambda event: {"sender": event.sender, "command": event.command},
    ),
}
