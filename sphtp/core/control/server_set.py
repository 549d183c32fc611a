"""The live servers: their expiry, their view, and the connections to them.

Clients and servers both keep a set of the servers whose heartbeats arrive. Both connect to the
servers that these heartbeats name, within the limits of ``Dialler``. Both have a view, the servers
that have to agree on ids. A client takes the view with the highest number. A server builds its own,
or takes that of a shared registry.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import NamedTuple

from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.outputs import (
    ClientEvent,
    Dial,
    HangUp,
    ServerEntered,
    ServerEvent,
    ServerLeft,
    ViewChanged,
)
from sphtp.core.control.records import MAX_MEMBERS, MAX_VIEW, ClusterView, Member, ServerAddress
from sphtp.core.control.server_messages import ServerHeartbeat
from sphtp.core.control.vocabulary import MemberState, Reason, draw_nonce, draw_server_id
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.timers import Liveness, earliest
from sphtp.core.token_bucket import TokenBucket


class ExponentialBackoff:
    """A limit of requests: the first is allowed at once, later ones after waits that double.

    The first wait is ``shortest`` seconds, the last ones are ``longest`` seconds.
    """

    __slots__ = ("_longest", "_not_before", "_rest")

    def __init__(self, shortest: float, longest: float) -> None:
        self._rest = shortest
        self._longest = longest
        self._not_before = float("-inf")

    def allows(self, now: float) -> bool:
        """Return True if a request may leave now; then the next wait begins."""
        if now < self._not_before:
            return False
        self._not_before = now + self._rest
        self._rest = min(2 * self._rest, self._longest)
        return True


Incarnations = frozenset[tuple[int, int]]


def current_view(heartbeats: Collection[ServerHeartbeat]) -> ClusterView:
    """Return a client's view: the view with the highest number among those of live servers.

    If several views have this number, return their union. The state and address of a live server
    are those in its own heartbeat.
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
    """A server's view: itself and the live other servers, or the view that was ``set``.

    The number rises when the members change. If another server has the same members and a higher
    number, this server adopts that number. If another server has other members and a number at
    least as high, this server raises its own number above it, so that clients take this view. It
    does so once for the same other members: two servers that never agree must not raise their
    numbers for ever.
    """

    __slots__ = ("_contradicted", "_is_set", "_view")

    def __init__(self, own: Member) -> None:
        self._view = ClusterView(1, (own,))
        self._is_set = False
        self._contradicted: dict[int, Incarnations] = {}

    @property
    def view(self) -> ClusterView:
        """The present view."""
        return self._view

    def set(self, view: ClusterView) -> bool:
        """Replace the view; ``update`` has no effect from then on. Return True if it changed."""
        changed = view != self._view
        self._view, self._is_set = view, True
        return changed

    def update(self, own: Member, heartbeats: Collection[ServerHeartbeat]) -> bool:
        """Build the view from the heartbeats. Return True if it changed."""
        if self._is_set:
            return False
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
    # At a change each microsecond, a cluster gets there in 292,000 years. A forged heartbeat can
    # set this number. Then the views of all servers have the same number, and clients take their
    # union. So no client is established with fewer acknowledgements than it needs.
    return min(number + 1, MAX_VIEW)


_DIALS_PER_SECOND = 1.0
"""The dials per second of servers that others name, after a burst of ``MAX_MEMBERS``."""


class Dialler:
    """The connections to the wanted addresses, as Dial and HangUp commands.

    ``standing`` addresses are always dialled. Heartbeats name further ones: each up to 64, and the
    next heartbeat up to 64 others. By forged heartbeats, one server could make all programs of the
    cluster dial ever more addresses. So at most ``MAX_MEMBERS`` further addresses are wanted, and
    new ones are dialled at a limited rate, in the order in which they were wanted.
    """

    __slots__ = ("_dialled", "_own", "_queue", "_rate", "_standing", "_waiting", "due")

    def __init__(self, standing: Iterable[ServerAddress], own: ServerAddress | None = None) -> None:
        self._own = own
        self._standing = dict.fromkeys(standing)
        self._dialled: dict[ServerAddress, None] = {}
        self._waiting: dict[ServerAddress, None] = {}
        self._rate = TokenBucket(_DIALS_PER_SECOND, MAX_MEMBERS)
        self.due: float | None = None
        """The time at which ``dial`` has an effect; None if no address waits."""
        self._queue: deque[Dial | HangUp] = deque()

    def set_standing(self, addresses: Iterable[ServerAddress]) -> None:
        """Replace the standing addresses."""
        self._standing = dict.fromkeys(addresses)

    def want(self, addresses: Iterable[ServerAddress | None]) -> None:
        """Replace the wanted addresses. Hang up those no longer wanted.

        Dial new standing addresses at once; ``dial`` dials the others.
        """
        wanted = self._standing.copy()
        most = len(wanted) + MAX_MEMBERS
        for address in addresses:
            if address is not None and address != self._own and len(wanted) < most:
                wanted[address] = None
        for address in tuple(self._dialled):
            if address not in wanted:
                del self._dialled[address]
                self._queue.append(HangUp(address))
        for address in tuple(self._waiting):
            if address not in wanted:
                del self._waiting[address]
        for address in wanted:
            if address in self._dialled or address == self._own:
                continue
            if address in self._standing:
                self._dial(address)
            else:
                self._waiting.setdefault(address)
        if not self._waiting:
            self.due = None
        elif self.due is None:
            self.due = float("-inf")

    def dial(self, now: float) -> None:
        """Dial the waiting addresses, as many as the rate allows."""
        for address in tuple(self._waiting):
            if not self._rate.take(now):
                break
            del self._waiting[address]
            self._dial(address)
        self.due = now + 1 / _DIALS_PER_SECOND if self._waiting else None

    def _dial(self, address: ServerAddress) -> None:
        self._dialled[address] = None
        self._queue.append(Dial(address))

    def poll(self) -> Dial | HangUp | None:
        """Return the next command, or None."""
        return self._queue.popleft() if self._queue else None


