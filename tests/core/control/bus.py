"""A PUB/SUB bus in virtual time: seeded, FIFO per link, with delay, loss, cuts and processes
that sleep. It drives the real machines and nothing else."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.outputs import BusAudience, Dial, HangUp, Subscribe, Unsubscribe
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.settings import ControlTimers
from sphtp.core.secure.signing import (
    TO_CLIENTS,
    TO_SERVERS,
    ClusterKey,
    ServerKey,
    Signer,
    Verifier,
)
from sphtp.core.secure.vouch import Voucher
from sphtp.shell.bus import BusArrival
from sphtp.shell.vouching import Vouching

FOREVER = 600.0


def address(number: int) -> ServerAddress:
    return ServerAddress.parse(f"tcp://127.0.0.1:{8764 + 2 * number}")


@dataclass(eq=False)
class Node:
    name: str
    machine: Any
    events: list[Any] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    spoken: list[bytes] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    topics: set[bytes] = field(default_factory=set)
    dialled: dict[ServerAddress, None] = field(default_factory=dict)
    address: ServerAddress | None = None
    alive: bool = True
    wakes_at: float | None = None
    sleeps_until: float = 0.0
    trust: Vouching = field(default_factory=lambda: Vouching(None, None, None))
    among_servers: Vouching = field(default_factory=lambda: Vouching(None, None, None))

    def is_in(self, state: Any) -> bool:
        return bool(self.machine.state is state)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Bus:
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
        """``authority`` vouches for servers, and all but those without a key want its word."""
        self.now = 100.0
        self.timers = timers or ControlTimers()
        self.loss = loss
        self.nodes: list[Node] = []
        self.cuts: set[tuple[str, str]] = set()
        self._random = random.Random(seed)
        self._delay = delay
        self._secret = secret
        self._authority = authority
        self._queue: list[tuple[float, int, Callable[[], Iterable[Node]]]] = []
        self._ticket = itertools.count()
        self._busy: dict[tuple[Node, Node], float] = {}
        self.links: set[tuple[Node, Node]] = set()
        self._pipes: dict[tuple[Node, Node], int] = {}
        self._next_pipe = itertools.count(1)

    # building

    def server(
        self, number: int, *, join: Iterable[int] = (), signs: bool = True, **options: Any
    ) -> Node:
        machine = ServerMachine(
            random.Random(seed := self._random.getrandbits(32)),
            self.timers,
            secrets=random.Random(f"secrets {seed}"),
            address=address(number),
            join=[address(n) for n in join],
            **options,
        )
        node = Node(f"server{number}", machine, address=address(number))
        key = None
        if signs and self._authority is not None:
            key = ServerKey.draw(self._random).certified(self._authority)
        return self._start(node, key)

    def client(self, name: str, servers: Iterable[int] = (0,), **options: Any) -> Node:
        options.setdefault("candidates", [Candidate("127.0.0.1", 5000)])
        machine = ClientMachine(
            random.Random(seed := self._random.getrandbits(32)),
            self.timers,
            secrets=random.Random(f"secrets {seed}"),
            servers=[address(n) for n in servers],
            **options,
        )
        return self._start(Node(name, machine), None)

    def kill(self, node: Node) -> None:
        node.alive = False
        self._drop({pair for pair in self.links if node in pair})

    def sleep(self, node: Node, seconds: float) -> None:
        node.sleeps_until = self.now + seconds

    def cut(self, one: Node, other: Node) -> None:
        self.cuts |= {(one.name, other.name), (other.name, one.name)}

    def heal(self) -> None:
        self.cuts.clear()

    # running

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds, must=False)

    def run_until(
        self, condition: Callable[[], bool], seconds: float = 60.0, *, must: bool = True
    ) -> None:
        end = self.now + seconds
        while not condition():
            if not self._queue or self._queue[0][0] > end:
                self.now = end
                assert not must, f"still waiting after {seconds} seconds"
                return
            self._step()

    def pump(self, node: Node) -> None:
        machine = node.machine
        while (command := machine.poll_bus()) is not None:
            node.commands.append(command)
            self._obey(node, command)
        while (message := machine.poll_transmit()) is not None:
            node.sent.append(message)
            self._publish(node, message)
        while (event := machine.poll_event()) is not None:
            node.events.append(event)
        due = machine.poll_timeout()
        if due is not None and due != node.wakes_at:
            node.wakes_at = due
            self._at(due, lambda: self._wake(node, due))

    def inject(self, node: Node, data: bytes, pipe: int | None = None) -> None:
        """Let a node hear these bytes, as whoever sends them sends them."""
        self._hear(node, data, pipe)
        self.pump(node)

    def _hear(self, node: Node, data: bytes, pipe: int | None) -> None:
        arrival = BusArrival(data, pipe)  # type: ignore[arg-type] # None proves its sender
        if (heard := node.trust.check(arrival, node.machine.counters)) is not None:
            node.heard.append(heard.data)
            node.machine.handle_message(self.now, *heard, through=pipe)

    def pipe(self, sender: Node, receiver: Node) -> int:
        """The number by which a receiver knows the connection of a sender."""
        return self._pipes[sender, receiver]

    def reconnect(self, one: Node, other: Node) -> None:
        """End the connection between two; whoever dialled it comes back."""
        self._drop({pair for pair in self.links if set(pair) == {one, other}})

    def _start(self, node: Node, key: ServerKey | None) -> Node:
        self.nodes.append(node)
        node.trust = self._vouching(key, TO_CLIENTS, node.address is None)
        node.among_servers = self._vouching(key, TO_SERVERS, node.address is None)
        node.machine.handle_start(self.now)
        self.pump(node)
        return node

    def _vouching(self, key: ServerKey | None, purpose: bytes, is_client: bool) -> Vouching:
        boot = self._random.getrandbits(64) if self._secret or key else 0
        verifier = None
        if self._authority is not None and (is_client or key is not None):
            heard = TO_CLIENTS if is_client else TO_SERVERS
            verifier = Verifier([self._authority.public], heard)
        return Vouching(
            None if self._secret is None else Voucher(self._secret, boot),
            None if key is None else Signer(key, boot, purpose),
            verifier,
        )

    def _step(self) -> None:
        self.now = self._queue[0][0]
        touched: dict[Node, None] = {}
        while self._queue and self._queue[0][0] == self.now:
            for node in heapq.heappop(self._queue)[2]():
                touched[node] = None
        for node in touched:
            self.pump(node)

    def _at(self, when: float, what: Callable[[], Iterable[Node]]) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._ticket), what))

    def _wake(self, node: Node, due: float) -> Iterable[Node]:
        if not node.alive or node.wakes_at != due:
            return ()
        if node.sleeps_until > self.now:
            self._at(node.sleeps_until, lambda: self._wake(node, due))
            return ()
        node.wakes_at = None
        node.machine.handle_timeout(self.now)
        return (node,)

    # links

    def _obey(self, node: Node, command: Any) -> None:
        match command:
            case Subscribe(topic):
                node.topics.add(topic)
            case Unsubscribe(topic):
                node.topics.discard(topic)
            case Dial(where):
                node.dialled[where] = None
                self._at(self.now + self._lag(), lambda: self._connect(node, where))
            case HangUp(where):
                del node.dialled[where]
                self._drop({(a, b) for a, b in self.links if a is node and b.address == where})

    def _connect(self, node: Node, where: ServerAddress) -> Iterable[Node]:
        if not node.alive or where not in node.dialled:
            return ()
        self._at(self.now + 0.2 + self._lag(), lambda: self._connect(node, where))
        target = next((n for n in self.nodes if n.alive and n.address == where), None)
        if target is None or (node, target) in self.links or self._is_cut(node, target):
            return ()
        self.links.add((node, target))
        for way in _ways((node, target)):
            self._pipes[way] = next(self._next_pipe)
        for each in (node, target):
            if hasattr(each.machine, "handle_connected"):
                each.machine.handle_connected(self.now)
        return (node, target)

    def _drop(self, links: set[tuple[Node, Node]]) -> None:
        self.links -= links
        for link in links:
            for sender, receiver in _ways(link):
                pipe = self._pipes.pop((sender, receiver))
                if receiver.alive:
                    receiver.machine.handle_disconnected(self.now, pipe)
                    self._at(self.now, partial(_touched, receiver))

    def _publish(self, node: Node, message: Any) -> None:
        if node.address is None:
            targets, data = [b for a, b in self.links if a is node], message
        elif message.audience is BusAudience.SERVERS:
            targets, data = [b for a, b in self.links if a is node], message.data
        else:
            targets = [a for a, b in self.links if b is node and a.address is None]
            data = message.data
        to_servers = node.address is not None and message.audience is BusAudience.SERVERS
        data = (node.among_servers if to_servers else node.trust).mark(data)
        node.spoken.append(data)
        for target in sorted(targets, key=self.nodes.index):
            if not self._is_cut(node, target) and self._random.random() >= self.loss:
                self._send(node, target, data)

    def _send(self, node: Node, target: Node, data: bytes) -> None:
        link = node, target
        arrival = max(self.now + self._lag(), self._busy.get(link, 0.0))
        self._busy[link] = arrival
        pipe = self._pipes[link]
        self._at(arrival, lambda: self._arrive(link, data, pipe))

    def _arrive(self, link: tuple[Node, Node], data: bytes, pipe: int) -> Iterable[Node]:
        # Nothing comes out of a connection after its end, but the last words of who has died.
        is_over = link[0].alive and self._pipes.get(link) != pipe
        return () if is_over else self._deliver(link[1], data, pipe)

    def _deliver(self, target: Node, data: bytes, pipe: int) -> Iterable[Node]:
        if not target.alive:
            return ()
        if target.sleeps_until > self.now:
            self._at(target.sleeps_until, lambda: self._deliver(target, data, pipe))
            return ()
        if target.address is None and data[:4] not in target.topics:
            return ()
        self._hear(target, data, pipe)
        return (target,)

    def _is_cut(self, one: Node, other: Node) -> bool:
        return (one.name, other.name) in self.cuts

    def _lag(self) -> float:
        return self._random.uniform(*self._delay)


def _touched(node: Node) -> Iterable[Node]:
    return (node,)


def _ways(link: tuple[Node, Node]) -> list[tuple[Node, Node]]:
    """A client dials both sockets of a server, a server only the one that the other hears."""
    return [link] if link[0].address is not None else [link, link[::-1]]
