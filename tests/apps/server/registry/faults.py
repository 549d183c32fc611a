"""Seeded schedules of faults: of etcd, of the way to it, of servers, and between programs."""

import random

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.settings import ControlTimers
from tests.apps.server.registry.etcd_cluster import EtcdCluster, Node

SERVERS = range(3)
AT_REST = (ServerState.ACTIVE, ClientState.ESTABLISHED)


class FaultSchedule:
    """One schedule: ten deeds at random times, then an end to all faults."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(f"faults {seed}")
        delay, loss = self.entropy.choice((0.01, 0.2)), self.entropy.choice((0, 0.02, 0.1))
        # Fewer heartbeats than by default, which are most of the work.
        timers = ControlTimers(heartbeat=2.0)
        self.bus = EtcdCluster(seed, delay=(0.001, delay), loss=loss, timers=timers)
        self.bus.slowness = self.entropy.choice((0.005, 0.1, 0.5))
        self.bus.losing = self.entropy.choice((0.0, 0.05, 0.3))
        count = self.entropy.randint(1, len(SERVERS))
        self.alive = {number: self.bus.server(number) for number in SERVERS[:count]}
        self.clients: list[Node] = []
        for _ in range(self.entropy.randint(2, 4)):
            self.come()

    def run(self) -> None:
        deeds = (
            self.kill,
            self.restart,
            self.freeze,
            self.cut,
            self.bus.heal,
            self.part,
            self.stall,
            self.reach,
            self.lose_leader,
            self.bus.compact,
            self.come,
            self.leave,
            self.vanish,
        )
        for _ in range(10):
            self.bus.run(self.entropy.choice((0.05, 1, 8, 25)) * self.entropy.random())
            self.entropy.choice(deeds)()
        self.bus.heal()
        self.reach()
        self.bus.loss = self.bus.losing = 0.0
        self.bus.slowness = 0.01
        if not self.alive:
            self.restart()

    def kill(self) -> None:
        if self.alive:
            self.bus.kill(self.alive.pop(self.entropy.choice(sorted(self.alive))))

    def restart(self) -> None:
        """Start a server, or one that is killed at this moment, anew."""
        number = self.entropy.choice(SERVERS)
        if number in self.alive:
            self.bus.kill(self.alive[number])
        self.alive[number] = self.bus.server(number)

    def freeze(self) -> None:
        if self.alive:
            server = self.any_server()
            # A second time would wake it earlier, and what waits for it would come out of order.
            if server.sleeps_until <= self.bus.now:
                self.bus.sleep(server, self.entropy.choice((2, 9, 15, 40)))

    def cut(self) -> None:
        if self.alive:
            self.bus.cut(self.any_server(), self.entropy.choice([*self.bus.nodes]))

    def part(self) -> None:
        if self.alive:
            self.bus.parted.add(self.any_server())

    def stall(self) -> None:
        if self.alive:
            self.bus.stalled.add(self.any_server())

    def reach(self) -> None:
        self.bus.parted.clear()
        self.bus.stalled.clear()

    def lose_leader(self) -> None:
        self.bus.lose_leader(self.entropy.choice((0.5, 5, 30)))

    def come(self) -> None:
        ids = iter((7,)) if self.entropy.random() < 0.7 else None
        self.clients.append(self.bus.client(str(len(self.bus.nodes)), SERVERS, ids=ids))

    def leave(self) -> None:
        client = self.any_client()
        if client is not None:
            client.machine.leave(self.bus.now)
            self.bus.pump(client)
            self.clients.remove(client)

    def vanish(self) -> None:
        client = self.any_client()
        if client is not None:
            self.bus.kill(client)
            self.clients.remove(client)

    def any_server(self) -> Node:
        return self.alive[self.entropy.choice(sorted(self.alive))]

    def any_client(self) -> Node | None:
        return self.entropy.choice(self.clients) if self.clients else None


def check(seed: int) -> None:
    """Play a schedule. In the end all agree, and the store holds no more than that."""
    schedule = FaultSchedule(seed)
    schedule.run()
    left: list[str] = []
    for _ in range(30):
        schedule.bus.run(5)
        left = disagreements(schedule)
        if not left:
            return
    raise AssertionError(f"seed {seed}: {left}")


def disagreements(schedule: FaultSchedule) -> list[str]:
    """Return what keeps the cluster from being at rest."""
    etcd, clients, servers = schedule.bus.etcd, schedule.clients, list(schedule.alive.values())
    names = {server.name: server for server in servers} | {it.name: it for it in clients}
    found = [name for name, node in names.items() if node.machine.state not in AT_REST]
    if len({server.machine.view.members for server in servers}) != 1:
        found.append("views")
    if len(servers[0].machine.view.members) != len(servers):
        found.append("members")
    records = servers[0].machine.clients
    if set(records) != {client.machine.id for client in clients}:
        found.append("ids")
    if any(server.machine.clients != records for server in servers):
        found.append("records")
    for client in clients:
        others = {number: it for number, it in records.items() if number != client.machine.id}
        if client.machine.peers != others:
            found.append(f"peers of {client.name}")
    # One key for each server and each client that it hears, and one for its own id.
    if len(etcd.names("/sphtp/ids/")) != len(servers) * (len(clients) + 1):
        found.append("keys of ids")
    found += [
        f"keys of {kind}"
        for kind in ("members", "beats")
        if len(etcd.names(f"/sphtp/{kind}/")) != len(servers)
    ]
    return found
