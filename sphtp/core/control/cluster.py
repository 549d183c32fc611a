"""What a server knows of the other servers: who is alive, the view, and whom to be connected to."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.events import ServerEntered, ServerEvent, ServerLeft, ViewChanged
from sphtp.core.control.outputs import Dial, HangUp
from sphtp.core.control.records import MAX_MEMBERS, ClusterView, Member, ServerAddress
from sphtp.core.control.server_messages import ServerHeartbeat
from sphtp.core.control.server_set import (
    Dialler,
    ExponentialBackoff,
    HeartbeatEffect,
    ServerSet,
    ViewKeeper,
)
from sphtp.core.control.vocabulary import MemberState, Reason, draw_nonce, draw_server_id
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
        tell: Callable[[ServerEvent], None],
    ) -> None:
        self._entropy = entropy
        self._secrets = secrets
        # Whoever repeats our id, and means harm, shall not make us change it all the time.
        self._backoff = ExponentialBackoff(expiry, expiry)
        self._counters = counters
        self._tell = tell
        self.own = self._draw(address, MemberState.JOINING)
        # Its heartbeats name this server too.
        self._servers = ServerSet(expiry, MAX_MEMBERS - 1)
        self._keeper = ViewKeeper(self.own)
        self._dialler = Dialler(join, own=address)

    @property
    def view(self) -> ClusterView:
        """This server and those that it hears."""
        return self._keeper.view

    @property
    def is_alone(self) -> bool:
        """No other server is heard."""
        return len(self._servers) == 0

    def __contains__(self, server: int) -> bool:
        return server in self._servers

    def start(self) -> None:
        """Connect to the servers that are always wanted."""
        self._dialler.want(())

    def become(self, state: MemberState) -> None:
        """Show another state to the others."""
        self.own = replace(self.own, state=state)
        self._update_view()

    def hear(self, now: float, heartbeat: ServerHeartbeat) -> HeartbeatEffect | None:
        """Note another server's heartbeat; None when it is of no use."""
        if heartbeat.member.id == self.own.id:
            self._resolve_clash(now, heartbeat.member)
            return None
        effect = self._servers.hear(now, heartbeat)
        if effect is None:
            self._counters.add(Count.TOO_MANY)
            return None
        if effect.left is not None:
            self._tell(ServerLeft(effect.left, Reason.EXPIRED))
        if effect.entered is not None:
            self._tell(ServerEntered(effect.entered))
        self._update_view()
        return effect

    def leave(self, server: int, nonce: int) -> bool:
        """Drop a server that stops; tell whether it was known."""
        member = self._servers.leave(server, nonce)
        if member is None:
            return False
        self._drop([member], Reason.LEFT)
        return True

    def take_expired(self, now: float) -> list[int]:
        """Drop the servers that fell silent and return their ids."""
        expired = self._servers.take_expired(now)
        if expired:
            self._drop(expired, Reason.EXPIRED)
        return [member.id for member in expired]

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
        return self._dialler.poll()

    def _drop(self, members: Iterable[Member], reason: Reason) -> None:
        for member in members:
            self._tell(ServerLeft(member, reason))
        self._update_view()

    def _update_view(self) -> None:
        self._dialler.want(self._servers.addresses())
        if self._keeper.update(self.own, self._servers.heartbeats.values()):
            self._tell(ViewChanged(self.view))

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
