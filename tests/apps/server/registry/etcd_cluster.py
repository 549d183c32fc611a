"""A cluster in virtual time whose servers share a registry on a simulated etcd, with its faults."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.outputs import BusMessage
from sphtp.core.control.vocabulary import Command
from sphtp.testing.cluster import Participant, SimulatedCluster, SimulatedServer
from sphtp_server.registry.etcd import EtcdRegistry, StoreRequest, StoreTask
from tests.apps.server.registry.simulated_etcd import EtcdError, SimulatedEtcd, encode

Node = Participant[Any]

TICK = 0.25
"""Seconds between two looks at leases that are over and watches that were held up."""


class EtcdCluster(SimulatedCluster):
    """Servers that share a registry, and the checks of what no fault may bring about."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        super().__init__(seed, **options)
        self.etcd = SimulatedEtcd()
        self.registries: dict[Node, EtcdRegistry] = {}
        self.slowness = 0.005
        """The longest time, in seconds, that a request or an answer travels."""
        self.capacity = 4096
        """The most clients of each server that is made from now on."""
        self.losing = 0.0
        """The share of requests, and of answers, that are lost."""
        self.parted: set[Node] = set()
        """The servers that etcd and its answers do not reach."""
        self.stalled: set[Node] = set()
        """The servers whose watches stall."""
        self.suspended = 0.0
        """The seconds for which the machine of the servers was suspended: their clocks stood."""
        self.cancels_watches = False
        """True if etcd begins no watch, as without a permission."""
        self._made_registry: EtcdRegistry | None = None
        self._watches: dict[Node, tuple[StoreRequest, int]] = {}
        self._arrives: dict[Node, float] = {}
        self._at(self.now, self._tick)

    def server(self, number: int, **options: Any) -> SimulatedServer:
        self._made_registry = EtcdRegistry(
            self.timers.expiry, self.capacity, suspended=lambda: self.suspended
        )
        return super().server(number, registry=self._made_registry, **options)

    def pump(self, node: Node) -> None:
        if isinstance(node, SimulatedServer) and node not in self.registries:
            assert self._made_registry is not None
            self.registries[node] = self._made_registry
        before = len(node.sent)
        super().pump(node)
        if isinstance(node, SimulatedServer):
            self._check_sent(node, before)
            if node.is_alive:
                registry = self.registries[node]
                while (request := registry.poll_request(node.local(self.now))) is not None:
                    self._begin(node, request)

    def compact(self) -> None:
        """Compact the store: watches that lag are cancelled when they go on."""
        self.etcd.compact()

    def lose_leader(self, seconds: float) -> None:
        """Leave etcd without a leader for a while."""
        self.etcd.has_leader = False
        self._at(self.now + seconds, self._elect)

    def revoke_leases(self, node: Node) -> None:
        """End the leases of a server's own keys."""
        own = f"/{node.machine.member.nonce:016x}"
        for name in self.etcd.names("/sphtp/"):
            if name.endswith(own):
                self.etcd.end_lease(name)

    def empty_store(self) -> None:
        """Replace the store by an empty one."""
        self.etcd = SimulatedEtcd()

    def put_foreign(self, name: str, value: bytes) -> None:
        """Put a key that no server has written."""
        put = {"key": encode(name.encode()), "value": encode(value)}
        write = {"success": [{"request_put": put}]}
        self.etcd.handle(self.now, "/v3/kv/txn", {"success": [{"request_txn": write}]})

    def _elect(self) -> Iterable[Node]:
        self.etcd.elect(self.now)
        return ()

    # Requests

    def _begin(self, node: Node, request: StoreRequest) -> None:
        if request.timeout is not None:
            end = self.now + request.timeout
            self._at(end, partial(self._fail, node, request, "no answer in time"))
        if request.task is StoreTask.WATCH:
            start = int(request.body["create_request"]["start_revision"])
            self._watches[node] = request, start
            self._arrives[node] = self.now + self._travel()
            if self.cancels_watches:
                denied = {"created": True, "canceled": True, "cancel_reason": "permission denied"}
                self._send(node, request, {"result": denied})
                del self._watches[node]
            else:
                self._watch(node)
        elif node not in self.parted and self.random.random() >= self.losing:
            # Some arrive after their sender has given them up.
            late = self.random.random() < self.losing / 2
            travel = self.random.uniform(0, 3 * self.timers.expiry) if late else self._travel()
            self._at(self.now + travel, partial(self._serve, node, request))

    def _serve(self, node: Node, request: StoreRequest) -> Iterable[Node]:
        try:
            document = self.etcd.handle(self.now, request.path, request.body)
        except EtcdError as error:
            answer = partial(self._fail, node, request, str(error))
        else:
            answer = partial(self._answer, node, request, document)
        if node not in self.parted and self.random.random() >= self.losing:
            self._at(self.now + self._travel(), answer)
        for each in tuple(self._watches):
            self._watch(each)
        return ()

    def _answer(self, node: Node, request: StoreRequest, document: Any) -> Iterable[Node]:
        def hand_in(registry: EtcdRegistry) -> None:
            registry.handle_answer(node.local(self.now), request, document)

        return self._hand_in(node, hand_in)

    def _fail(self, node: Node, request: StoreRequest, why: str) -> Iterable[Node]:
        def hand_in(registry: EtcdRegistry) -> None:
            registry.handle_failure(node.local(self.now), request, why)

        return self._hand_in(node, hand_in)

    def _hand_in(self, node: Node, hand_in: Callable[[EtcdRegistry], None]) -> Iterable[Node]:
        if not node.is_alive:
            return ()
        if node.sleeps_until > self.now:
            self._at(node.sleeps_until, partial(self._hand_in, node, hand_in))
            return ()
        hand_in(self.registries[node])
        node.machine.handle_registry(node.local(self.now))
        return (node,)

    # Watches

    def _tick(self) -> Iterable[Node]:
        """End leases, and go on with the watches that were held up."""
        self._at(self.now + TICK, self._tick)
        self.etcd.expire(self.now)
        for node in tuple(self._watches):
            self._watch(node)
        return ()

    def _watch(self, node: Node) -> None:
        """Send what has changed since the last time."""
        request, start = self._watches[node]
        if not node.is_alive:
            del self._watches[node]
        elif self.etcd.revision >= start and node not in self.parted | self.stalled:
            try:
                events, following = self.etcd.changes(start)
            except EtcdError:
                canceled = {"canceled": True, "compact_revision": str(self.etcd.compacted)}
                self._send(node, request, {"result": canceled})
                del self._watches[node]
            else:
                self._watches[node] = request, following
                if events:
                    self._send(node, request, {"result": {"events": events}})

    def _send(self, node: Node, request: StoreRequest, document: Any) -> None:
        arrives = max(self.now + self._travel(), self._arrives.get(node, 0.0))
        self._arrives[node] = arrives
        self._at(arrives, partial(self._answer, node, request, document))

    def _travel(self) -> float:
        return self.random.uniform(0, self.slowness)

    # What must hold

    def _step(self) -> None:
        super()._step()
        self.check_ids()

    def check_ids(self) -> None:
        """No two clients are established with one id."""
        ids = [
            node.machine.id
            for node in self.nodes
            if node.machine.state is ClientState.ESTABLISHED and node.is_alive
        ]
        assert len(set(ids)) == len(ids), f"seed {self.seed}: an id is held twice at {self.now:.3f}"

    def _check_sent(self, node: SimulatedServer, before: int) -> None:
        """A server acknowledges only what the store has, by this server's own key."""
        for message in node.sent[before:]:
            assert isinstance(message, BusMessage)
            decoded = decode_message_untrusted(message.data)
            if decoded.command == Command.ACK:
                self.etcd.expire(self.now)
                assert decoded.simulation != 0
                names = self.etcd.names(f"/sphtp/ids/{decoded.simulation:08x}/")
                own = f"/{node.machine.member.nonce:016x}"
                assert any(name.endswith(own) for name in names), f"seed {self.seed}: a false ACK"
                nonces = {name.split("/")[4] for name in names}
                assert len(nonces) == 1, f"seed {self.seed}: an id of two nonces"
