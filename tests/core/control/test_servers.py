"""Several servers: joining, keeping one list, settling conflicts, meeting again."""

import pytest

from sphtp.core.control.client_messages import Announce, ClientData, Leave
from sphtp.core.control.codec import Part
from sphtp.core.control.outputs import (
    Dial,
    HangUp,
    IdLost,
    PeerLeft,
    ServerEntered,
    ServerLeft,
    StateChanged,
)
from sphtp.core.control.records import ClusterView, GoneHolder, Member, PeerRecord
from sphtp.core.control.server_messages import (
    Peers,
    Registered,
    Released,
    ServerHeartbeat,
    ServerLeave,
    Snapshot,
    SnapshotRequest,
)
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.core.control.helpers import Node, ask, established, heard, is_established

OTHER = Member(4, 44, server_address(5))


def two(bus: SimulatedCluster) -> tuple[Node, Node]:
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run(5)
    assert first.machine.view == second.machine.view
    assert second.is_in(ServerState.ACTIVE)
    return first, second


def alone(bus: SimulatedCluster) -> Node:
    """One active server that hears another one, which is only pretended."""
    server = bus.server(0, new_cluster=True)
    bus.inject(server, ServerHeartbeat(OTHER, ClusterView(1, (OTHER,))).encode())
    bus.run(0.5)
    return server


def test_a_joining_server_learns_everything_from_a_member() -> None:
    bus = SimulatedCluster()
    first = bus.server(0, new_cluster=True)
    bus.run(0.5)
    for number in range(3, 603, 2):
        bus.inject(first, Announce(number, 5).encode())
    for number in range(701, 801, 2):
        bus.inject(first, Announce(number, 7).encode())
        bus.inject(first, ClientData(number, 7, 1, bytes(4096)).encode())
    bus.pump(first)
    second = bus.server(1, join=[0])
    bus.run_until(lambda: second.is_in(ServerState.ACTIVE), 5)
    assert second.machine.clients == first.machine.clients
    assert len(heard(second, Command.SNAPSHOT)) > 3
    assert second.of(StateChanged) == [StateChanged(ServerState.ACTIVE)]


def test_a_record_counts_at_once_and_its_absence_when_the_list_is_whole() -> None:
    """To clients and servers alike; a part that is lost takes no other with it."""
    bus = SimulatedCluster()
    server, client = alone(bus), bus.client("x", ids=iter((99,)))
    one, other = PeerRecord(7, 5), PeerRecord(9, 5)
    bus.run_until(lambda: bool(client.machine.servers))
    number = server.machine.id
    for records, index, known in (
        ((one,), 0, {7}),
        ((other,), 1, {7, 9}),
        ((other,), 0, {7, 9}),
        ((), 1, {9}),
    ):
        part = Part(index, 2)
        bus.inject(server, Snapshot(OTHER.id, number, part, records).encode())
        bus.inject(client, Peers(number, 99, records, part).encode())
        assert known == set(server.machine.clients) - {99} == set(client.machine.peers)


def test_servers_dial_each_other_through_any_member() -> None:
    bus = SimulatedCluster()
    nodes = [bus.server(0, new_cluster=True), bus.server(1, join=[0]), bus.server(2, join=[1])]
    bus.run(5)
    for node in nodes:
        assert len(node.machine.view.members) == 3
        others = {n.address for n in nodes if n is not node}
        assert set(node.dialled) == others
    assert len({node.machine.view for node in nodes}) == 1


def test_a_member_that_is_gone_is_hung_up_unless_it_is_to_be_joined() -> None:
    bus = SimulatedCluster()
    first, second = two(bus)
    bus.kill(second)
    bus.run(12)
    assert first.of(ServerLeft)[0].reason is Reason.EXPIRED
    assert first.commands == [Dial(server_address(1)), HangUp(server_address(1))]
    again = bus.server(1, join=[0])
    bus.run(5)
    assert len(first.of(ServerEntered)) == 2
    assert first.machine.view == again.machine.view
    bus.kill(first)
    bus.run(12)
    assert again.commands == [Dial(server_address(0))]


