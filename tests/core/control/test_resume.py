"""Suspended is not gone; and nobody is blamed because this process slept."""

from sphtp.core.control.client_messages import Announce, ClientData
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import NONCE, REASON, Message
from sphtp.core.control.directory import PendingLookups
from sphtp.core.control.outputs import (
    Established,
    IdLost,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    PeerUnknown,
    ServerLeft,
    Suspended,
)
from sphtp.core.control.records import Digest, GoneHolder, Holder, PeerRecord, next_revision
from sphtp.core.control.server_messages import (
    IdAck,
    Peers,
    PeersGone,
    ServerHeartbeat,
    ServerLeave,
)
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import Node, established, said


def test_a_client_that_hears_nobody_is_suspended_and_resumes_with_its_id() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client, peer = bus.client("x"), bus.client("y")
    established(bus, client, peer)
    bus.run(1)
    holder = client.machine.id, client.machine.nonce
    bus.cut(client, server)
    bus.run(8)
    assert client.is_in(ClientState.ESTABLISHED)
    bus.run(3)
    assert client.is_in(ClientState.SUSPENDED)
    assert set(client.machine.peers) == {peer.machine.id}
    assert peer.of(PeerLeft)
    bus.run(60)
    bus.heal()
    established(bus, client)
    assert (client.machine.id, client.machine.nonce) == holder
    assert client.of(Established)[-1] == Established(holder[0], resumed=True)
    assert len(client.of(Suspended)) == 1
    bus.run(15)
    assert not client.of(PeerLeft)
    assert peer.of(PeerEntered)[-1].peer.id == holder[0]


def test_peers_that_nobody_vouches_for_go_one_expiry_after_the_resumption() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client, peer = bus.client("x"), bus.client("y")
    established(bus, client, peer)
    bus.run(1)
    for node in (server, peer):
        bus.kill(node)
    bus.run(15)
    bus.server(0)
    established(bus, client)
    assert set(client.machine.peers) == {peer.machine.id}
    bus.run(12)
    assert client.machine.peers == {}
    assert client.of(PeerLeft)[0].reason is Reason.EXPIRED


def test_a_suspended_client_still_tries_the_servers_that_it_was_not_told_of() -> None:
    bus = SimulatedCluster()
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    client = bus.client("x", [0])
    bus.run(5)
    established(bus, client)
    bus.kill(first)
    bus.cut(client, second)
    bus.run(30)
    assert client.is_in(ClientState.SUSPENDED)
    bus.heal()
    established(bus, client)


def test_an_id_taken_meanwhile_is_lost() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", ids=iter((7, 9)))
    established(bus, client)
    bus.cut(client, server)
    bus.run(25)
    bus.inject(server, Announce(7, 12345).encode())
    bus.heal()
    established(bus, client)
    assert client.machine.id == 9
    assert client.of(IdLost) == [IdLost(7, Reason.CONFLICT)]


def test_a_client_without_any_server_left_is_suspended_at_once() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x")
    established(bus, client)
    server.machine.stop(bus.now)
    bus.pump(server)
    bus.run(0.5)
    assert client.is_in(ClientState.SUSPENDED)
    assert client.of(ServerLeft)[0].reason is Reason.LEFT


def test_a_short_visit_of_a_server_leads_back_to_suspended() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x")
    established(bus, client)
    bus.cut(client, server)
    bus.run(12)
    bus.inject(client, Message(0, 4444, Command.HEARTBEAT, (NONCE.of(3),)).encode())
    assert client.is_in(ClientState.RESUMING)
    bus.run(12)
    assert client.is_in(ClientState.SUSPENDED)
    assert len(client.of(Suspended)) == 1
    client.machine.leave(bus.now)
    bus.pump(client)
    assert client.is_in(ClientState.LEFT)
    assert said(client)[-1].command == Command.LEAVE


def test_a_client_that_slept_does_not_blame_its_servers() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client, peer = bus.client("x"), bus.client("y")
    established(bus, client, peer)
    bus.run(1)
    bus.sleep(client, 60)
    bus.run(59)
    assert client.machine.id not in server.machine.clients
    bus.run(5)
    assert client.is_in(ClientState.ESTABLISHED)
    assert not client.of(ServerLeft)
    assert not client.of(Suspended)
    assert client.machine.counters["overslept"] == 1
    assert client.machine.id in server.machine.clients


