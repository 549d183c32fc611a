"""A cluster in virtual time: the machines of servers and clients on a simulated bus.

The machines are those of ``sphtp.core.control``, which real servers and clients use. The bus
carries messages from publishers to subscribers like the real one. Each connection delivers in
order, after a random delay. The test sets the share of messages that are lost, cuts connections,
and suspends processes. Subscriptions filter messages at the sender, so that unsubscribed messages
cost nothing and a cluster can have thousands of clients.

There is no real network, task or clock. ``run`` jumps from event to event, and one seed gives one
trace.
"""

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.outputs import (
    BusAudience,
    BusMessage,
    Dial,
    HangUp,
    Subscribe,
    Unsubscribe,
)
from sphtp.core.control.records import Candidate, KnownPeers, Peer, ServerAddress
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.settings import ControlTimers
from sphtp.core.packing import pack
from sphtp.core.secure.signing import (
    TO_CLIENTS,
    TO_SERVERS,
    ClusterKey,
    ServerKey,
    Signer,
    Verifier,
)
from sphtp.core.secure.vouch import Voucher
from sphtp.shell.bus_dialing import BusArrival
from sphtp.shell.vouching import Vouching
from sphtp.testing.network import NeverIdleError

REDIAL: Final = 0.2
"""Seconds, besides a random delay, after which a failed or ended connection is tried again."""

ELSEWHERE: Final = Candidate("127.0.0.1", 5000)
"""The default address that a simulated client announces."""

Machine = TypeVar("Machine", ServerMachine, ClientMachine)
Admit = Callable[[Peer], bool]


def server_address(number: int) -> ServerAddress:
    """Return the address of a simulated server."""
    return ServerAddress.parse(f"tcp://127.0.0.1:{8764 + 2 * number}")


@dataclass(eq=False)
class Participant(Generic[Machine]):
    """One process of a simulated cluster, with its machine and a record of its traffic.

    A command to the machine takes effect with ``SimulatedCluster.pump``.
    """

    name: str
    machine: Machine
    trust: Vouching
    """The object that marks its messages, a server's only to clients, and checks those of others.
    """
    events: list[Any] = field(default_factory=list)
    """All events of the machine, in order."""
    sent: list[Any] = field(default_factory=list)
    """All messages that the machine sent."""
    published: list[bytes] = field(default_factory=list)
    """The bytes of these messages, with their marks."""
    received: list[bytes] = field(default_factory=list)
    """All messages that the machine received, without marks."""
    commands: list[Any] = field(default_factory=list)
    """All commands of the machine to the bus."""
    dialled: dict[ServerAddress, None] = field(default_factory=dict)
    is_alive: bool = True
    wakes_at: float | None = None
    sleeps_until: float = 0.0
    links: dict["Participant[Any]", int] = field(default_factory=dict)
    """The receivers of its messages, each with the number of the connection at the receiver."""

    clock_start: float = 0.0
    """The reading of the process's own clock at the time 0."""
    clock_rate: float = 1.0
    """The seconds of the process's own clock in a second of the simulation."""

    def local(self, now: float) -> float:
        """Return the reading of the process's own clock at a time of the simulation."""
        return self.clock_start + self.clock_rate * now

    def present(self, local: float) -> float:
        """Return the time of the simulation at which the process's own clock shows ``local``."""
        now = (local - self.clock_start) / self.clock_rate
        return now if self.local(now) >= local else now + 1e-9

    @property
    def id(self) -> int:
        """The id of the server or client."""
        return self.machine.id

    def is_in(self, state: object) -> bool:
        """Return True if the machine is in a state."""
        return self.machine.state is state

    def of(self, kind: type) -> list[Any]:
        """Return the events of one type."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(eq=False)
class SimulatedServer(Participant[ServerMachine]):
    """A server of a simulated cluster."""

    address: ServerAddress = field(kw_only=True)
    admit: Admit | None = field(default=None, kw_only=True)
    among_servers: Vouching = field(kw_only=True)
    """The object that marks its messages to servers."""

    @property
    def clients(self) -> Mapping[int, Peer]:
        """The clients that are registered, at this or another server, by id."""
        return KnownPeers(self.machine.clients)


@dataclass(eq=False)
class SimulatedClient(Participant[ClientMachine]):
    """A client of a simulated cluster."""

    @property
    def is_established(self) -> bool:
        """True if every server that has to acknowledge the client's id has done so."""
        return self.machine.state is ClientState.ESTABLISHED

    @property
    def peers(self) -> Mapping[int, Peer]:
        """The other clients that servers have introduced, by id."""
        return KnownPeers(self.machine.peers)


