"""What a server knows of the other servers: who is alive, the view, and whom to be connected to."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.events import ServerEvent, ViewChanged
from sphtp.core.control.outputs import Dial, HangUp
from sphtp.core.control.records import MAX_MEMBERS, ClusterView, Member, ServerAddress
from sphtp.core.control.server_messages import ServerHeartbeat
from sphtp.core.control.server_set import (
    ExponentialBackoff,
    HeartbeatEffect,
    ServerSet,
    ViewKeeper,
)
from sphtp.core.control.vocabulary import MemberState, draw_nonce, draw_server_id
from sphtp.core.entropy import Entropy, Secrets


class Cluster:
    """The servers seen from one of them."""

    def __init__(
        self,
        entropy: Entropy,
        secrets: Secrets,
        expiry: float,
        address: ServerAddress,
        join: Sequence[ServerAddress],
        counters: ControlCounters,
        events: deque[ServerEvent],
    ) -> None:
        self._entropy = entropy
        self._secrets = secrets
        # Whoever repeats our id, and means harm, shall not make us change it all the time.
        self._backoff = ExponentialBackoff(expiry, expiry)
        self._counters = counters
        self._events = events
        self.own = self._draw(address, MemberState.JOINING)
        # Its heartbeats name this server too.
        self._servers = ServerSet(
            expiry, counters, events, standing=join, own=address, capacity=MAX_MEMBERS - 1
        )
        self.heartbeats = self._servers.heartbeats
        """The last heartbeat of each other server that is heard, as it is at any time."""
        self._keeper = ViewKeeper(self.own)

    @property
    def view(self) -> ClusterView:
        """This server and those that it hears."""
        return self._keeper.view

    def start(self) -> None:
        """Connect to the servers that are always wanted."""
        self._servers.connect()

    def become(self, state: MemberState) -> None:
        """Show another state to the others."""
        self.own = replace(self.own, state=state)
        self._update_view()

    def handle_heartbeat(self, now: float, heartbeat: ServerHeartbeat) -> HeartbeatEffect | None:
        """Note another server's heartbeat; None when it is of no use."""
        if heartbeat.member.id == self.own.id:
            self._resolve_clash(now, heartbeat.member)
            return None
        effect = self._servers.handle_heartbeat(now, heartbeat)
        if effect is not None:
            self._update_view()
        return effect

    def handle_leave(self, server: int, nonce: int) -> bool:
        """Drop a server that stops; tell whether it was known."""
        if not self._servers.handle_leave(server, nonce):
            return False
        self._update_view()
        return True

    def take_expired(self, now: float) -> list[int]:
        """Drop the servers that fell silent and return their ids."""
        expired = self._servers.take_expired(now)
        if expired:
            self._update_view()
        return expired

    def refresh(self, now: float, server: int) -> None:
        """Note that a server said something else than a heartbeat."""
        self._servers.refresh(now, server)

    def forgive(self, lag: float) -> None:
        """Postpone every expiry."""
        self._servers.forgive(lag)

    def next_due(self) -> float | None:
        """Return the time of the next expiry."""
        return self._servers.next_due()

    def poll_bus(self) -> Dial | HangUp | None:
        """Return the next connection to make or to undo, or None."""
        return self._servers.poll_bus()

    def _update_view(self) -> None:
        self._servers.connect()
        if self._keeper.update(self.own, self._servers.heartbeats.values()):
            self._events.append(ViewChanged(self.view))

    def _resolve_clash(self, now: float, member: Member) -> None:
        """Two servers drew one id: both draw again. Hearing oneself is no clash."""
        self._counters.add(Count.FOREIGN)
        if member.nonce == self.own.nonce or self.own.address is None:
            return
        if self._backoff.allows(now):
            self.own = self._draw(self.own.address, self.own.state)
            self._update_view()

    def _draw(self, address: ServerAddress, state: MemberState) -> Member:
        return Member(draw_server_id(self._entropy), draw_nonce(self._secrets), address, state)