def test_a_partition_heals_to_one_view_and_one_list() -> None:
    bus = SimulatedCluster()
    first, second = two(bus)
    client, other = bus.client("x", [0]), bus.client("y", [1])
    established(bus, client, other)
    bus.cut(first, second)
    bus.run(15)
    assert len(first.machine.view.members) == 1
    bus.heal()
    bus.run(20)
    assert first.machine.view == second.machine.view
    assert len(first.machine.view.members) == 2
    assert first.machine.clients == second.machine.clients
    assert is_established(client, other)


def test_two_holders_that_a_partition_made_are_settled() -> None:
    bus = SimulatedCluster()
    first, second = two(bus)
    bus.cut(first, second)
    bus.run(12)
    client, other = bus.client("x", [0], ids=iter((7, 9))), bus.client("y", [1], ids=iter((7, 11)))
    bus.cut(client, second)
    bus.cut(other, first)
    established(bus, client, other)
    assert client.machine.id == other.machine.id == 7
    bus.heal()
    bus.run(30)
    assert is_established(client, other)
    assert len({client.machine.id, other.machine.id}) == 2
    # Either may hear first that the other one is there, so one of them loses the id, or both do.
    assert client.of(IdLost) or other.of(IdLost)
    assert first.machine.clients == second.machine.clients
    assert set(first.machine.clients) == {client.machine.id, other.machine.id}


def test_a_client_known_from_another_server_lives_as_long_as_that_one_says() -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    record = PeerRecord(7, 5)
    bus.inject(server, Registered(4, (record, PeerRecord(9, 5))).encode())
    assert server.machine.clients[7] == record
    assert server.machine.status()["clients"][0]["told_by"] == 4
    bus.inject(server, Released(4, (GoneHolder(7, 6, Reason.EXPIRED),)).encode())
    assert 7 in server.machine.clients
    bus.inject(server, Released(4, (GoneHolder(7, 5, Reason.EXPIRED),)).encode())
    assert 7 not in server.machine.clients
    bus.inject(server, ServerLeave(4, 44).encode())
    bus.run(9)
    assert 9 in server.machine.clients
    bus.run(2)
    assert 9 not in server.machine.clients


def test_an_expiry_elsewhere_does_not_remove_whom_this_server_hears() -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    bus.inject(server, Announce(7, 5).encode())
    bus.inject(server, Released(4, (GoneHolder(7, 5, Reason.EXPIRED),)).encode())
    assert 7 in server.machine.clients
    bus.inject(server, Released(4, (GoneHolder(7, 5, Reason.LEFT),)).encode())
    assert 7 not in server.machine.clients
    bus.inject(server, Registered(4, (PeerRecord(7, 5),)).encode())
    assert 7 not in server.machine.clients
    assert server.machine.counters["stale_nonce"] == 1


@pytest.mark.parametrize(("told", "kept"), [(3, 3), (8, 5)])
def test_the_lower_nonce_keeps_the_id(told: int, kept: int) -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    bus.inject(server, Announce(7, 5).encode())
    before = len(server.sent)
    bus.inject(server, Registered(4, (PeerRecord(7, told),)).encode())
    assert server.machine.clients[7].nonce == kept
    commands = [out.data[8] for out in server.sent[before:]]
    assert Command.NACK in commands
    loser = Announce(7, max(5, told))
    assert ask(bus, server, loser) == [(Command.NACK, 7, loser.nonce, Reason.CONFLICT)]
    assert [event.reason for event in server.of(PeerLeft)] == [Reason.CONFLICT] * (kept == told)


