"""Servers that are to join others: none founds a cluster because it hears nobody."""

import pytest

from sphtp.core.control.client_messages import Announce
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Command
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.core.control.helpers import Node, ask, established

LONG = 600.0


def is_active(*servers: Node) -> bool:
    return all(server.is_in(ServerState.ACTIVE) for server in servers)


def test_who_hears_nobody_that_it_is_to_join_admits_nobody() -> None:
    bus = SimulatedCluster()
    lonely = bus.server(0, join=[7, 9])
    bus.run(LONG)
    assert lonely.is_in(ServerState.JOINING)
    assert lonely.machine.missing == (server_address(7), server_address(9))
    assert ask(bus, lonely, Announce(4711, 5)) == []


def test_it_joins_whoever_comes_later_and_learns_whom_that_one_knows() -> None:
    bus = SimulatedCluster()
    late = bus.server(0, join=[1])
    bus.run(LONG)
    founder = bus.server(1, new_cluster=True)
    client = bus.client("x", servers=[1])
    bus.run_until(lambda: is_active(founder, late), 5.0)
    established(bus, client)
    bus.run(2)
    assert late.machine.missing == ()
    assert list(late.machine.clients) == [client.machine.id]
    assert late.machine.view.active == founder.machine.view.active


def test_those_that_are_to_join_each_other_and_nobody_else_open_after_the_wait() -> None:
    bus = SimulatedCluster()
    servers = [bus.server(n, join=[0, 1]) for n in range(2)]
    bus.run(15)
    assert not is_active(servers[0])
    bus.run_until(lambda: is_active(*servers), 10.0)


@pytest.mark.parametrize("is_founder", [True, False])
def test_who_is_left_by_the_only_one_it_heard_opens_when_nobody_holds_an_id(
    *, is_founder: bool
) -> None:
    bus = SimulatedCluster()
    other = bus.server(1, new_cluster=is_founder)
    left = bus.server(0, join=[1])
    bus.run_until(lambda: not left.machine.missing, 5.0)
    # The list that it asks a founder for never comes.
    bus.kill(other)
    bus.run(25)
    assert left.machine.missing == (server_address(1),)
    assert left.is_in(ServerState.JOINING)
    assert ask(bus, left, Announce(4711, 5)) == []
    bus.run_until(lambda: is_active(left), 10.0)
    assert ask(bus, left, Announce(4711, 5)) == [(Command.ACK, 4711, 5, 0)]


def test_who_is_to_join_only_itself_waits_as_one_that_joins_nobody() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, join=[0])
    assert server.machine.missing == ()
    bus.run(25)
    assert is_active(server)


def test_a_founder_that_is_to_join_others_does_not_wait_and_knows_whom_it_misses() -> None:
    bus = SimulatedCluster()
    founder = bus.server(0, join=[1], new_cluster=True)
    bus.run(1)
    assert is_active(founder)
    assert founder.machine.missing == (server_address(1),)
