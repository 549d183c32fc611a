"""What a server does with what other servers say."""

from collections.abc import Callable
from typing import Any, Protocol

from sphtp.core.control.cluster import Cluster
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.member_messages import Registered, Released, Snapshot, SnapshotRequest
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.replication import Replication
from sphtp.core.control.server_messages import ServerHeartbeat, ServerLeave
from sphtp.core.control.server_table import ServerSignal
from sphtp.core.control.vocabulary import MemberState

Handler = Callable[[float, Any], None]


class Server(Protocol):
    """Runs the table."""

    def signal(self, now: float, event: ServerSignal, *subject: object) -> None:
        """Take an event, with the message that it came by."""
        ...


class Members:
    """Tells the view, the lists and the table what a server's message means for each."""

    def __init__(
        self,
        cluster: Cluster,
        replication: Replication,
        outbox: Outbox,
        server: Server,
        counters: Counters,
    ) -> None:
        self._cluster = cluster
        self._replication = replication
        self._outbox = outbox
        self._server = server
        self._counters = counters

    def handlers(self) -> dict[type, Handler]:
        """Return what is done with each sort of message."""
        return {
            ServerHeartbeat: self._on_heartbeat,
            ServerLeave: self._on_leave,
            Registered: self._from_member(self._replication.on_registered),
            Released: self._from_member(self._replication.on_released),
            SnapshotRequest: self._from_member(self._on_snapshot_request),
            Snapshot: self._from_member(self._on_snapshot),
        }

    def _on_heartbeat(self, now: float, message: ServerHeartbeat) -> None:
        hearing = self._cluster.hear(now, message)
        self._outbox.sender = self._cluster.own.id
        if hearing is None:
            return
        if hearing.left is not None:
            self._replication.lose(now, hearing.left.id)
        if message.roster is not None:
            self._replication.compare(now, message.member.id, message.roster)
        if message.member.state is MemberState.ACTIVE:
            self._server.signal(now, ServerSignal.ACTIVE_HEARD, message)

    def _on_leave(self, now: float, message: ServerLeave) -> None:
        if self._cluster.leave(message.sender, message.nonce):
            self._replication.lose(now, message.sender)

    def _on_snapshot_request(self, now: float, message: SnapshotRequest) -> None:
        if message.to == self._cluster.own.id:
            self._server.signal(now, ServerSignal.SNAPSHOT_REQUESTED, message)

    def _on_snapshot(self, now: float, message: Snapshot) -> None:
        is_ours = message.to == self._cluster.own.id
        if not is_ours or not self._replication.on_snapshot(now, message):
            return
        if message.sender in self._cluster.view.active:
            self._server.signal(now, ServerSignal.SNAPSHOT_COMPLETE)

    def _from_member(self, handler: Handler) -> Handler:
        def checked(now: float, message: Any) -> None:
            if message.sender not in self._cluster:
                self._counters.add(Count.FOREIGN)
                return
            self._cluster.refresh(now, message.sender)
            handler(now, message)

        return checked
