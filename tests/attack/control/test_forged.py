"""Somebody at a server's port says what others should say: without a secret, and with one."""

from collections.abc import Callable

import pytest

from sphtp.core.control.client_messages import (
    Announce,
    ClientData,
    ClientMessage,
    ClientUser,
    Heartbeat,
    Leave,
    Lookup,
)
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import PeerChanged, PeerLeft, ServerLeft, UserMessage
from sphtp.core.control.records import (
    Candidate,
    ClusterView,
    GoneHolder,
    Holder,
    Member,
    PeerRecord,
)
from sphtp.core.control.server_messages import (
    IdAck,
    IdNack,
    MemberMessage,
    Peers,
    PeersGone,
    Registered,
    Released,
    ServerHeartbeat,
    ServerLeave,
    ServerMessage,
)
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.core.control.helpers import Node, established, is_established, said

STRANGER = -1
"""A connection of nobody else."""

SECRETS = pytest.mark.parametrize("secret", [None, bytes(range(32))], ids=["open", "secret"])

ELSEWHERE = (Candidate("192.0.2.66", 66),)


def cluster(secret: bytes | None) -> tuple[SimulatedCluster, Node, Node, Node]:
    """A bus with two servers that hear each other, and a client of both."""
    bus = SimulatedCluster(secret=secret)
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(s.machine.view.active) == 2 for s in (first, second)))
    client = bus.client("victim", (0, 1))
    established(bus, client)
    bus.run(2.0)
    return bus, first, second, client


def refused(node: Node) -> int:
    counters = node.machine.counters
    return int(counters[Count.FOREIGN_PIPE] + counters[Count.UNVOUCHED])


OF_CLIENTS: dict[str, Callable[[Holder], ClientMessage]] = {
    "heartbeat": lambda own: Heartbeat(*own, 7),
    "leave": lambda own: Leave(*own),
    "data": lambda own: ClientData(*own, 9, b"forged"),
    "lookup": lambda own: Lookup(*own),
    "user": lambda own: ClientUser(*own, 0x100, (Parameter(0x100, b"forged"),)),
    "announce": lambda own: Announce(*own, ELSEWHERE),
}


@SECRETS
@pytest.mark.parametrize("what", OF_CLIENTS)
def test_nobody_speaks_for_a_client(what: str, secret: bytes | None) -> None:
    """What must hold: the record stands, nothing is answered, the client notices nothing."""
    bus, server, _, client = cluster(secret)
    before, events = server.machine.clients[client.machine.id], len(server.events)
    spoken = len(server.sent)
    forged = OF_CLIENTS[what](Holder(client.machine.id, client.machine.nonce))
    bus.inject(server, forged.encode(), STRANGER)
    assert server.machine.clients[client.machine.id] == before
    assert server.events[events:] == []
    assert len(server.sent) == spoken
    assert refused(server) == 1
    bus.run(15.0)
    assert is_established(client)
    assert server.of(PeerLeft) == server.of(PeerChanged) == server.of(UserMessage) == []


def other_nonce(server: Node) -> ServerHeartbeat:
    own = server.machine.member
    liar = Member(own.id, own.nonce ^ 1, server_address(7))
    return ServerHeartbeat(liar, ClusterView(1 << 60, (liar,)))


OF_SERVERS: dict[str, Callable[[Node, Holder], ServerMessage | MemberMessage]] = {
    "heartbeat with another nonce": lambda server, _: other_nonce(server),
    "leave": lambda server, _: ServerLeave(server.machine.id, server.machine.member.nonce),
    "released": lambda server, own: Released(
        server.machine.id, (GoneHolder(*own, Reason.LEFT), GoneHolder(*own, Reason.EXPIRED))
    ),
    "registered": lambda server, own: Registered(
        server.machine.id, (PeerRecord(own.id, own.nonce, ELSEWHERE, b"forged", 99),)
    ),
}


@SECRETS
@pytest.mark.parametrize("what", OF_SERVERS)
def test_nobody_speaks_for_a_server_to_another(what: str, secret: bytes | None) -> None:
    """What must hold: view and list stand, and so does every client."""
    bus, first, second, client = cluster(secret)
    view, clients = first.machine.view, dict(first.machine.clients)
    forged = OF_SERVERS[what](second, Holder(client.machine.id, client.machine.nonce))
    bus.inject(first, forged.encode(), STRANGER)
    assert first.machine.view == view
    assert dict(first.machine.clients) == clients
    assert refused(first) == 1
    bus.run(15.0)
    assert is_established(client)
    assert first.of(ServerLeft) == first.of(PeerLeft) == []


