"""Servers die and come back, links break, processes sleep, data change: in the end all agree."""

import random

import pytest

from sphtp.core.control.server_table import ServerState
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import Node, is_established
from tests.soaked import soaked

SERVERS = range(4)


class Chaos:
    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        delay, loss = self.entropy.choice((0.01, 0.3, 0.8)), self.entropy.choice((0, 0.05, 0.3))
        self.bus = SimulatedCluster(seed, delay=(0.001, delay), loss=loss)
        self.alive = {0: self.bus.server(0, join=SERVERS, new_cluster=True)}
        for number in SERVERS[1 : self.entropy.randint(1, len(SERVERS))]:
            self.alive[number] = self.bus.server(number, join=SERVERS)
        self.clients = [
            self.bus.client(str(n), SERVERS, ids=iter((7,)) if n % 2 else None)
            for n in range(self.entropy.randint(1, 8))
        ]
        self.data = dict.fromkeys(self.clients, b"")

    def run(self) -> None:
        deeds = (self.kill, self.restart, self.cut, self.bus.heal, self.sleep, self.change)
        for _ in range(10):
            self.bus.run(self.entropy.uniform(0.5, 15))
            self.entropy.choice(deeds)()
        self.bus.heal()
        self.bus.loss = 0.0
        self.bus.run(90)

    def kill(self) -> None:
        """Kill a server, unless one that has not joined would be left: it does not open alone."""
        if len(self.alive) > 1:
            number = self.entropy.choice(sorted(self.alive))
            left = [server for other, server in self.alive.items() if other != number]
            if len(left) > 1 or left[0].is_in(ServerState.ACTIVE):
                self.bus.kill(self.alive.pop(number))

    def restart(self) -> None:
        dead = [number for number in SERVERS if number not in self.alive]
        if dead:
            number = self.entropy.choice(dead)
            self.alive[number] = self.bus.server(number, join=SERVERS)

    def cut(self) -> None:
        self.bus.cut(self.any(), self.any())

    def sleep(self) -> None:
        self.bus.sleep(self.any(), self.entropy.uniform(1, 40))

    def change(self) -> None:
        client = self.entropy.choice(self.clients)
        self.data[client] = self.entropy.randbytes(8)
        client.machine.set_data(self.bus.now, self.data[client])
        self.bus.pump(client)

    def any(self) -> Node:
        return self.entropy.choice([*self.alive.values(), *self.clients])


def check(seed: int) -> None:
    print(f"seed {seed}")
    chaos = Chaos(seed)
    chaos.run()
    clients, servers = chaos.clients, list(chaos.alive.values())
    ids = {client.machine.id for client in clients}
    assert is_established(*clients)
    assert len(ids) == len(clients)
    assert all(server.is_in(ServerState.ACTIVE) for server in servers)
    assert len({server.machine.view for server in servers}) == 1
    assert len(servers[0].machine.view.members) == len(servers)
    records = servers[0].machine.clients
    assert set(records) == ids
    assert all(server.machine.clients == records for server in servers)
    for client in clients:
        others = {
            number: record for number, record in records.items() if number != client.machine.id
        }
        assert client.machine.peers == others
        assert records[client.machine.id].data == chaos.data[client]


@pytest.mark.parametrize("seed", [*range(2), *soaked(range(2, 8))])
def test_all_agree_in_the_end(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 400, 20))
def test_all_agree_in_the_end_of_many_storms(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)