ServerSetEvents = deque[ClientEvent] | deque[ServerEvent]
"""The queue of a machine's events for the application."""


class HeartbeatEffect(NamedTuple):
    """The effect of a heartbeat on a ``ServerSet``."""

    left: Member | None = None
    """The server that had this id before, if another one did."""
    is_repeated: bool = False
    """True if view, state and address are those of the server's last heartbeat."""


class ServerSet:
    """The live servers, at most ``capacity``, their last heartbeats, and the connections to them.

    It always dials the ``standing`` addresses, and never its ``own``. The entry and the departure
    of a server are events.
    """

    def __init__(
        self,
        expiry: float,
        counters: ControlCounters,
        events: ServerSetEvents,
        *,
        standing: Iterable[ServerAddress] = (),
        own: ServerAddress | None = None,
        capacity: int = MAX_MEMBERS,
    ) -> None:
        self._capacity = capacity
        self._counters = counters
        self._events = events
        self._heartbeats: dict[int, ServerHeartbeat] = {}
        self.heartbeats: Mapping[int, ServerHeartbeat] = MappingProxyType(self._heartbeats)
        """The last heartbeat of each live server by its id: a read-only view."""
        self._liveness = Liveness(expiry)
        self._dialler = Dialler(standing, own)

    @property
    def members(self) -> Mapping[int, Member]:
        """The live servers by id, as their own heartbeats describe them."""
        return {number: heartbeat.member for number, heartbeat in self._heartbeats.items()}

    def handle_heartbeat(self, now: float, heartbeat: ServerHeartbeat) -> HeartbeatEffect | None:
        """Record a heartbeat and return its effect.

        If there are too many servers, drop and count the heartbeat, and return None.
        """
        number = heartbeat.member.id
        known = self._heartbeats.get(number)
        if known is None and len(self._heartbeats) >= self._capacity:
            self._counters.add(Count.TOO_MANY)
            return None
        self._heartbeats[number] = heartbeat
        self._liveness.refresh(now, number)
        if known is None:
            self._events.append(ServerEntered(heartbeat.member))
            return HeartbeatEffect()
        if known.member.nonce != heartbeat.member.nonce:
            # A different server has the id now, even if the former one has not expired yet.
            self._events.append(ServerLeft(known.member, Reason.CONFLICT))
            self._events.append(ServerEntered(heartbeat.member))
            return HeartbeatEffect(left=known.member)
        is_repeated = known.view == heartbeat.view and known.member == heartbeat.member
        return HeartbeatEffect(is_repeated=is_repeated)

    def handle_leave(self, number: int, nonce: int) -> bool:
        """Remove a server that has stopped. Return True if it was in the set."""
        known = self._heartbeats.get(number)
        if known is None or known.member.nonce != nonce:
            return False
        self._liveness.forget(number)
        del self._heartbeats[number]
        self._events.append(ServerLeft(known.member, Reason.LEFT))
        return True

    def refresh(self, now: float, number: int) -> None:
        """Restart the expiry of a server in the set that sent another message than a heartbeat."""
        if number in self._heartbeats:
            self._liveness.refresh(now, number)

    def drop_expired(self, now: float) -> list[int]:
        """Dial the addresses that are due. Remove silent servers, and return their ids."""
        if self._dialler.due is not None:
            self._dialler.dial(now)
        self._liveness.take_suspects(now)
        expired = self._liveness.take_expired(now)
        for number in expired:
            member = self._heartbeats.pop(number).member
            self._events.append(ServerLeft(member, Reason.EXPIRED))
        return expired

    def connect(self) -> None:
        """Connect to the live servers, to all servers that they name, and to the standing ones.

        The live servers come first, and then one member of each view in turn, so that a server that
        names many does not exclude the members that others name.
        """
        heartbeats = self._heartbeats.values()
        addresses = [heartbeat.member.address for heartbeat in heartbeats]
        for named in zip_longest(*(heartbeat.view.members for heartbeat in heartbeats)):
            addresses += [member.address for member in named if member is not None]
        self._dialler.want(addresses)

    def set_standing(self, addresses: Iterable[ServerAddress]) -> None:
        """Replace the addresses that are always dialled."""
        self._dialler.set_standing(addresses)
        self.connect()

    def poll_bus(self) -> Dial | HangUp | None:
        """Return the next ``Dial`` or ``HangUp``, or None."""
        return self._dialler.poll()

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        self._liveness.postpone_expiries(lag)

    def next_due(self) -> float | None:
        """Return the time of the next expiry, or of the next address to dial."""
        return earliest(self._liveness.next_due(), self._dialler.due)


