"""Measure large clusters in virtual time: the real machines, on the simulated bus of the test kit.

All clients start at one moment, each in a group of ten whose members it watches. The first figure
is the virtual time until the last one is established. The others are the messages of a client up to
then, and in ten seconds of rest. A client that has to handle more messages in a larger cluster
would limit its size.

Further scenarios follow the start: servers restart one after the other, half of the servers die at
one moment, or the network divides into two halves for a while. Each ends when all clients are
established again, all servers have the same clients, and no id has two holders.

No processor is modelled: a message takes no time to be handled. The processor time of this process
is that of all clients and servers together.
"""

import json
from collections.abc import Callable, Iterable
from itertools import product
from time import process_time
from typing import Any, Final

import click

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.testing.cluster import SimulatedClient, SimulatedCluster, SimulatedServer

STEP: Final = 0.25
"""Seconds of virtual time between two checks of the cluster."""

GROUP: Final = 10
"""The members of a group."""

SCENARIOS: Final = ("start", "rolling", "half", "divided")

Report = dict[str, Any]


class Crowd:
    """Servers that agree, and clients in groups that then start at one moment."""

    def __init__(self, clients: int, servers: int, seed: int) -> None:
        self.bus = SimulatedCluster(seed, timers=ControlTimers())
        # All clients may announce and look up in one second.
        most = max(4096, clients + 1)
        self.limits = ServerLimits(
            max_clients=most,
            announces_per_second=most,
            lookups_per_second=2 * most,
            max_answers=max(8192, most),
        )
        self.servers: dict[int, SimulatedServer] = {0: self._server(0, new_cluster=True)}
        for number in range(1, servers):
            self.servers[number] = self._server(number, join=[0])
        self.wait(self._servers_agree, 60)
        self.received = 0
        self.sent = 0
        self.clients = [self._client(number) for number in range(clients)]

    def wait(self, condition: Callable[[], bool], seconds: float) -> float:
        """Let time pass until a condition holds; return the seconds that it took.

        Raises ``ClickException`` if it takes more than ``seconds``.
        """
        began = self.bus.now
        while not condition():
            if self.bus.now - began > seconds:
                raise click.ClickException(f"not reached within {seconds:g} s of virtual time")
            self.bus.run(STEP)
            self._count()
        return self.bus.now - began

    def rest(self, seconds: float) -> tuple[float, float]:
        """Let time pass; return the messages that a client sent and received on average."""
        sent, received = self.sent, self.received
        for _ in range(round(seconds / STEP)):
            self.bus.run(STEP)
            self._count()
        count = len(self.clients)
        return (self.sent - sent) / count, (self.received - received) / count

    def is_established(self) -> bool:
        """Return True if all clients are established."""
        return all(it.machine.state is ClientState.ESTABLISHED for it in self.clients)

    def is_at_rest(self) -> bool:
        """Return True if all agree: the clients are established, on the list of each server, and
        known to the members of their group.
        """
        if not self.is_established() or not self._servers_agree():
            return False
        count = len(self.clients)
        sizes = [min(GROUP, count - number // GROUP * GROUP) for number in range(count)]
        if any(len(it.peers) != size - 1 for it, size in zip(self.clients, sizes, strict=True)):
            return False
        ids = {client.id for client in self.clients}
        lists = [set(server.machine.clients) for server in self.servers.values()]
        return len(ids) == len(self.clients) and all(listed == ids for listed in lists)

    def restart(self, number: int) -> None:
        """Kill a server, and start another one in its place."""
        self.bus.kill(self.servers[number])
        others = [other for other in self.servers if other != number]
        self.servers[number] = self._server(number, join=others[:1])

    def lose(self, numbers: Iterable[int]) -> None:
        """Kill servers."""
        for number in numbers:
            self.bus.kill(self.servers.pop(number))

    def divide(self) -> None:
        """Drop all messages between two halves of the servers and of the clients."""
        servers, clients = list(self.servers.values()), self.clients
        halves = [(*servers[first::2], *clients[first::2]) for first in (0, 1)]
        for one, other in product(*halves):
            if isinstance(one, SimulatedServer) or isinstance(other, SimulatedServer):
                self.bus.cut(one, other)

    def _servers_agree(self) -> bool:
        count = len(self.servers)
        return all(
            server.machine.state is ServerState.ACTIVE and len(server.machine.view.active) == count
            for server in self.servers.values()
        )

    def _server(self, number: int, **options: Any) -> SimulatedServer:
        return self.bus.server(number, limits=self.limits, **options)

    def _client(self, number: int) -> SimulatedClient:
        groups = [f"group {number // GROUP}"]
        client = self.bus.client(f"client {number}", servers=self.servers, presence=groups)
        client.machine.set_groups(self.bus.now, groups)
        self.bus.pump(client)
        return client

    def _count(self) -> None:
        """Count the messages, and drop the records of them that the bus keeps for tests."""
        for node in self.bus.nodes:
            if isinstance(node, SimulatedClient):
                self.sent += len(node.sent)
                self.received += len(node.received)
            for kept in (node.sent, node.published, node.received, node.events):
                kept.clear()


def measure(clients: int, servers: int, scenario: str, seed: int) -> Report:
    """Run one scenario, and return its figures."""
    began = process_time()
    crowd = Crowd(clients, servers, seed)
    established = crowd.wait(crowd.is_established, 120)
    sent, received = crowd.sent / clients, crowd.received / clients
    report: Report = {
        "clients": clients,
        "servers": servers,
        "established_s": established,
        "messages_to_start": {"sent": round(sent, 1), "received": round(received, 1)},
        "at_rest_s": established + crowd.wait(crowd.is_at_rest, 120),
    }
    if scenario == "start":
        sent, received = crowd.rest(10)
        report["messages_in_10_s"] = {"sent": round(sent, 1), "received": round(received, 1)}
    elif scenario == "rolling":
        took = []
        for number in tuple(crowd.servers):
            crowd.restart(number)
            took.append(crowd.wait(crowd.is_at_rest, 120))
        report["each_restart_at_rest_s"] = took
    elif scenario == "half":
        crowd.lose(range(servers // 2))
        report["half_lost_at_rest_s"] = crowd.wait(crowd.is_at_rest, 120)
    else:
        crowd.divide()
        crowd.rest(15)
        crowd.bus.heal()
        report["healed_at_rest_s"] = crowd.wait(crowd.is_at_rest, 120)
    report["cpu_s"] = round(process_time() - began, 1)
    return report


@click.command()
@click.option("--clients", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--servers", type=click.IntRange(2), default=10, show_default=True)
@click.option("--scenario", type=click.Choice(SCENARIOS), default="start", show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(clients: int, servers: int, scenario: str, seed: int) -> None:
    """Run a scenario of a large cluster in virtual time: its start, and a failure if it has one."""
    click.echo(json.dumps(measure(clients, servers, scenario, seed)))


if __name__ == "__main__":
    main()