TO_CLIENTS: dict[str, Callable[[Node, Holder], ServerMessage]] = {
    "ack": lambda server, own: IdAck(server.machine.id, (own,)),
    "nack conflict": lambda server, own: IdNack(server.machine.id, *own, Reason.CONFLICT),
    "nack denied": lambda server, own: IdNack(server.machine.id, *own, Reason.DENIED),
    "leave": OF_SERVERS["leave"],  # type: ignore[dict-item]
    "heartbeat": lambda server, _: other_nonce(server),
    "peers": lambda server, _: Peers(server.machine.id, 0, (PeerRecord(7, 7, ELSEWHERE),)),
    "peer left": lambda server, own: PeersGone(
        server.machine.id, 0, (GoneHolder(*own, Reason.LEFT),)
    ),
}


@SECRETS
@pytest.mark.parametrize("what", TO_CLIENTS)
def test_nobody_speaks_for_a_server_to_a_client(what: str, secret: bytes | None) -> None:
    """What must hold: the client keeps its id, its servers and its peers."""
    bus, first, second, client = cluster(secret)
    peer = bus.client("peer", (0, 1))
    established(bus, peer)
    bus.run(2.0)
    before = dict(client.machine.peers), client.machine.id, dict(client.machine.servers)
    assert before[0]
    whom = Holder(peer.machine.id, peer.machine.nonce)
    forged = TO_CLIENTS[what](first, whom if what == "peer left" else _own(client))
    bus.inject(client, forged.encode(), STRANGER)
    bus.run(3.0)
    assert (dict(client.machine.peers), client.machine.id, dict(client.machine.servers)) == before
    assert client.is_in(ClientState.ESTABLISHED)
    assert client.of(PeerLeft) == []
    assert refused(client) == 1
    assert second.is_in(second.machine.state)


def _own(client: Node) -> Holder:
    return Holder(client.machine.id, client.machine.nonce)


@SECRETS
def test_a_rival_gets_no_id_that_somebody_holds(secret: bytes | None) -> None:
    """What must hold: the rival is refused, and the refusal does not touch the holder."""
    bus, server, _, client = cluster(secret)
    rival = bus.client("rival", (0, 1), ids=iter((client.machine.id,)))
    bus.run_until(lambda: rival.machine.last_refusal is Reason.CONFLICT, 2.0)
    established(bus, rival)
    assert rival.machine.last_refusal is None
    assert rival.machine.id != client.machine.id
    assert is_established(client)
    assert server.machine.clients[client.machine.id].nonce == client.machine.nonce


@SECRETS
def test_a_server_is_not_driven_from_id_to_id(secret: bytes | None) -> None:
    """What must hold: whoever repeats our id with other nonces changes it once per expiry."""
    bus = SimulatedCluster(secret=secret)
    server = bus.server(0, new_cluster=True)
    bus.run(1.0)
    ids = {server.machine.id}
    for _ in range(100):
        bus.inject(server, other_nonce(server).encode(), STRANGER)
        ids.add(server.machine.id)
    assert len(ids) == (2 if secret is None else 1)
    bus.run(bus.timers.expiry)
    bus.inject(server, other_nonce(server).encode(), STRANGER)
    assert len(ids | {server.machine.id}) == (3 if secret is None else 1)


@SECRETS
def test_who_comes_back_through_another_connection_goes_on(secret: bytes | None) -> None:
    bus, server, _, client = cluster(secret)
    number, events = client.machine.id, len(client.events)
    bus.reconnect(client, server)
    bus.run(15.0)
    assert is_established(client)
    assert (client.machine.id, client.events[events:]) == (number, [])
    assert refused(server) == refused(client) == 0
    assert said(server, Command.NACK) == []


def test_a_connection_that_died_unnoticed_frees_the_id_after_half_an_expiry() -> None:
    """As after a power cut: the server is not told that the old one has ended."""
    bus, server, _, client = cluster(None)
    own = _own(client)
    bus.cut(client, server)
    bus.run(bus.timers.expiry / 2 + 0.5)
    bus.inject(server, Heartbeat(*own, 0).encode(), STRANGER)
    assert refused(server) == 0
    bus.inject(server, Heartbeat(*own, 0).encode(), STRANGER - 1)
    assert refused(server) == 1
