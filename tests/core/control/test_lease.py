"""The lease of an id: a client that its servers do not receive is no longer established."""

import pytest

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Message
from sphtp.core.control.outputs import Established, IdLost, Suspended
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import Node, active_server, established, is_established, said


def idle(bus: SimulatedCluster, presence: list[str] | None) -> tuple[Node, Node]:
    server = active_server(bus)
    client = bus.client("x", ids=iter((7, 9)), presence=presence)
    established(bus, client)
    bus.run(20)
    return server, client


def test_an_owner_that_is_not_received_is_suspended_before_another_client_has_its_id() -> None:
    bus = SimulatedCluster()
    server, client = idle(bus, None)
    bus.cut_way(client, server)
    rival = bus.client("y", ids=iter([7] * 100))
    for _ in range(300):
        bus.run(0.1)
        assert client.machine.servers
        assert not is_established(client, rival) or rival.id != client.id
    assert client.is_in(ClientState.RESUMING)
    assert client.id == rival.id == 7
    bus.heal()
    bus.run_until(lambda: is_established(client, rival), 5)
    assert (client.id, rival.id) == (9, 7)
    assert client.of(IdLost) == [IdLost(7, Reason.CONFLICT)]


@pytest.mark.parametrize("block", [0.5, 2.1, 3.0, 5.0])
def test_a_program_that_computes_for_seconds_has_no_longer_lease(block: float) -> None:
    bus = SimulatedCluster()
    server, client = idle(bus, None)
    bus.cut_way(client, server)
    rival = bus.client("y", ids=iter([7] * 1000))
    for _ in range(int(60 / block)):
        bus.sleep(client, block)
        bus.run(block + 0.05)
        assert not is_established(client, rival) or rival.id != client.id
    assert client.of(Suspended)


def test_it_has_its_id_again_if_no_other_client_took_it() -> None:
    bus = SimulatedCluster()
    server, client = idle(bus, None)
    bus.cut_way(client, server)
    bus.run(60)
    assert client.machine.servers
    assert client.of(Suspended) == [Suspended()]
    bus.heal()
    established(bus, client)
    assert client.of(Established)[-1] == Established(7, resumed=True)


@pytest.mark.parametrize("presence", [None, ["fluid"]])
def test_a_list_confirms_the_id_and_nobody_announces_for_it(presence: list[str] | None) -> None:
    bus = SimulatedCluster()
    _, client = idle(bus, presence)
    before = len(said(client, Command.ANNOUNCE))
    bus.run(60)
    assert is_established(client)
    assert not client.of(Suspended)
    # An answer to each of many clients would be copied to all of them.
    assert len(said(client, Command.ANNOUNCE)) == before


def test_it_is_enough_that_one_server_receives_a_client() -> None:
    bus = SimulatedCluster()
    first, second = active_server(bus), bus.server(1, join=[0])
    client = bus.client("x", presence=["fluid"])
    bus.run(5)
    established(bus, client)
    bus.cut_way(client, first)
    bus.run(60)
    assert is_established(client)
    assert not client.of(Suspended)
    assert client.id in second.machine.clients


def test_servers_of_plain_sphtp_are_not_asked_again() -> None:
    bus = SimulatedCluster()
    client = bus.client("x", servers=(), ids=iter((7,)))
    for second in range(40):
        bus.inject(client, Message(0, 4444, Command.HEARTBEAT).encode())
        if second == 0:
            bus.inject(client, Message(7, 4444, Command.ACK).encode())
        bus.run(1)
    assert is_established(client)
    assert not client.of(Suspended)
    assert len(said(client, Command.ANNOUNCE)) == 1