def test_a_server_that_slept_does_not_blame_clients_nor_members() -> None:
    bus = SimulatedCluster()
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    clients = [bus.client("x"), bus.client("y")]
    established(bus, *clients)
    bus.run(5)
    bus.sleep(first, 60)
    bus.run(59)
    assert second.of(ServerLeft)
    bus.run(10)
    assert not first.of(PeerLeft)
    assert not first.of(PeerSuspected)
    assert not first.of(ServerLeft)
    assert first.machine.counters["overslept"] == 1
    assert first.machine.view == second.machine.view
    assert len(first.machine.view.members) == 2
    assert all(c.is_in(ClientState.ESTABLISHED) for c in clients)
    assert not any(c.of(Suspended) for c in clients)


def test_a_joining_server_that_slept_waits_longer() -> None:
    bus = SimulatedCluster()
    server = bus.server(0)
    bus.run(5)
    bus.sleep(server, 60)
    bus.run(70)
    assert server.is_in(ServerState.JOINING)
    bus.run(10)
    assert server.is_in(ServerState.ACTIVE)


def test_leaving_is_told_to_servers_and_peers_at_once() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client, peer = bus.client("x"), bus.client("y")
    established(bus, client, peer)
    bus.run(1)
    client.machine.leave(bus.now)
    bus.pump(client)
    bus.run(0.5)
    assert peer.of(PeerLeft)[0].reason is Reason.LEFT
    assert server.of(PeerLeft)[0].reason is Reason.LEFT
    assert client.machine.poll_timeout() is None


def test_stale_data_are_noticed_and_sent_again() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client, peer = bus.client("x", packed=b"1"), bus.client("y")
    established(bus, client, peer)
    bus.run(1)
    bus.cut(client, server)
    client.machine.set_data(bus.now, b"2")
    bus.pump(client)
    bus.heal()
    assert server.machine.clients[client.machine.id].data == b"1"
    bus.run(2)
    assert server.machine.clients[client.machine.id].data == b"2"
    assert peer.machine.peers[client.machine.id].data == b"2"


def test_lost_news_about_peers_are_noticed_by_the_digest() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x")
    established(bus, client)
    bus.run(1)
    bus.cut_way(server, client)
    peer = bus.client("y")
    established(bus, peer)
    bus.run(0.5)
    assert client.machine.peers == {}
    bus.heal()
    bus.run(2.5)
    assert set(client.machine.peers) == {peer.machine.id}
    lookups = said(client, Command.LOOKUP)
    bus.run(10)
    assert said(client, Command.LOOKUP) == lookups


def test_one_peer_can_be_looked_up() -> None:
    bus = SimulatedCluster()
    bus.server(0, new_cluster=True)
    client, peer = bus.client("x"), bus.client("y")
    established(bus, client, peer)
    bus.run(1)
    before = len(client.received)
    for number in (peer.machine.id, 9):
        client.machine.lookup(bus.now, number)
    bus.pump(client)
    bus.run(0.1)
    answers = [Command(data[8] | data[9] << 8) for data in client.received[before:]]
    assert answers.count(Command.PEERS) == 1
    assert answers.count(Command.PEER_LEFT) == 1
    assert set(client.machine.peers) == {peer.machine.id}
    assert client.of(PeerUnknown) == [PeerUnknown(9)]


def test_a_peer_is_unknown_when_all_servers_say_so() -> None:
    bus = SimulatedCluster()
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    client = bus.client("x", ids=iter((7,)))
    bus.run(5)
    established(bus, client)

    def deny(server: Node, to: int) -> None:
        gone = PeersGone(server.machine.id, to, (GoneHolder(9, 0, Reason.UNKNOWN),))
        bus.inject(client, gone.encode())

    client.machine.lookup(bus.now, 9)
    deny(first, 7)
    deny(first, 7)
    deny(second, 0)
    assert client.of(PeerUnknown) == []
    deny(second, 7)
    deny(second, 7)
    assert client.of(PeerUnknown) == [PeerUnknown(9)]
    client.machine.lookup(bus.now, 9)
    deny(first, 7)
    bus.inject(client, Peers(second.machine.id, 7, (PeerRecord(9, 1),)).encode())
    deny(second, 7)
    assert client.of(PeerUnknown) == [PeerUnknown(9)]
    assert 9 in client.machine.peers


