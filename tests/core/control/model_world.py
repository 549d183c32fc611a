"""The nodes of the model: real clients and servers, each driven by a list of inputs.

A node is its name, the number of its start, and the inputs since then. The same inputs make the
same machine: ids, nonces and pauses come from counters, and time is a number of ticks. A tick is
one heartbeat. A silent node expires after three, and an announcement after two.

``Node.print`` returns the state of a machine: all attributes but those on which the ownership of an
id does not depend. So two machines with one print go on alike. The explorer checks that, too.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_messages import Heartbeat
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.outputs import BusAudience
from sphtp.core.control.records import Candidate, ClusterView, Holder, Member, PeerRecord
from sphtp.core.control.registry import Registry
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_messages import IdAck, IdNack, ServerHeartbeat
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import Command
from sphtp.core.timers import TimerQueue
from sphtp.testing.cluster import server_address

WANTED: Final = 7
"""The id that both clients want."""
CLIENTS: Final = "XY"
EXPIRY: Final = 3
TIMERS: Final = ControlTimers(heartbeat=1, jitter=0, expiry=EXPIRY, announce_deadline=2, backoff=1)

BELIEVERS: Final = frozenset((ClientState.ESTABLISHED, ClientState.SUSPENDED, ClientState.RESUMING))
"""The states in which a client believes that it owns its id."""

_DECIDING: Final = frozenset(
    (
        Command.HEARTBEAT,
        Command.ANNOUNCE,
        Command.ACK,
        Command.NACK,
        Command.LEAVE,
        Command.REGISTERED,
        Command.RELEASED,
        Command.SNAPSHOT,
        Command.SNAPSHOT_REQUEST,
    )
)
"""The commands on which the ownership of an id depends. The model loses all others."""

_START_OF_TIME: Final = 1e9
"""Every time is larger, and no period is: so they can be told apart in a machine's attributes."""


class Input(Enum):
    """The inputs of a node beside messages."""

    TICK = "one heartbeat of time passes"
    CONNECTED = "a connection comes up"
    LEAVE = "the application gives the id up"
    COMPACT = "the store forgets earlier changes"


Given = Input | bytes


class Sent(NamedTuple):
    """A message on its way: the bytes that a node sent."""

    target: str
    data: bytes


def describe_input(given: Given) -> str:
    """Return the words for an input."""
    if isinstance(given, Input):
        return given.value
    reader = MessageReader(ControlCounters(), for_client=False)
    message: Any = reader.take(given)
    match message:
        case None:
            return "unreadable"
        case ServerHeartbeat():
            members = [f"{each.id} {each.state.name.lower()}" for each in message.view.members]
            return f"heartbeat {message.member.id}, view {message.view.number}: {members}"
        case IdAck():
            return f"ACK {[tuple(it) for it in message.holders]} from {message.sender}"
        case IdNack():
            holder = message.id, message.nonce
            return f"NACK {message.reason.name} {holder} from {message.sender}"
    named = getattr(message, "records", getattr(message, "gone", (message,)))
    holders = [(it.id, it.nonce) for it in named if hasattr(it, "nonce")]
    return f"{type(message).__name__} {holders}"


class Counting:
    """Entropy that counts. A pause is as long as it may be."""

    def __init__(self, first: int) -> None:
        self.next = first

    def getrandbits(self, _: int, /) -> int:
        self.next += 64
        return self.next

    def random(self) -> float:
        return self.getrandbits(32) / (1 << 32)

    def uniform(self, _: float, b: float) -> float:
        return b


class Wishes:
    """The ids that a client draws: one some times, and then ids that no other client draws."""

    def __init__(self, times: int, own: int) -> None:
        self.next = -1
        self._times = times
        self._own = own

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.next += 1
        return WANTED if self.next < self._times else self._own + 4 * self.next


