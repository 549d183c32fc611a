"""Presence of some groups only: the groups that a client watches, and the topics of servers.

A socket that subscribes gets every message, and filters by the first four bytes of the message,
before any Python runs. Servers publish presence under 0, so that a client that subscribes to 0
wakes for each peer that enters. A client that restricts its interest does not subscribe to 0, but
to topics without the presence of other groups:

- its own id and its shard, as always;
- 1, for messages to all clients that are not presence: copies of heartbeats, of departures of
  servers and of commands of the application, and acknowledgements of several clients;
- one topic for each group that it watches, for the records of the group's members.

Group topics are even, and higher than 0 and the topics of shards. No other topics are even: clients
have odd ids, and servers publish messages for servers on sockets of their own. A topic is a hash of
the group's name. If two groups have the same one of the 2^31 topics, a client that watches one of
them gets the records of both.

A server publishes under a group's topic only as long as a client watches the group. Each such
message costs the other clients one filtered message. A watch is soft state, as in IGMP: at the
first heartbeat after each quarter of an expiry, the client sends the server a ``Watch`` for each
group and for each peer that it has looked up, with the digest of its records from this server. A
server answers if its own digest differs. So the client gets a group's members within one round
trip, the next ``Watch`` restores lost records, and heartbeats need not contain the digests of all
groups.
"""

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Final

from sphtp.core.control.lists import Fingerprints
from sphtp.core.control.outputs import Subscribe, Unsubscribe, replace_topics
from sphtp.core.control.records import MAX_LOOKED_UP, Digest, PeerRecord, check_groups
from sphtp.core.control.vocabulary import EVERYBODY, FIRST_GROUP_TOPIC, WITHOUT_PRESENCE

NOTHING: Final = Digest(0, 0)
"""The digest of an empty list of records."""

_REMEMBERED: Final = 4096
"""The most groups in the cache of topics."""


@lru_cache(maxsize=_REMEMBERED)
def group_topic(group: str) -> int:
    """Return the simulation id under which the members of a group are published."""
    number = int.from_bytes(sha256(group.encode()).digest()[:4], "little")
    return max(number & ~1, FIRST_GROUP_TOPIC)


def is_group_topic(simulation: int) -> bool:
    """Return True if ``simulation`` can be the topic of a group."""
    return simulation >= FIRST_GROUP_TOPIC and simulation & 1 == 0


def topics_of(record: PeerRecord) -> frozenset[int]:
    """Return the topics of the groups that a client is in."""
    return frozenset(map(group_topic, record.groups))


class Interest:
    """The peers that a client follows: all, or members of groups and peers that it looked up."""

    def __init__(self, groups: Iterable[str] | None = None) -> None:
        self.topics: frozenset[int] = frozenset()
        """The simulation ids to which this client subscribes, besides its id and its shard."""
        self.is_restricted = False
        """True if the client does not follow all peers."""
        self._groups: frozenset[int] | None = None
        self._looked_up: dict[int, None] = {}
        self._queue: deque[Subscribe | Unsubscribe] = deque()
        self.set(groups)

    def set(self, groups: Iterable[str] | None) -> None:
        """Follow the members of these groups only; None stands for all peers.

        Subscribe to new topics, then unsubscribe from old ones. Raises ``SettingsError`` if a group
        is wrong, or if there are too many.
        """
        watched, topics = None, frozenset((EVERYBODY,))
        if groups is not None:
            watched = frozenset(map(group_topic, check_groups(groups)))
            topics = watched | {WITHOUT_PRESENCE}
        self._groups = watched
        self._queue += replace_topics(self.topics, topics)
        self.topics = topics
        self.is_restricted = groups is not None

    def look_up(self, peer: int) -> bool:
        """Follow a peer, whatever its groups.

        Return True if the interest in the oldest such peer ends, and the client is restricted.
        """
        self._looked_up.pop(peer, None)
        self._looked_up[peer] = None
        if len(self._looked_up) <= MAX_LOOKED_UP:
            return False
        del self._looked_up[next(iter(self._looked_up))]
        return self.is_restricted

    def forget(self, peer: int) -> None:
        """End the interest in a peer that was looked up, and has left or is unknown."""
        self._looked_up.pop(peer, None)

    def includes(self, group: str) -> bool:
        """Return True if the client follows the members of this group."""
        return self._groups is None or group_topic(group) in self._groups

    def covers(self, record: PeerRecord) -> bool:
        """Return True if the client follows this peer."""
        if self._groups is None or record.id in self._looked_up:
            return True
        return not self._groups.isdisjoint(map(group_topic, record.groups))

    def watches(self, held: Fingerprints) -> tuple[tuple[int, Digest], ...]:
        """Return the watched topics and the peers that were looked up, each with a digest.

        ``held`` are the records from one server. Each digest is that of the records among them that
        belong to the topic or peer.
        """
        digests = dict.fromkeys((WITHOUT_PRESENCE, *sorted(self._groups or ())), NOTHING)
        for record, mark in held.marked():
            for each in topics_of(record) & digests.keys():
                count, mix = digests[each].count, digests[each].mix
                digests[each] = Digest(count + 1, mix ^ mark)
        for peer in self._looked_up:
            digests[peer] = held.digest_of(peer)
        return tuple(digests.items())

    def poll_bus(self) -> Subscribe | Unsubscribe | None:
        """Return the next change of subscriptions, or None."""
        return self._queue.popleft() if self._queue else None


class GroupIndex:
    """The registered members of each group, by topic."""

    def __init__(self) -> None:
        self._members: dict[int, Fingerprints] = {}
        self._topics: dict[int, frozenset[int]] = {}

    def put(self, record: PeerRecord) -> frozenset[int]:
        """Add or replace a client. Return the topics of its present and former groups."""
        before, now = self._topics.pop(record.id, frozenset()), topics_of(record)
        for each in before - now:
            self._leave(each, record.id)
        for each in now:
            self._members.setdefault(each, Fingerprints()).put(record)
        if now:
            self._topics[record.id] = now
        return before | now

    def drop(self, client: int) -> frozenset[int]:
        """Remove a client. Return the topics of the groups that it was in."""
        topics = self._topics.pop(client, frozenset())
        for each in topics:
            self._leave(each, client)
        return topics

    def digest(self, group: int) -> Digest:
        """Return the digest of the members of a group."""
        members = self._members.get(group)
        return NOTHING if members is None else members.digest

    def members(self, group: int) -> list[PeerRecord]:
        """Return the members of a group."""
        members = self._members.get(group)
        return [] if members is None else [record for record, _ in members.marked()]

    def _leave(self, group: int, client: int) -> None:
        members = self._members[group]
        members.drop(client)
        if not members.ids:
            del self._members[group]