def test_a_peer_looked_up_while_no_server_is_heard_is_asked_for_on_return() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x")
    client.machine.lookup(bus.now, 9)
    established(bus, client)
    bus.run(1)
    assert client.of(PeerUnknown) == [PeerUnknown(9)]
    bus.cut(client, server)
    bus.run_until(lambda: client.is_in(ClientState.SUSPENDED))
    client.machine.lookup(bus.now, 9)
    bus.pump(client)
    bus.run(5)
    assert client.of(PeerUnknown) == [PeerUnknown(9)]
    bus.heal()
    established(bus, client)
    bus.run(1)
    assert client.of(PeerUnknown) == [PeerUnknown(9), PeerUnknown(9)]


def test_a_list_that_stays_different_is_asked_for_ever_less_often() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x")
    established(bus, client)
    bus.run(1)
    (member,) = server.machine.view.members
    heartbeat = ServerHeartbeat(member, server.machine.view, Digest(1, 4711))
    bus.cut(client, server)
    before = len(said(client, Command.LOOKUP))
    own = Holder(client.machine.id, client.machine.nonce)
    for _ in range(60):
        bus.inject(client, heartbeat.encode())
        bus.inject(client, IdAck(member.id, (own,)).encode())
        bus.run(1)
    assert client.is_in(ClientState.ESTABLISHED)
    assert len(said(client, Command.LOOKUP)) - before == 10


def test_a_server_that_goes_has_no_say_in_a_search() -> None:
    pending_lookups = PendingLookups()
    pending_lookups.begin(9, (2, 4))
    assert pending_lookups.lose([4]) == []
    assert pending_lookups.deny(9, 2)
    pending_lookups.begin(9, (2,))
    assert pending_lookups.lose([2]) == []
    assert not pending_lookups.deny(9, 2)
    assert pending_lookups.peers == (9,)


def test_a_search_ends_when_the_last_server_that_had_to_answer_goes() -> None:
    pending_lookups = PendingLookups()
    for gone, unknown in (((4,), [9]), ((2,), []), ((2, 4), [])):
        pending_lookups.begin(9, (2, 4))
        assert not pending_lookups.deny(9, 2)
        assert pending_lookups.lose(gone) == unknown
        assert pending_lookups.peers == (() if unknown else (9,))


def test_a_peer_is_unknown_when_the_server_that_did_not_answer_goes() -> None:
    bus = SimulatedCluster()
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    client = bus.client("x", ids=iter((7,)))
    bus.run(5)
    established(bus, client)
    client.machine.lookup(bus.now, 9)
    gone = PeersGone(first.machine.id, 7, (GoneHolder(9, 0, Reason.UNKNOWN),))
    bus.inject(client, gone.encode())
    assert client.of(PeerUnknown) == []
    member = client.machine.servers[second.machine.id]
    bus.inject(client, ServerLeave(member.id, member.nonce).encode())
    assert client.of(PeerUnknown) == [PeerUnknown(9)]


def test_searches_are_bounded() -> None:
    pending_lookups = PendingLookups()
    for peer in range(3, 3 + 2 * 1025, 2):
        pending_lookups.begin(peer, (2,))
    assert not pending_lookups.deny(3, 2)
    assert pending_lookups.deny(5, 2)


def test_revisions_wrap_around() -> None:
    bus = SimulatedCluster()
    server, peer = bus.server(0, new_cluster=True), bus.client("y")
    established(bus, peer)
    bus.inject(server, Announce(7, 5).encode())
    # Two steps to the brink, for a revision is newer only when it is less than half way ahead.
    for revision in (2**31 - 1, 2**32 - 2, 2**32 - 1, next_revision(2**32 - 1), 2):
        data = b"%d" % revision
        bus.inject(server, ClientData(7, 5, revision, data).encode())
        bus.run(0.5)
        assert server.machine.clients[7].data == peer.machine.peers[7].data == data
    assert server.machine.clients[7].revision == 2


def test_busy_servers_are_asked_again_with_another_id() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", ids=iter((7, 9)))
    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    parameters = (NONCE.of(client.machine.nonce), REASON.of(Reason.FULL))
    bus.inject(client, Message(7, server.machine.id, Command.NACK, parameters).encode())
    assert client.is_in(ClientState.BACKING_OFF)
    established(bus, client)
    assert client.machine.id == 9