@dataclass(frozen=True)
class World:
    """The servers, and the wishes of the clients."""

    servers: str
    late: str
    """The servers that are not there at first; each may join."""
    lower: str
    """The client with the lower nonce, which keeps its id if a conflict was not prevented."""
    wishes: int
    """The times that each client draws the same id before it draws one of its own."""
    foreign_answers: bool
    """True if an answer with the nonce of one client reaches the other client, too."""

    def mark(self, client: str) -> int:
        """Return the remainder by 64 of all nonces of a client."""
        return 1 if client == self.lower else 2

    def is_for(self, target: str, data: bytes) -> bool:
        """Return False for an answer to the other client."""
        if target not in CLIENTS or self.foreign_answers:
            return True
        nonces = _answered(data)
        return not nonces or any(nonce % 64 == self.mark(target) for nonce in nonces)


class Node:
    """One real machine, from its start on."""

    def __init__(self, name: str, start: int, world: World) -> None:
        self.name = name
        self.now = _START_OF_TIME
        self._world = world
        self._servers = (world.servers + world.late).replace(name, "")
        is_late = name in world.late
        known = (world.servers + world.late * is_late).replace(name, "")
        self.machine: Any
        if name in CLIENTS:
            self.machine = _client(name, known, world)
        else:
            is_founder = start == 0 and not is_late
            self.machine = self.make(start, known, is_founder=is_founder)
        self._sent: list[Sent] = []
        self.begin()

    def make(self, start: int, known: str, *, is_founder: bool) -> Any:
        """Return the machine of a node that is no client."""
        return make_server(self.name, start, known, is_founder=is_founder)

    def begin(self) -> None:
        """Start the machine."""
        self.machine.handle_start(self.now)
        self._run_timers()

    def take(self, given: Given) -> None:
        """Give it one input."""
        if isinstance(given, bytes):
            if self._listens(given):
                self.machine.handle_message(self.now, given)
        elif given is Input.TICK:
            self.now += 1
        elif given is Input.CONNECTED:
            self.machine.handle_connected(self.now)
        else:
            self.machine.leave(self.now)
        self._run_timers()

    def drain(self) -> list[Sent]:
        """Return what it sends that decides anything."""
        sent, self._sent = self._sent, []
        return sent

    def print(self) -> Hashable:
        """Return all that its future depends on."""
        return self.name, StatePrint(self.now).of(self.machine)

    def _listens(self, data: bytes) -> bool:
        if self.name not in CLIENTS:
            return True
        # The model says nothing about shards: no batch of its servers has over 16 acknowledgements.
        return decode_message_untrusted(data).simulation in (0, self.machine.id)

    def _run_timers(self) -> None:
        self._collect()
        while (due := self.machine.poll_timeout()) is not None and due <= self.now:
            self.machine.handle_timeout(self.now)
            self._collect()

    def _collect(self) -> None:
        """Take all outputs, as a driver does after each input; keep the messages that decide."""
        while self.machine.poll_bus() is not None:
            pass
        while self.machine.poll_event() is not None:
            pass
        while (message := self.machine.poll_transmit()) is not None:
            if self.name in CLIENTS:
                data, targets = message, self._servers
            elif message.audience is BusAudience.SERVERS:
                data, targets = message.data, self._servers
            else:
                data, targets = message.data, CLIENTS
            if (deciding := _without_time(self.name, data)) is not None:
                reached = [each for each in targets if self._world.is_for(each, deciding)]
                self._sent += [Sent(target, deciding) for target in reached]


def _client(name: str, servers: str, world: World) -> ClientMachine:
    return ClientMachine(
        Counting(0),
        TIMERS,
        secrets=Counting(world.mark(name)),
        servers=[server_address(ord(server) - ord("A")) for server in servers],
        candidates=[Candidate("127.0.0.1", 5000)],
        ids=Wishes(world.wishes, 101 + 2 * CLIENTS.index(name)),
    )


