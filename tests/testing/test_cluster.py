"""The simulated cluster: a crowd, one trace for one seed, and what goes wrong."""

from typing import Any

import pytest

from sphtp.events import Established, IdLost, PeerEntered, PeerLeft, PeerSuspected
from sphtp.testing import NeverIdleError, SimulatedCluster


def trace(seed: int) -> list[object]:
    cluster = SimulatedCluster(seed, loss=0.1)
    nodes: list[Any] = [cluster.server(0, new_cluster=True), cluster.server(1, join=[0])]
    clients = [cluster.client(str(number), (0, 1), data=number) for number in range(3)]
    cluster.run(5)
    cluster.kill(clients[0])
    cluster.run(15)
    return [event for node in (*nodes, *clients) for event in node.events]


def test_one_seed_gives_one_trace() -> None:
    assert trace(1) == trace(1) != trace(2)


def test_a_crowd_meets_and_is_missed() -> None:
    cluster = SimulatedCluster()
    server = cluster.server(0, new_cluster=True)
    cluster.run(0.5)
    crowd = [cluster.client(f"{number}") for number in range(40)]
    watcher = crowd[0]
    cluster.run_until(lambda: len(watcher.peers) == len(server.clients) - 1 == 39)
    cluster.run(0.2)  # no message of it is on its way
    cluster.kill(crowd[7])
    cluster.run_until(lambda: bool(watcher.of(PeerLeft)))
    assert [event.peer.id for event in server.of(PeerSuspected)] == [crowd[7].id]
    assert [event.peer.id for event in watcher.of(PeerLeft)] == [crowd[7].id]


def test_who_is_not_admitted_does_not_come() -> None:
    cluster = SimulatedCluster()
    server = cluster.server(0, new_cluster=True, admit=lambda peer: peer.id != 7)
    refused = cluster.client("x", ids=iter((7,)))
    cluster.run(3)
    assert not refused.of(Established)
    assert not server.clients


def test_of_two_that_apply_for_one_id_one_gets_it() -> None:
    cluster = SimulatedCluster(delay=(0.01, 0.01))
    cluster.server(0, new_cluster=True, admit=lambda _: True)
    cluster.run(0.5)
    two = [cluster.client(name, ids=iter((7,))) for name in "xy"]
    cluster.run_until(lambda: all(client.is_established for client in two))
    assert {client.id for client in two} > {7}
    assert not any(client.of(IdLost) for client in two)


def test_what_is_not_reached_tells_the_seed() -> None:
    cluster = SimulatedCluster(seed=4711)
    client = cluster.client("alone")
    with pytest.raises(NeverIdleError, match="4711"):
        cluster.run_until(lambda: client.is_established, 5)
    assert not client.of(PeerEntered)
