"""Clients whose connection ends: gone within two seconds, unless they come back before."""

import pytest

from sphtp.core.control.codec import Message
from sphtp.core.control.outputs import (
    IdLost,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
)
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import Node, established, is_established

SECRET = bytes(range(32))
SOON = 2.0


@pytest.fixture(params=[None, SECRET], ids=["open", "secret"])
def bus(request: pytest.FixtureRequest) -> SimulatedCluster:
    return SimulatedCluster(secret=request.param)


def cluster(bus: SimulatedCluster, number: int) -> list[Node]:
    return [bus.server(n, join=[0] if n else [], new_cluster=not n) for n in range(number)]


@pytest.mark.parametrize("number", [1, 3])
def test_a_killed_client_is_suspected_at_once_and_told_as_gone_within_two_seconds(
    bus: SimulatedCluster, number: int
) -> None:
    servers = cluster(bus, number)
    client, other = bus.client("x"), bus.client("y")
    established(bus, client, other)
    bus.run(30)
    gone = client.machine.id
    bus.kill(client)
    killed = bus.now
    bus.run(0.1)
    assert all(gone in [event.peer.id for event in server.of(PeerSuspected)] for server in servers)
    bus.run_until(lambda: gone not in other.machine.peers, SOON)
    assert bus.now - killed > 1.0, "it had time to come back"
    assert other.of(PeerLeft)[0].reason is Reason.EXPIRED
    bus.run(30)
    assert len(other.of(PeerEntered)) == len(other.of(PeerLeft)) == 1


@pytest.mark.parametrize("number", [1, 3])
def test_a_client_that_comes_back_is_told_as_gone_to_nobody(
    bus: SimulatedCluster, number: int
) -> None:
    servers = cluster(bus, number)
    client, other = bus.client("x"), bus.client("y")
    established(bus, client, other)
    bus.run(5)
    for _ in range(20):
        for server in servers:
            bus.reconnect(client, server)
        bus.run(3)
    for server in servers:
        assert server.of(PeerSuspected)
        assert not server.of(PeerLeft)
        assert len(server.of(PeerEntered)) == 2
    assert not other.of(PeerLeft)
    assert not client.of(IdLost)


def test_a_client_that_one_server_has_lost_is_there_for_peers_as_long_as_another_hears_it(
    bus: SimulatedCluster,
) -> None:
    first, _ = cluster(bus, 2)
    client, other = bus.client("x"), bus.client("y")
    established(bus, client, other)
    bus.run(5)
    bus.cut(client, first)
    bus.reconnect(client, first)
    bus.run(30)
    assert first.of(PeerLeft)
    assert not other.of(PeerLeft)
    bus.heal()
    bus.run(30)
    assert is_established(client)
    assert not other.of(PeerLeft)
    assert not client.of(IdLost)


def test_a_plain_client_that_says_nothing_but_its_heartbeat_may_come_back() -> None:
    """What must hold: who says no hello through a new connection has until its next heartbeat."""
    bus = SimulatedCluster()
    (server,) = cluster(bus, 1)
    bus.run(1)

    def say(command: Command, pipe: int) -> None:
        bus.inject(server, Message(4711, 4711, command).encode(), pipe)

    say(Command.ANNOUNCE, 1001)
    say(Command.HEARTBEAT, 1001)
    server.machine.handle_disconnected(bus.now, 1001)
    bus.pump(server)
    assert [event.peer.id for event in server.of(PeerSuspected)] == [4711]
    bus.run(1.2)
    say(Command.HEARTBEAT, 1002)
    bus.run(5)
    assert not server.of(PeerLeft)
    server.machine.handle_disconnected(bus.now, 1001)
    server.machine.handle_disconnected(bus.now, 1002)
    bus.pump(server)
    bus.run(SOON)
    assert [event.peer.id for event in server.of(PeerLeft)] == [4711]
    assert server.machine.clients == {}


def test_a_server_that_slept_gives_clients_the_time_to_come_back(bus: SimulatedCluster) -> None:
    (server,) = cluster(bus, 1)
    client = bus.client("x")
    established(bus, client)
    bus.run(5)
    bus.sleep(server, 60)
    bus.reconnect(client, server)
    bus.run(90)
    assert not server.of(PeerLeft)
    assert is_established(client)