Link = tuple[Participant[Any], SimulatedServer]
"""A connection: the process that dialled, and the server."""


class SimulatedCluster:
    """Servers and clients on a simulated bus, in virtual time.

    Each message has a random delay in seconds from the range ``delay``. ``loss`` is the share of
    lost messages. If a ``secret`` is given, all processes have it. If an ``authority`` is given, it
    certifies the keys of servers. All clients, and all servers with a key, then accept only servers
    that it certifies.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        delay: tuple[float, float] = (0.001, 0.02),
        loss: float = 0.0,
        timers: ControlTimers | None = None,
        secret: bytes | None = None,
        authority: ClusterKey | None = None,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        """The source of delays, losses, keys, and the seeds of the machines."""
        self.now = 100.0
        """The present time of the simulation in seconds; it starts at 100."""
        self.timers = timers or ControlTimers()
        self.loss = loss
        self.nodes: list[Participant[Any]] = []
        self._delay = delay
        self._secret = secret
        self._authority = authority
        self._servers: dict[ServerAddress, SimulatedServer] = {}
        self._subscribers: defaultdict[bytes, dict[SimulatedClient, None]] = defaultdict(dict)
        self._cuts: set[tuple[str, str]] = set()
        self._queue: list[tuple[float, int, Callable[[], Iterable[Participant[Any]]]]] = []
        self._ticket = itertools.count()
        self._busy: dict[tuple[Participant[Any], Participant[Any]], float] = {}
        self._made: dict[Link, None] = {}
        self._next_pipe = itertools.count(1)

    # Servers and clients

    def server(
        self,
        number: int,
        *,
        join: Iterable[int] = (),
        admit: Admit | None = None,
        signs: bool = True,
        clock: tuple[float, float] = (0.0, 1.0),
        **options: Any,
    ) -> SimulatedServer:
        """Start a server at ``server_address(number)``; it joins the servers with numbers ``join``.

        Pass ``new_cluster=True`` for the first server of a cluster; without it, a lone server
        acknowledges ids only after twice the expiry. ``admit`` is called for each new client. With
        an authority the server has a key unless ``signs`` is false. ``clock`` is the start and the
        rate of its own clock. Other ``options`` are those of ``ServerMachine``.
        """
        key = None
        address = server_address(number)
        seed = self.random.getrandbits(32)
        machine = ServerMachine(
            random.Random(seed),
            self.timers,
            secrets=random.Random(f"secrets {seed}"),
            address=address,
            join=[server_address(n) for n in join],
            asks_admission=admit is not None,
            **options,
        )
        if signs and self._authority is not None:
            key = ServerKey.draw(self.random).certified(self._authority)
        node = SimulatedServer(
            f"server{number}",
            machine,
            self._vouching(key, TO_CLIENTS, is_client=False),
            address=address,
            admit=admit,
            among_servers=self._vouching(key, TO_SERVERS, is_client=False),
        )
        node.clock_start, node.clock_rate = clock
        self._servers[address] = node
        self._start(node)
        return node

    def client(
        self,
        name: str,
        servers: Iterable[int] = (0,),
        *,
        data: Any = None,
        packed: bytes | None = None,
        candidates: Sequence[Candidate] = (ELSEWHERE,),
        clock: tuple[float, float] = (0.0, 1.0),
        **options: Any,
    ) -> SimulatedClient:
        """Start a client of this name, which dials the servers with these numbers.

        Peers get ``data``, packed by msgpack, or the bytes ``packed`` unchanged. ``clock`` is the
        start and the rate of the client's own clock. Other ``options`` are those of
        ``ClientMachine``, such as ``ids``.
        """
        if packed is None:
            packed = b"" if data is None else pack(data)
        seed = self.random.getrandbits(32)
        machine = ClientMachine(
            random.Random(seed),
            self.timers,
            secrets=random.Random(f"secrets {seed}"),
            servers=[server_address(n) for n in servers],
            candidates=candidates,
            data=packed,
            name=name,
            **options,
        )
        node = SimulatedClient(name, machine, self._vouching(None, TO_CLIENTS, is_client=True))
        node.clock_start, node.clock_rate = clock
        self._start(node)
        return node

    def kill(self, node: Participant[Any]) -> None:
        """End a process without notice; its connections end with it."""
        node.is_alive = False
        self._drop([link for link in self._made if node in link])

    def sleep(self, node: Participant[Any], seconds: float) -> None:
        """Suspend a process for ``seconds``. Messages for it wait until then."""
        node.sleeps_until = self.now + seconds

    def cut(self, one: Participant[Any], other: Participant[Any]) -> None:
        """Drop all messages that two processes send each other from now on.

        A connection between them stays, but no new one is made.
        """
        self._cuts |= {(one.name, other.name), (other.name, one.name)}

    def cut_way(self, sender: Participant[Any], receiver: Participant[Any]) -> None:
        """Drop all messages that ``sender`` sends to ``receiver`` from now on.

        A connection between them stays, but the sender makes no new one.
        """
        self._cuts.add((sender.name, receiver.name))

    def heal(self) -> None:
        """End all cuts."""
        self._cuts.clear()

    def reconnect(self, one: Participant[Any], other: Participant[Any]) -> None:
        """End the connections between two processes. The process that dialled dials again."""
        self._drop([link for link in self._made if set(link) == {one, other}])

    # Time

    def run(self, seconds: float) -> None:
        """Handle the events of the next ``seconds`` of virtual time."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self._step()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Handle events until a condition holds.

        Raises ``NeverIdleError``, with the seed, if that takes more than ``seconds`` of virtual
        time, or no event is left.
        """
        end = self.now + seconds
        while not condition():
            if not self._queue or self._queue[0][0] > end:
                self.now = end
                raise NeverIdleError(f"not reached within {seconds:g} s; seed {self.seed}")
            self._step()

    def pump(self, node: Participant[Any]) -> None:
        """Perform the outputs of a machine. Call it after each command to the machine."""
        machine = node.machine
        if isinstance(node, SimulatedServer) and node.admit is not None:
            while (record := node.machine.poll_applicant()) is not None:
                is_admitted = node.admit(Peer.from_record(record))
                node.machine.handle_admission(node.local(self.now), record, is_admitted=is_admitted)
        while (command := machine.poll_bus()) is not None:
            node.commands.append(command)
            self._obey(node, command)
        while (message := machine.poll_transmit()) is not None:
            node.sent.append(message)
            self._publish(node, message)
        while (event := machine.poll_event()) is not None:
            node.events.append(event)
        local = machine.poll_timeout()
        due = None if local is None else node.present(local)
        if due is not None and due != node.wakes_at:
            node.wakes_at = due
            self._at(due, partial(self._wake, node, due))

    # Strangers

    def inject(self, node: Participant[Any], data: bytes, pipe: int | None = None) -> None:
        """Deliver bytes to a process, as a message of a stranger.

        ``pipe`` is the number of the connection; None stands for a connection whose messages prove
        their sender.
        """
        self._receive(node, data, pipe)
        self.pump(node)

    def pipe(self, sender: Participant[Any], receiver: Participant[Any]) -> int:
        """Return the number that the connection of a sender has at a receiver."""
        return sender.links[receiver]

    def _receive(self, node: Participant[Any], data: bytes, pipe: int | None) -> None:
        arrival = BusArrival(data, pipe)  # type: ignore[arg-type] # None proves its sender
        if (checked := node.trust.check(arrival, node.machine.counters)) is not None:
            node.received.append(checked.data)
            node.machine.handle_message(node.local(self.now), *checked, through=pipe)

    def _start(self, node: Participant[Any]) -> None:
        self.nodes.append(node)
        node.machine.handle_start(node.local(self.now))
        self.pump(node)

    def _vouching(self, key: ServerKey | None, purpose: bytes, *, is_client: bool) -> Vouching:
        boot = self.random.getrandbits(64) if self._secret or key else 0
        verifier = None
        if self._authority is not None and (is_client or key is not None):
            trusted = TO_CLIENTS if is_client else TO_SERVERS
            verifier = Verifier([self._authority.public], trusted)
        return Vouching(
            None if self._secret is None else Voucher(self._secret, boot),
            None if key is None else Signer(key, boot, purpose),
            verifier,
        )

    def _step(self) -> None:
        self.now = self._queue[0][0]
        touched: dict[Participant[Any], None] = {}
        while self._queue and self._queue[0][0] == self.now:
            for node in heapq.heappop(self._queue)[2]():
                touched[node] = None
        for node in touched:
            self.pump(node)

    def _at(self, when: float, what: Callable[[], Iterable[Participant[Any]]]) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._ticket), what))

    def _wake(self, node: Participant[Any], due: float) -> Iterable[Participant[Any]]:
        if not node.is_alive or node.wakes_at != due:
            return ()
        if node.sleeps_until > self.now:
            self._at(node.sleeps_until, partial(self._wake, node, due))
            return ()
        node.wakes_at = None
        node.machine.handle_timeout(node.local(self.now))
        return (node,)

    # Connections

    def _obey(self, node: Participant[Any], command: Any) -> None:
        match command:
            case Subscribe(topic) if isinstance(node, SimulatedClient):
                self._subscribers[topic][node] = None
            case Unsubscribe(topic) if isinstance(node, SimulatedClient):
                self._subscribers[topic].pop(node, None)
            case Dial(where):
                node.dialled[where] = None
                self._at(self.now + self._lag(), partial(self._connect, node, where))
            case HangUp(where):
                del node.dialled[where]
                self._drop([(a, b) for a, b in self._made if a is node and b.address == where])

    def _connect(self, node: Participant[Any], where: ServerAddress) -> Iterable[Participant[Any]]:
        if not node.is_alive or where not in node.dialled:
            return ()
        target = self._servers.get(where)
        if target is None or not target.is_alive or self._is_cut(node, target):
            self._at(self.now + REDIAL + self._lag(), partial(self._connect, node, where))
            return ()
        if (node, target) in self._made:
            return ()
        self._made[node, target] = None
        for sender, receiver in _ways((node, target)):
            sender.links[receiver] = next(self._next_pipe)
        for each in (node, target):
            each.machine.handle_connected(each.local(self.now))
        return (node, target)

    def _drop(self, links: list[Link]) -> None:
        for link in links:
            del self._made[link]
            dial = partial(self._connect, link[0], link[1].address)
            self._at(self.now + REDIAL + self._lag(), dial)
            for sender, receiver in _ways(link):
                pipe = sender.links.pop(receiver)
                if receiver.is_alive:
                    receiver.machine.handle_disconnected(receiver.local(self.now), pipe)
                    self._at(self.now, partial(_touched, receiver))

    def _publish(self, node: Participant[Any], message: bytes | BusMessage) -> None:
        trust, is_to_servers = node.trust, True
        if isinstance(message, BusMessage):
            is_to_servers = message.audience is BusAudience.SERVERS
            if isinstance(node, SimulatedServer) and is_to_servers:
                trust = node.among_servers
            message = message.data
        topic, data = message[:4], trust.mark(message)
        node.published.append(data)
        for target, pipe in self._receivers(node, None if is_to_servers else topic):
            if not self._is_cut(node, target) and not self._is_lost():
                link = node, target
                arrival = max(self.now + self._lag(), self._busy.get(link, 0.0))
                self._busy[link] = arrival
                self._at(arrival, partial(self._deliver, node, target, data, pipe))

    def _receivers(
        self, node: Participant[Any], topic: bytes | None
    ) -> list[tuple[Participant[Any], int]]:
        """Return the linked servers, or with a topic the linked clients that subscribe to it.

        Each comes with its pipe. The order is that of the links.
        """
        if topic is None:
            return [it for it in node.links.items() if isinstance(it[0], SimulatedServer)]
        # Most topics have one subscriber, and a server may have thousands of links.
        links = node.links
        found = [(it, links[it]) for it in self._subscribers.get(topic, ()) if it in links]
        return sorted(found, key=itemgetter(1))

    def _deliver(
        self, sender: Participant[Any], target: Participant[Any], data: bytes, pipe: int
    ) -> Iterable[Participant[Any]]:
        # A connection delivers nothing after its end, except messages of a process that was killed.
        is_over = sender.is_alive and sender.links.get(target) != pipe
        if is_over or not target.is_alive:
            return ()
        if target.sleeps_until > self.now:
            self._at(target.sleeps_until, partial(self._deliver, sender, target, data, pipe))
            return ()
        self._receive(target, data, pipe)
        return (target,)

    def _is_cut(self, one: Participant[Any], other: Participant[Any]) -> bool:
        return (one.name, other.name) in self._cuts

    def _is_lost(self) -> bool:
        return self.loss > 0 and self.random.random() < self.loss

    def _lag(self) -> float:
        return self.random.uniform(*self._delay)


def _touched(node: Participant[Any]) -> Iterable[Participant[Any]]:
    return (node,)


def _ways(link: Link) -> list[tuple[Participant[Any], Participant[Any]]]:
    """Return the directions of a link: a client dials both sockets of a server."""
    return [link] if isinstance(link[0], SimulatedServer) else [link, link[::-1]]
