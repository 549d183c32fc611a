"""Two clients that want one id and two servers, all real machines, just after announcing."""

import random
from typing import Any

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.outputs import BusAudience
from sphtp.core.control.records import Candidate
from sphtp.core.control.registry import MemoryRegistry
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.settings import ControlTimers
from sphtp.testing.cluster import server_address

WANTED = 7
CLIENTS, SERVERS = "XY", "AB"
NAMES = CLIENTS + SERVERS
REPEAT = b""
"""The input that makes a client announce once more."""

Link = tuple[str, str]


class Fixed:
    """Entropy with a chosen number first: it decides whose nonce is the lower one."""

    def __init__(self, seed: int, first: int) -> None:
        self._first = [first]
        self._rest = random.Random(seed)

    def getrandbits(self, count: int, /) -> int:
        return self._first.pop() if self._first else self._rest.getrandbits(count)

    def random(self) -> float:
        return self._rest.random()

    def uniform(self, a: float, b: float) -> float:
        return self._rest.uniform(a, b)


class World:
    """Both servers are active and agree on the view; both clients have just announced the id."""

    def __init__(self, lower: str) -> None:
        self.now = 0.0
        self.links: dict[Link, list[bytes]] = {}
        self.registries = {name: MemoryRegistry(ControlTimers().expiry, 4096) for name in SERVERS}
        self.machines: dict[str, Any] = {
            **{name: _client(name, 1 if name == lower else 2) for name in CLIENTS},
            **{name: _server(name, self.registries[name]) for name in SERVERS},
        }
        for machine in self.machines.values():
            machine.handle_start(self.now)
        self._introduce()

    def feed(self, name: str, data: bytes) -> None:
        if data == REPEAT:
            self.machines[name].handle_connected(self.now)
        else:
            self.machines[name].handle_message(self.now, data)

    def drain(self, name: str) -> list[tuple[str, bytes]]:
        """Return what a machine says, with each target."""
        machine = self.machines[name]
        said = []
        while (message := machine.poll_transmit()) is not None:
            if name in CLIENTS:
                said += [(target, message) for target in SERVERS]
            elif message.audience is BusAudience.SERVERS:
                said += [(target, message.data) for target in SERVERS if target != name]
            else:
                said += [(target, message.data) for target in CLIENTS]
        return said

    def finish(self) -> None:
        """Let time run, with everything delivered at once, until both are established."""
        for _ in range(20_000):
            if all(self.machines[n].state is ClientState.ESTABLISHED for n in CLIENTS):
                return
            link = next((link for link, queue in self.links.items() if queue), None)
            name = link[1] if link else self._pass_time()
            if link and self._listens(name, data := self.links[link].pop(0)):
                self.feed(name, data)
            self._put(name)
        raise AssertionError("no end")

    def _pass_time(self) -> str:
        dues = {name: machine.poll_timeout() for name, machine in self.machines.items()}
        name = min(dues, key=lambda n: dues[n] or 0.0)
        self.now = max(self.now, dues[name] or 0.0)
        self.machines[name].handle_timeout(self.now)
        return name

    def _listens(self, name: str, data: bytes) -> bool:
        simulation = decode_message_untrusted(data).simulation
        return name in SERVERS or simulation in (0, self.machines[name].id)

    def _put(self, name: str) -> None:
        for target, data in self.drain(name):
            self.links.setdefault((name, target), []).append(data)

    def _introduce(self) -> None:
        for _ in range(4):
            for name in SERVERS:
                self.machines[name].handle_connected(self.now)
                self.machines[name].handle_timeout(self.now)
                self._put(name)
            for one, other in (("A", "B"), ("B", "A")):
                for data in self.links.pop((one, other), []):
                    self.feed(other, data)
            self.now += 0.2
        latest = {link: queue[-1] for link, queue in self.links.items() if queue}
        self.links.clear()
        for (_, client), data in latest.items():
            self.feed(client, data)
        for name in CLIENTS:
            machine = self.machines[name]
            assert machine.state is ClientState.ANNOUNCING
            assert machine.id == WANTED
            assert len(machine.view.members) == len(SERVERS)
            self._put(name)


def _client(name: str, nonce: int) -> ClientMachine:
    return ClientMachine(
        random.Random(ord(name)),
        ControlTimers(),
        secrets=Fixed(ord(name), nonce),
        servers=[server_address(0), server_address(1)],
        candidates=[Candidate("127.0.0.1", 5000)],
        ids=iter((WANTED,)),
    )


def _server(name: str, registry: MemoryRegistry) -> ServerMachine:
    return ServerMachine(
        random.Random(ord(name)),
        ControlTimers(),
        secrets=random.Random(f"secrets {name}"),
        address=server_address(SERVERS.index(name)),
        new_cluster=True,
        registry=registry,
    )
