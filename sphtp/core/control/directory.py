"""What a client knows of servers and peers, and which servers acknowledged its id."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.dialling import Dialler
from sphtp.core.control.events import ClientEvent, PeerUnknown, ServerEntered, ServerLeft
from sphtp.core.control.fields import Holder
from sphtp.core.control.ids import EVERYBODY, NO_NONCE
from sphtp.core.control.neighbours import Neighbours
from sphtp.core.control.outputs import Dial, HangUp
from sphtp.core.control.parts import Assembly
from sphtp.core.control.patience import Patience
from sphtp.core.control.records import ClusterView, Member, PeerRecord, ServerAddress
from sphtp.core.control.roster import CAPACITY, Roster
from sphtp.core.control.searches import Searches
from sphtp.core.control.server_messages import Peers, PeersGone, ServerHeartbeat, ServerLeave
from sphtp.core.control.timers import ControlTimers
from sphtp.core.control.view import current_view
from sphtp.core.control.vocabulary import Reason
from sphtp.core.timers import earliest


class Directory:
    """Servers by their heartbeats, peers by the servers that vouch for them."""

    def __init__(
        self,
        timers: ControlTimers,
        servers: Sequence[ServerAddress],
        counters: Counters,
        tell: Callable[[ClientEvent], None],
        max_peers: int = CAPACITY,
    ) -> None:
        self.view = ClusterView()
        self.roster = Roster(timers.expiry, counters, max_peers)
        self._timers = timers
        self._counters = counters
        self._tell = tell
        self._neighbours = Neighbours(timers.expiry)
        self._dialler = Dialler(servers)
        self._lists: dict[int, Assembly[PeerRecord]] = {}
        self._patience: dict[int, Patience] = {}
        self._acknowledged: set[int] = set()
        self._searches = Searches()
        self._ghosts_until: float | None = None
        self.needs_lists = False
        """Some server has been asked for its list, and does not agree with ours yet."""

    @property
    def servers(self) -> Mapping[int, Member]:
        """The living servers by id."""
        return self._neighbours.members

    def is_heard(self, server: int) -> bool:
        """Tell whether a server is heard."""
        return server in self._neighbours

    @property
    def is_empty(self) -> bool:
        """No server is heard."""
        return len(self._neighbours) == 0

    @property
    def is_ready(self) -> bool:
        """Some server of the view registers new ids."""
        return bool(self.view.active)

    @property
    def is_unanimous(self) -> bool:
        """Every server that has to acknowledged our id; joining ones do when no other is there."""
        needed = self.view.active or {member.id for member in self.view.members}
        return bool(needed) and needed <= self._acknowledged

    def start(self) -> None:
        """Connect to the servers that are always wanted."""
        self._dialler.want(())

    def is_for(self, own: Holder, server: int, told: Holder) -> bool:
        """Tell whether an answer of a server of the view is for us: plain SphTP knows no nonces."""
        if told.id != own.id or not self._knows(server):
            return False
        if told.nonce == own.nonce != NO_NONCE:
            return True
        member = self.servers.get(server)
        return member is not None and member.nonce == told.nonce == NO_NONCE

    def acknowledge(self, server: int) -> None:
        """Note that a server acknowledged our id."""
        self._acknowledged.add(server)

    def unacknowledge(self, server: int) -> None:
        """Note that a server does not know our id any more."""
        self._acknowledged.discard(server)

    def forget_answers(self) -> None:
        """Take all acknowledgements as void."""
        self._acknowledged.clear()

    def refresh(self, now: float, server: int) -> None:
        """Note that a server said something."""
        self._neighbours.refresh(now, server)

    def hear_heartbeat(self, now: float, heartbeat: ServerHeartbeat) -> None:
        """Note a server's heartbeat."""
        if self.is_empty:
            self.keep_peers(now)
        hearing = self._neighbours.hear(now, heartbeat)
        if hearing is None:
            self._counters.add(Count.TOO_MANY)
            return
        if hearing.left is not None:
            self._drop([hearing.left], Reason.EXPIRED)
        if hearing.entered is not None:
            self._tell(ServerEntered(hearing.entered))
        if not hearing.is_repeated:
            self._look_again()

    def wants_list(self, now: float, heartbeat: ServerHeartbeat) -> bool:
        """Tell whether to ask a server for its list of peers, because it differs from ours."""
        server, told = heartbeat.member.id, heartbeat.roster
        if told is None or server not in self._neighbours:
            return False
        if told == self.roster.digest(server):
            self._patience.pop(server, None)
            self.needs_lists = bool(self._patience)
            return False
        self.needs_lists = True
        patience = self._patience.get(server)
        if patience is None:
            patience = Patience(self._timers.heartbeat / 2, self._timers.expiry)
            self._patience[server] = patience
        return patience.allows(now)

    def hear_goodbye(self, message: ServerLeave) -> None:
        """Drop a server that stops."""
        member = self._neighbours.leave(message.sender, message.nonce)
        if member is not None:
            self._drop([member], Reason.LEFT)
            self._look_again()

    def search(self, peer: int) -> None:
        """Note that all living servers are asked for a peer."""
        self._searches.begin(peer, self._neighbours.heartbeats)

    def search_again(self) -> tuple[int, ...]:
        """Begin the searches that are open anew, and ask for lists; return the peers to ask for."""
        self.needs_lists = True
        peers = self._searches.peers
        for peer in peers:
            self.search(peer)
        return peers

    def hear_peers(self, now: float, message: Peers) -> None:
        """Take peers from a server: some, or a part of the whole list."""
        if message.sender not in self._neighbours:
            self._counters.add(Count.FOREIGN)
            return
        for record in message.records:
            self._searches.found(record.id)
        if message.part is None:
            for record in message.records:
                self._tell_all(self.roster.enter(now, message.sender, record))
            return
        assembly = self._lists.setdefault(message.sender, Assembly())
        whole = assembly.add(message.part, message.records)
        if whole is not None:
            self._tell_all(self.roster.replace(now, message.sender, whole))

    def hear_gone(self, now: float, message: PeersGone) -> None:
        """Take from a server who is no longer registered."""
        if message.sender not in self._neighbours:
            self._counters.add(Count.FOREIGN)
            return
        for gone in message.gone:
            self._tell_all(self.roster.leave(now, message.sender, gone))
            is_answer = gone.reason is Reason.UNKNOWN and message.to != EVERYBODY
            if is_answer and self._searches.deny(gone.id, message.sender):
                self._tell(PeerUnknown(gone.id))

    def handle_timeout(self, now: float) -> None:
        """Drop servers that fell silent, and peers that nobody vouches for after a resumption."""
        expired = self._neighbours.take_expired(now)
        if expired:
            self._drop(expired, Reason.EXPIRED)
            self._look_again()
        if self._ghosts_until is not None and self._ghosts_until <= now:
            self._ghosts_until = None
            self._drop_ghosts()

    def keep_peers(self, now: float) -> None:
        """Give servers one expiry to vouch again for the peers of servers that are gone."""
        self._ghosts_until = now + self._timers.expiry

    def forgive(self, lag: float) -> None:
        """Postpone every expiry."""
        self._neighbours.forgive(lag)
        if self._ghosts_until is not None:
            self._ghosts_until += lag

    def next_due(self) -> float | None:
        """Return the time of the next expiry."""
        return earliest(self._neighbours.next_due(), self._ghosts_until)

    def poll_bus(self) -> Dial | HangUp | None:
        """Return the next connection to make or to undo, or None."""
        return self._dialler.poll()

    def _knows(self, server: int) -> bool:
        return server in self._neighbours or any(m.id == server for m in self.view.members)

    def _drop(self, members: Iterable[Member], reason: Reason) -> None:
        for member in members:
            self._acknowledged.discard(member.id)
            self._lists.pop(member.id, None)
            self._patience.pop(member.id, None)
            self._searches.lose(member.id)
            self._tell(ServerLeft(member, reason))
        if self.is_empty:
            self._ghosts_until = None
        elif self._ghosts_until is None:
            self._drop_ghosts()

    def _drop_ghosts(self) -> None:
        for server in self.roster.servers:
            if server not in self._neighbours:
                self._tell_all(self.roster.drop_server(server))

    def _look_again(self) -> None:
        self.view = current_view(self._neighbours.heartbeats.values())
        if not self.is_empty:  # else the last known addresses are the best ones to try
            self._dialler.want(self._neighbours.addresses())

    def _tell_all(self, events: Iterable[ClientEvent]) -> None:
        for event in events:
            self._tell(event)