def make_server(
    name: str, start: int, known: str, *, is_founder: bool, registry: Registry | None = None
) -> ServerMachine:
    """Return the machine of a server that joins those that it knows."""
    number = ord(name) - ord("A")
    return ServerMachine(
        Counting(1000 * (1 + number) + 64 * start),
        TIMERS,
        secrets=Counting(8 * number + start),
        address=server_address(number),
        join=[server_address(ord(other) - ord("A")) for other in known],
        new_cluster=is_founder,
        registry=registry,
        limits=ServerLimits(lookups_per_second=1_000_000, announces_per_second=1_000_000),
    )


@cache
def _answered(data: bytes) -> tuple[int, ...]:
    """Return the nonces that an answer echoes; none if it is no answer."""
    answer: Any = MessageReader(ControlCounters(), for_client=True).take(data)
    if isinstance(answer, IdAck):
        return tuple(holder.nonce for holder in answer.holders)
    return (answer.nonce,) if isinstance(answer, IdNack) else ()


@cache
def _without_time(sender: str, data: bytes) -> bytes | None:
    """Return a message without the cluster's time; None if nothing depends on the message."""
    command = decode_message_untrusted(data).command
    if command not in _DECIDING:
        return None
    if command != Command.HEARTBEAT:
        return data
    message: Any = MessageReader(ControlCounters(), for_client=False).take(data)
    if isinstance(message, ServerHeartbeat):
        return replace(message, stamp=None, request=None).encode()
    assert isinstance(message, Heartbeat), sender
    return replace(message, request=None).encode()


_IRRELEVANT: Final = frozenset(
    (
        # what is handed in, or counts
        *("_timers", "_entropy", "_runner", "counters", "_counters", "_now", "_events"),
        # the cluster's time, which no message here carries
        *("clock", "_clock"),
        # the pauses between batches, which are short as long as there are few clients
        *("_rested_at", "_batch_from", "_times_from", "_lists_from", "_group_lists_from"),
        *("_announces", "_lookups", "_data_rates"),
        # lists of peers, which the model loses, and requests for them
        *("roster", "_lists", "_watched_at", "_backoff", "_pending_lookups", "_ghosts_until"),
        *("needs_lists", "_sender", "_groups", "_interest", "interest"),
        # what is made of other attributes, and outputs that were taken
        *(
            "_prints",
            "_dialler",
            "_reader",
            "heartbeats",
            "holders",
            "_proofs",
            "_senders",
            "_queue",
        ),
    )
)
"""The attributes on which the ownership of an id does not depend."""


_TIMES: Final = "_due"


class StatePrint:
    """The value of a machine at one time. Times in it are relative to that time."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._seen = set[int]()

    def of(self, it: Any) -> Hashable:
        if it is None or isinstance(it, int | str | bytes | Enum):
            return it
        if isinstance(it, float):
            return max(it - self._now, -EXPIRY) if it >= _START_OF_TIME else it
        if isinstance(it, Mapping):
            return frozenset((key, self.of(value)) for key, value in it.items())
        if isinstance(it, set | frozenset):
            return frozenset(map(self.of, it))
        if isinstance(it, ServerHeartbeat):
            return it.member, it.view  # Its digest counts when it arrives only.
        if isinstance(it, Member | ClusterView | PeerRecord | Holder):
            return it
        if isinstance(it, tuple | list | deque):
            return tuple(map(self.of, it))
        if isinstance(it, TimerQueue):
            times: Mapping[Any, tuple[float, int, Any]] = getattr(it, _TIMES)
            return frozenset((key, self.of(time)) for key, (time, _, _) in times.items())
        if callable(it) or id(it) in self._seen:
            return None
        self._seen.add(id(it))
        return type(it).__name__, *(self.of(getattr(it, name, None)) for name in _attributes(it))


@cache
def _slots(classes: tuple[type, ...]) -> tuple[str, ...]:
    return tuple(name for each in classes for name in getattr(each, "__slots__", ()))


def _attributes(it: Any) -> list[str]:
    names = {*_slots(type(it).__mro__), *getattr(it, "__dict__", ())}
    return sorted(names - _IRRELEVANT)
