"""Nodes behind simulated NATs (RFC 4787), a STUN server and a server that passes requests on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.security import PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.nat import LOOK, BindingRequest, CheckCredential, NatTraversal, PathSample
from sphtp.core.secure.identity import Identity
from sphtp.core.timers import earliest

STUN: Address = ("198.51.100.1", 3478)
DELAY = 0.02


class Behaviour(Enum):
    """Of which a mapping or a filter takes notice."""

    ANY = "endpoint-independent"
    HOST = "address-dependent"
    PORT = "address and port-dependent"


@dataclass
class Nat:
    """One public address; ``mapping`` and ``filtering`` behave as in RFC 4787, 4.1 and 5."""

    public: str
    mapping: Behaviour
    filtering: Behaviour
    ports: Any = field(default_factory=lambda: count(40_000))
    outward: dict[tuple[Address, object], int] = field(default_factory=dict)
    inward: dict[int, Address] = field(default_factory=dict)
    allowed: set[tuple[int, object]] = field(default_factory=set)

    def send(self, source: Address, destination: Address) -> Address:
        key = source, _seen(self.mapping, destination)
        if key not in self.outward:
            self.outward[key] = next(self.ports)
            self.inward[self.outward[key]] = source
        port = self.outward[key]
        self.allowed.add((port, _seen(self.filtering, destination)))
        return self.public, port

    def receive(self, source: Address, port: int) -> Address | None:
        if (port, _seen(self.filtering, source)) not in self.allowed:
            return None
        return self.inward.get(port)

    def move(self, public: str) -> None:
        """Forget all mappings, and have another address, as after the line was down."""
        self.public = public
        self.outward.clear()
        self.inward.clear()
        self.allowed.clear()


def _seen(behaviour: Behaviour, address: Address) -> object:
    return {Behaviour.ANY: None, Behaviour.HOST: address[0], Behaviour.PORT: address}[behaviour]


KINDS: dict[str, Callable[[str], Nat | None]] = {
    "none": lambda _: None,
    "full cone": lambda public: Nat(public, Behaviour.ANY, Behaviour.ANY),
    "address restricted": lambda public: Nat(public, Behaviour.ANY, Behaviour.HOST),
    "port restricted": lambda public: Nat(public, Behaviour.ANY, Behaviour.PORT),
    "symmetric": lambda public: Nat(public, Behaviour.PORT, Behaviour.PORT),
}


def is_direct(one: str, other: str) -> bool:
    """Return True if hole punching connects these two kinds: theory (RFC 5128, section 3.3)."""
    return {one, other} not in ({"symmetric"}, {"symmetric", "port restricted"})


class SimulatedNode:
    """An endpoint with what its shell would do for it."""

    def __init__(self, world: "World", number: int, host: str, nat: Nat | None) -> None:
        self.world, self.number, self.nat = world, number, nat
        self.address: Address = (host, 5000)
        random = Random(f"{world.seed} {number}")
        self.identity = Identity.draw(random)
        security = Security(identity=self.identity)
        self.endpoint = Endpoint(random, ChannelSettings(), number, security=security)
        self.traversal = NatTraversal(random)
        self.incoming: list[Connection] = []
        self.dials: dict[int, Connection] = {}

    @property
    def candidates(self) -> list[Address]:
        return list(dict.fromkeys([self.address, *self.traversal.reflexive]))

    def has_incoming(self) -> bool:
        return bool(self.incoming)

    def dial(self, peer: "SimulatedNode") -> Connection:
        connection = self.endpoint.dial(
            self.world.now, peer.candidates, peer.number, PeerPin(peer.identity.public)
        )
        self.dials[self.traversal.begin(self.world.now, peer.number)] = connection
        return connection

    def look(self) -> None:
        now = self.world.now
        self.traversal.handle_paths(
            now,
            [
                PathSample(each, each.peer_id, each.received_at, each.is_owed)
                for each in self.endpoint.connections
                if each.state is State.OPEN
            ],
        )
        for token, connection in list(self.dials.items()):
            if connection.state is not State.CONNECTING:
                self.traversal.end(token)
                del self.dials[token]

    def handle(self, source: Address, what: object) -> None:
        now = self.world.now
        if isinstance(what, bytes):
            self.endpoint.handle_datagrams_untrusted(now, Datagrams.of(source, what))
            while (incoming := self.endpoint.poll_incoming()) is not None:
                self.incoming.append(incoming)
        elif isinstance(what, CheckCredential):
            if self.traversal.takes_check(source, what):
                for connection in self.connections_of(what.token):
                    self.endpoint.handle_candidate(now, connection, source)
        elif isinstance(what, tuple):
            self.traversal.handle_binding(now, source, *what)

    def connections_of(self, token: int) -> list[Connection]:
        stalled = [it for it, other in self.traversal.stalled.items() if other == token]
        return [it for it in [self.dials.get(token), *stalled] if isinstance(it, Connection)]

    def flush(self) -> None:
        now, world = self.world.now, self.world
        while (row := self.endpoint.poll_transmit(now)) is not None:
            for datagram in row.datagrams:
                world.send(self, row.address, datagram)
        while (request := self.traversal.poll_request()) is not None:
            world.send(self, request.server, request)
        while (check := self.traversal.poll_check()) is not None:
            own = CheckCredential(self.number, check.credential.token)
            world.send(self, check.address, own)
        while (wanted := self.traversal.poll_check_request()) is not None:
            world.requests.append(wanted.peer)
            world.later(2 * DELAY, world.nodes[wanted.peer].check, self, wanted.token)

    def next_due(self) -> float | None:
        return earliest(self.endpoint.poll_timeout(), self.traversal.poll_timeout())

    def check(self, other: "SimulatedNode", token: int) -> None:
        own = CheckCredential(other.number, token)
        self.traversal.handle_check_request(self.world.now, own, other.candidates)

    def expire(self) -> None:
        self.endpoint.handle_timeout(self.world.now)
        self.traversal.handle_timeout(self.world.now)


class World:
    """A network in virtual time. ``lose`` is the share of datagrams that are lost."""

    def __init__(self, seed: int, lose: float = 0.0) -> None:
        self.seed, self.lose, self.now = seed, lose, 0.0
        self.random = Random(seed)
        self.nodes: dict[int, SimulatedNode] = {}
        self.requests: list[int] = []
        self._order = count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def add(self, number: int, host: str, nat: Nat | None) -> SimulatedNode:
        node = self.nodes[number] = SimulatedNode(self, number, host, nat)
        node.traversal.set_servers(self.now, [STUN])
        self.later(0, self.look, node)
        return node

    def look(self, node: SimulatedNode) -> None:
        node.look()
        self.later(LOOK, self.look, node)

    def later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        heappush(self._events, (self.now + seconds, next(self._order), call, arguments))

    def send(self, node: SimulatedNode, destination: Address, what: object) -> None:
        source = node.nat.send(node.address, destination) if node.nat else node.address
        if self.random.random() >= self.lose:
            self.later(DELAY, self.arrive, source, destination, what)

    def arrive(self, source: Address, destination: Address, what: object) -> None:
        if destination == STUN and isinstance(what, BindingRequest):
            self.later(DELAY, self.arrive, STUN, source, (what.transaction, source))
            return
        for node in self.nodes.values():
            inner: Address | None = destination
            if node.nat is not None:
                is_here = node.nat.public == destination[0]
                inner = node.nat.receive(source, destination[1]) if is_here else None
            if inner == node.address:
                node.handle(source, what)

    def run(self, is_over: Callable[[], bool], seconds: float) -> bool:
        until, nodes = self.now + seconds, self.nodes.values()
        while not is_over():
            for node in nodes:
                node.flush()
            first = self._events[0][0] if self._events else None
            due = earliest(first, *(node.next_due() for node in nodes))
            if due is None or due > until:
                self.now = until
                return False
            self.now = max(self.now, due)
            if due == first:
                _, _, call, arguments = heappop(self._events)
                call(*arguments)
            for node in nodes:
                expires = node.next_due()
                if expires is not None and expires <= self.now:
                    node.expire()
        return True