class ClientServerSet(ServerSet):
    """The live servers of a client, with the view that it takes from their heartbeats."""

    view = ClusterView()
    """The view: the servers that have to agree on an id."""
    active: frozenset[int] = frozenset()
    """The servers of the view that register new ids."""

    def handle_heartbeat(self, now: float, heartbeat: ServerHeartbeat) -> HeartbeatEffect | None:
        effect = super().handle_heartbeat(now, heartbeat)
        if effect is not None and not effect.is_repeated:
            self._update_view()
        return effect

    def handle_leave(self, number: int, nonce: int) -> bool:
        is_known = super().handle_leave(number, nonce)
        if is_known:
            self._update_view()
        return is_known

    def drop_expired(self, now: float) -> list[int]:
        expired = super().drop_expired(now)
        if expired:
            self._update_view()
        return expired

    def _update_view(self) -> None:
        if self.heartbeats:  # else keep the connections to the last addresses
            self.connect()
        self.view = current_view(self.heartbeats.values())
        self.active = self.view.active


class Cluster:
    """The other servers, as seen by one server, and its own member and view."""

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
        # An attacker that repeats our id must not make us change it all the time.
        self._backoff = ExponentialBackoff(expiry, expiry)
        self._counters = counters
        self._events = events
        self.own = self._draw(address, MemberState.JOINING)
        # This server is a member, too.
        self._servers = ServerSet(
            expiry, counters, events, standing=join, own=address, capacity=MAX_MEMBERS - 1
        )
        self.heartbeats = self._servers.heartbeats
        """The last heartbeat of each other live server by its id: a read-only view."""
        self._keeper = ViewKeeper(self.own)

    @property
    def view(self) -> ClusterView:
        """The present view."""
        return self._keeper.view

    def start(self) -> None:
        """Connect to the standing servers."""
        self._servers.connect()

    def set_view(self, view: ClusterView) -> list[int]:
        """Take the view from a shared registry: heartbeats no longer change it.

        Return the ids of the servers that have left it.
        """
        gone = [member.id for member in self.view.members if member not in view.members]
        addresses = [member.address for member in view.members if member.address is not None]
        self._servers.set_standing(addresses)
        if self._keeper.set(view):
            self._events.append(ViewChanged(view))
        return [number for number in gone if number != self.own.id]

    def redraw(self) -> None:
        """Draw another id and nonce, because another program holds the id."""
        if self.own.address is not None:
            self.own = self._draw(self.own.address, self.own.state)

    def become(self, state: MemberState) -> None:
        """Set the state in this server's heartbeats."""
        self.own = replace(self.own, state=state)
        self._update_view()

    def handle_heartbeat(self, now: float, heartbeat: ServerHeartbeat) -> HeartbeatEffect | None:
        """Record another server's heartbeat and return its effect; None if it has none."""
        if heartbeat.member.id == self.own.id:
            self._resolve_clash(now, heartbeat.member)
            return None
        effect = self._servers.handle_heartbeat(now, heartbeat)
        if effect is not None:
            self._update_view()
        return effect

    def handle_leave(self, server: int, nonce: int) -> bool:
        """Remove a server that has stopped. Return True if it was in the set."""
        if not self._servers.handle_leave(server, nonce):
            return False
        self._update_view()
        return True

    def drop_expired(self, now: float) -> list[int]:
        """Remove silent servers. Return their ids."""
        expired = self._servers.drop_expired(now)
        if expired:
            self._update_view()
        return expired

    def refresh(self, now: float, server: int) -> None:
        """Restart the expiry of a server that sent another message than a heartbeat."""
        self._servers.refresh(now, server)

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        self._servers.postpone_expiries(lag)

    def next_due(self) -> float | None:
        """Return the time of the next expiry, or of the next address to dial."""
        return self._servers.next_due()

    def poll_bus(self) -> Dial | HangUp | None:
        """Return the next ``Dial`` or ``HangUp``, or None."""
        return self._servers.poll_bus()

    def _update_view(self) -> None:
        self._servers.connect()
        if self._keeper.update(self.own, self._servers.heartbeats.values()):
            self._events.append(ViewChanged(self.view))

    def _resolve_clash(self, now: float, member: Member) -> None:
        """Draw another id if a different server has this server's id. Both do so.

        A server's own heartbeat, which has returned to it, has its nonce and is no clash.
        """
        self._counters.add(Count.FOREIGN)
        if member.nonce == self.own.nonce or self.own.address is None:
            return
        if self._backoff.allows(now):
            self.own = self._draw(self.own.address, self.own.state)
            self._update_view()

    def _draw(self, address: ServerAddress, state: MemberState) -> Member:
        return Member(draw_server_id(self._entropy), draw_nonce(self._secrets), address, state)
