"""The log of a server's events.

``LINES`` has the level, the text and the fields of the line for each type of event, except for
``ViewChanged``.
"""

from collections.abc import Callable
from typing import Any, Final

from sphtp import Peer
from sphtp.events import (
    ClusterView,
    JoinFailing,
    Member,
    MemberState,
    PeerChanged,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    Reason,
    RegistryFailing,
    ServerEntered,
    ServerEvent,
    ServerLeft,
    StateChanged,
    UserMessage,
    ViewChanged,
)
from sphtp_server.logs import Id, Log, LogLevel

Fields = dict[str, Any]


class EventLog:
    """Logs the events of a server.

    It stores the last view, because it logs only changes of the view. ``view`` is the view at the
    start. ``own`` returns the server's id, which may change.
    """

    def __init__(self, log: Log, view: ClusterView, own: Callable[[], int]) -> None:
        self._log = log
        self._view = view
        self._own = own

    def record(self, event: ServerEvent) -> None:
        """Log an event; a new view only if it differs from the last one."""
        if isinstance(event, ViewChanged):
            self._record_view(event.view)
        else:
            level, words, fields = LINES[type(event)]
            getattr(self._log, level(event))(words, **fields(event))

    def _record_view(self, view: ClusterView) -> None:
        before, self._view = self._view, view
        for member in view.members:
            if _has_become_active(member, before) and member.id != self._own():
                self._log.info("server is active", server=Id(member.id))
        servers = [Id(member.id) for member in view.members]
        if servers != [member.id for member in before.members]:
            self._log.info("view changed", view=view.number, servers=servers)
        elif view.number != before.number:
            self._log.debug("view renumbered", view=view.number)


def _has_become_active(member: Member, before: ClusterView) -> bool:
    joining = {(m.id, m.nonce) for m in before.members if m.state is MemberState.JOINING}
    return member.state is MemberState.ACTIVE and (member.id, member.nonce) in joining


def _always(level: LogLevel) -> Callable[[Any], LogLevel]:
    return lambda _: level


def _of_loss(event: ServerLeft) -> LogLevel:
    return "info" if event.reason is Reason.LEFT else "warning"


def _client(client: Peer) -> Fields:
    return {
        **_who(client),
        "addresses": [f"{host} {port}" for host, port in client.addresses],
    }


def _who(client: Peer) -> Fields:
    name = {"name": client.name} if client.name else {}
    return {**name, "client": Id(client.id)}


def _member(member: Member) -> Fields:
    address = None if member.address is None else str(member.address)
    return {"server": Id(member.id), "address": address, "state": member.state.name.lower()}


_Line = tuple[Callable[[Any], LogLevel], str, Callable[[Any], Fields]]

LINES: Final[dict[type[ServerEvent], _Line]] = {
    PeerEntered: (_always("info"), "client entered", lambda event: _client(event.peer)),
    PeerChanged: (_always("debug"), "client changed", lambda event: _client(event.peer)),
    PeerSuspected: (
        _always("warning"),
        "client suspected",
        lambda event: _who(event.peer),
    ),
    PeerLeft: (
        _always("info"),
        "client left",
        lambda event: {**_who(event.peer), "reason": event.reason.name.lower()},
    ),
    ServerEntered: (_always("info"), "server entered", lambda event: _member(event.member)),
    ServerLeft: (
        _of_loss,
        "server left",
        lambda event: {**_member(event.member), "reason": event.reason.name.lower()},
    ),
    JoinFailing: (
        _always("warning"),
        "waiting for a server to join",
        lambda event: {"address": str(event.address), "why": event.why},
    ),
    RegistryFailing: (
        _always("warning"),
        "the registry does not answer",
        lambda event: {"why": event.why},
    ),
    StateChanged: (_always("info"), "state changed", lambda event: {"state": event.state.value}),
    UserMessage: (
        _always("debug"),
        "message of the application",
        lambda event: {"sender": Id(event.sender), "command": event.command},
    ),
}
