"""The eleven steps of the seed, in their order, between real machines on a bus in virtual time."""

from itertools import pairwise
from typing import Any

import pytest

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import BLOB, NONCE, REASON
from sphtp.core.control.outputs import (
    Dial,
    Established,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    Subscribe,
    Unsubscribe,
    topic,
)
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.core.control.helpers import established, heard, is_established, said
from tests.soaked import soaked


def test_1_servers_draw_even_ids_and_send_heartbeats_about_every_second() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    times: list[float] = []
    for _ in range(3000):
        before = len(server.sent)
        bus.run(0.01)
        times += [bus.now] * (len(server.sent) > before)
    assert server.machine.id % 2 == 0
    assert {m.simulation for m in said(server, Command.HEARTBEAT)} == {0, 1}
    assert all(m.sender == server.machine.id for m in said(server))
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert 0.88 < min(gaps) < 0.99 < 1.01 < max(gaps) < 1.12


def test_2_and_3_clients_connect_and_wait_for_a_server_heartbeat() -> None:
    bus = SimulatedCluster()
    client = bus.client("x")
    assert client.commands == [Subscribe(topic(0)), Dial(server_address(0))]
    bus.run(30)
    assert client.is_in(ClientState.SEARCHING)
    assert client.sent == []
    bus.server(0, new_cluster=True)
    established(bus, client)


def test_4_and_5_an_odd_id_is_drawn_subscribed_to_and_announced_until_answered() -> None:
    bus = SimulatedCluster(seed=4)
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", ids=iter((7, 9)))
    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    bus.cut(client, server)
    assert client.commands[2:] == [Subscribe(topic(7)), Subscribe(topic(8))]
    bus.run(2.9)
    announces = said(client, Command.ANNOUNCE)
    assert len(announces) >= 3
    assert {(m.simulation, m.sender, NONCE.first(m)) for m in announces} == {
        (7, 7, client.machine.nonce)
    }
    bus.run_until(lambda: client.machine.id == 9)
    assert client.commands[4:] == [
        Subscribe(topic(9)),
        Subscribe(topic(10)),
        Unsubscribe(topic(7)),
        Unsubscribe(topic(8)),
    ]


def test_6_to_8_a_free_id_is_registered_and_acknowledged() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", ids=iter((7,)))
    established(bus, client)
    (acknowledge,) = heard(client, Command.ACK)
    assert acknowledge.simulation == 7
    assert NONCE.first(acknowledge) == client.machine.nonce
    assert set(server.machine.clients) == {7}


def test_7_and_9_a_registered_id_is_refused_and_another_one_drawn() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    first = bus.client("x", ids=iter((7,)))
    established(bus, first)
    second = bus.client("y", ids=iter((7, 9)))
    bus.run_until(lambda: second.is_in(ClientState.BACKING_OFF))
    refusal = heard(second, Command.NACK)[0]
    assert (refusal.simulation, REASON.first(refusal)) == (7, Reason.CONFLICT)
    assert said(second)[-1].command == Command.LEAVE
    established(bus, second)
    assert (first.machine.id, second.machine.id) == (7, 9)
    assert set(server.machine.clients) == {7, 9}


def test_9_without_a_response_in_three_seconds_another_id_is_drawn() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", ids=iter((7, 9)))
    bus.run_until(lambda: bool(client.links))
    bus.cut_way(client, server)
    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    start = bus.now
    bus.run_until(lambda: client.is_in(ClientState.BACKING_OFF))
    assert round(bus.now - start, 6) == 3.0
    bus.heal()
    established(bus, client)
    assert client.machine.id == 9
    assert client.of(Established) == [Established(9, resumed=False)]


def test_10_an_established_client_sends_normal_heartbeats_and_its_initial_data() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", packed=b"spheres")
    established(bus, client)
    bus.run(5)
    commands = [m.command for m in said(client)]
    first = commands.index(Command.LOOKUP)
    assert commands[:first] == [Command.ANNOUNCE] * first
    assert commands[first + 1 : first + 3] == [Command.DATA, Command.HEARTBEAT]
    assert commands.count(Command.DATA) == 1, "no server had to ask for it"
    assert Command.ANNOUNCE not in commands[first:]
    assert 4 <= commands.count(Command.HEARTBEAT) <= 7
    assert BLOB.first(said(client, Command.DATA)[0]) == b"spheres"
    assert server.machine.clients[client.machine.id].data == b"spheres"


def test_11_a_silent_client_is_suspected_then_de_registered_and_its_data_deleted() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client, other = bus.client("x", packed=b"spheres"), bus.client("y")
    established(bus, client, other)
    bus.run(3)
    bus.cut(client, server)
    cut = bus.now
    bus.run_until(lambda: bool(server.of(PeerSuspected)))
    assert 3.9 < bus.now - cut < 5.1
    bus.run_until(lambda: bool(server.of(PeerLeft)))
    assert 8.9 < bus.now - cut < 10.1
    (left,) = server.of(PeerLeft)
    assert (left.peer.id, left.peer.packed) == (client.machine.id, b"")
    assert left.reason is Reason.EXPIRED
    assert client.machine.id not in server.machine.clients
    bus.run(1)
    assert other.of(PeerLeft)[0].reason is Reason.EXPIRED
    assert not other.machine.peers


@pytest.mark.parametrize("seeds", [range(2), *soaked([range(2, 30)])], ids=str)
def test_all_steps_with_loss_and_delay_on_three_servers(seeds: range) -> None:
    for seed in seeds:
        bus = SimulatedCluster(seed, delay=(0.001, 0.3), loss=0.1)
        servers = [bus.server(n, join=[0], new_cluster=n == 0) for n in range(3)]
        clients: list[Any] = [bus.client(str(n), packed=b"%d" % n) for n in range(5)]
        established(bus, *clients)
        bus.loss = 0.0
        bus.run(15)
        ids = {client.machine.id for client in clients}
        assert is_established(*clients), seed
        assert len(ids) == 5, seed
        assert all(set(s.machine.clients) == ids for s in servers), seed
        assert all(set(c.machine.peers) == ids - {c.machine.id} for c in clients), seed
        assert {c.machine.peers[clients[0].machine.id].data for c in clients[1:]} == {b"0"}, seed
        assert all(c.of(PeerEntered) for c in clients), seed
