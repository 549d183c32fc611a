"""The cluster's view: the servers that all have to acknowledge, numbered so that views compare."""

from collections.abc import Collection
from dataclasses import replace

from sphtp.core.control.fields import MAX_VIEW
from sphtp.core.control.records import ClusterView, Member
from sphtp.core.control.server_messages import ServerHeartbeat

Incarnations = frozenset[tuple[int, int]]


def current_view(heartbeats: Collection[ServerHeartbeat]) -> ClusterView:
    """Return a client's view: the highest number among living servers; the union when several tie.

    What a server tells about itself counts more than what others tell about it.
    """
    top = 0
    for heartbeat in heartbeats:
        top = max(top, heartbeat.view.number)
    members: dict[int, Member] = {}
    for heartbeat in heartbeats:
        if heartbeat.view.number == top:
            for member in heartbeat.view.members:
                members[member.id] = member
    for heartbeat in heartbeats:
        if heartbeat.member.id in members:
            members[heartbeat.member.id] = heartbeat.member
    return ClusterView(top, tuple(map(members.__getitem__, sorted(members))))


class ViewKeeper:
    """A server's view: itself and the servers it hears.

    The number rises when the members change, and is adopted from servers that see the same
    members. A server that sees others is contradicted once with a higher number, so two servers
    that never agree do not drive each other up for ever.
    """

    __slots__ = ("_contradicted", "_view")

    def __init__(self, own: Member) -> None:
        self._view = ClusterView(1, (own,))
        self._contradicted: dict[int, Incarnations] = {}

    @property
    def view(self) -> ClusterView:
        """The view as it stands."""
        return self._view

    def update(self, own: Member, heartbeats: Collection[ServerHeartbeat]) -> bool:
        """Look at all members again; tell whether anything changed."""
        members = {own.id: own, **{h.member.id: h.member for h in heartbeats}}
        view = replace(self._view, members=tuple(members[number] for number in sorted(members)))
        if _incarnations(view) != _incarnations(self._view):
            top = max((h.view.number for h in heartbeats), default=0)
            view = replace(view, number=_next(max(view.number, top)))
            self._contradicted.clear()
        for heartbeat in heartbeats:
            view = self._compare(view, heartbeat)
        changed = view != self._view
        self._view = view
        return changed

    def _compare(self, view: ClusterView, heartbeat: ServerHeartbeat) -> ClusterView:
        theirs = _incarnations(heartbeat.view)
        if theirs == _incarnations(view):
            return replace(view, number=max(view.number, heartbeat.view.number))
        number = heartbeat.member.id
        if heartbeat.view.number < view.number or self._contradicted.get(number) == theirs:
            return view
        self._contradicted[number] = theirs
        return replace(view, number=_next(heartbeat.view.number))


def _incarnations(view: ClusterView) -> Incarnations:
    return frozenset((member.id, member.nonce) for member in view.members)


def _next(number: int) -> int:
    return min(number + 1, MAX_VIEW)