def test_lost_news_between_servers_are_repaired_by_a_snapshot() -> None:
    bus = SimulatedCluster()
    first, second = two(bus)
    bus.cut(first, second)
    client = bus.client("x", [0])
    bus.inject(first, Announce(7, 5).encode())
    bus.heal()
    bus.kill(client)
    assert 7 not in second.machine.clients
    bus.run(5)
    assert heard(second, Command.SNAPSHOT)
    assert 7 in second.machine.clients


def test_a_snapshot_drops_those_whom_only_its_sender_knew() -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    bus.inject(server, Announce(11, 5).encode())
    bus.inject(server, Registered(4, (PeerRecord(7, 5), PeerRecord(9, 5))).encode())
    snapshot = Snapshot(4, server.machine.id, Part(0, 1), (PeerRecord(9, 5),))
    bus.inject(server, snapshot.encode())
    assert set(server.machine.clients) == {9, 11}


def test_two_servers_do_not_keep_a_client_alive_for_each_other() -> None:
    bus = SimulatedCluster()
    first, second = two(bus)
    client = bus.client("x")
    established(bus, client)
    bus.cut(client, second)
    bus.run(30)
    assert second.machine.status()["clients"][0]["told_by"] == first.machine.id
    bus.cut(first, second)
    bus.kill(client)
    bus.run(5)
    bus.heal()
    bus.run(25)
    assert first.machine.clients == second.machine.clients == {}


def test_the_same_id_at_two_servers_is_drawn_again() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    old = server.machine.id
    clash = Member(old, 12345, server_address(5))
    bus.inject(server, ServerHeartbeat(clash, ClusterView(1, (clash,))).encode())
    assert server.machine.id != old
    assert server.machine.id % 2 == 0
    bus.run(2)
    assert server.sent[-1].data[4:8] == server.machine.id.to_bytes(4, "little")
    established(bus, bus.client("x"))


def test_hearing_oneself_is_no_clash() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True, join=[0])
    old = server.machine.id
    assert server.commands == []
    bus.inject(server, server.sent[-1].data)
    assert server.machine.id == old
    assert len(server.machine.view.members) == 1


def test_strangers_may_not_speak_for_servers() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    before = server.machine.status()
    for message in (
        Registered(6, (PeerRecord(7, 5),)),
        Released(6, ()),
        SnapshotRequest(6, server.machine.id),
        Snapshot(6, server.machine.id, Part(0, 1), (PeerRecord(7, 5),)),
    ):
        bus.inject(server, message.encode())
    assert server.machine.counters["foreign"] == 4
    assert {**server.machine.status(), "counters": {}} == before


def test_requests_and_snapshots_for_others_are_left_alone() -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    before = len(server.sent)
    bus.inject(server, SnapshotRequest(4, 8).encode())
    bus.inject(server, Snapshot(4, 8, Part(0, 1), (PeerRecord(7, 5),)).encode())
    assert len(server.sent) == before
    assert server.machine.clients == {}


def test_a_released_id_is_kept_from_others_for_one_expiry() -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    bus.inject(server, Announce(7, 5).encode())
    bus.inject(server, Leave(7, 6).encode())
    assert 7 in server.machine.clients
    bus.inject(server, Leave(7, 5).encode())
    assert 7 not in server.machine.clients
    for nonce in (5, 6):
        assert ask(bus, server, Announce(7, nonce))[0][0] == Command.NACK
    bus.run(10)
    assert ask(bus, server, Announce(7, 6)) == [(Command.ACK, 7, 6, 0)]


def test_a_stopped_server_does_nothing() -> None:
    bus = SimulatedCluster()
    server = alone(bus)
    server.machine.stop(bus.now)
    bus.pump(server)
    before = len(server.sent)
    bus.inject(server, Announce(7, 5).encode())
    server.machine.handle_timeout(bus.now + 5)
    server.machine.handle_connected(bus.now + 5)
    bus.pump(server)
    assert len(server.sent) == before
    assert server.is_in(ServerState.STOPPED)
