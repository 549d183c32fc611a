"""A member: it has the cluster's secret, and it tries to be a server, or to speak for one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sphtp.core.control.codec import Part
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import PeerEntered, ServerEntered
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
    Snapshot,
)
from sphtp.core.control.vocabulary import MemberState, Reason
from sphtp.core.secure.signing import (
    CONNECTIONS_KEPT,
    MAX_FAILURES,
    SEAL_SIZE,
    TO_CLIENTS,
    TO_SERVERS,
    Certificate,
    ClusterKey,
    ServerKey,
    SignatureStatus,
    Signer,
    Verifier,
)
from sphtp.core.secure.vouch import Voucher
from sphtp.testing.cluster import SimulatedClient, SimulatedCluster, server_address
from tests.core.control.helpers import Node, established, is_established

SECRET = bytes(range(32))
AUTHORITY, OTHERS = ClusterKey(bytes(range(32))), ClusterKey(bytes(32))
SERVER = ServerKey(bytes(range(1, 33))).certified(AUTHORITY)
TRUE_KEY, MALLORYS_KEY = b"true".ljust(32), b"mallory".ljust(32)
ROGUE = 0x666
ELSEWHERE = (Candidate("192.0.2.66", 66),)


def cluster(seed: int = 1) -> tuple[SimulatedCluster, Node, Node]:
    """A bus with a secret, a server that signs, and a client of it."""
    bus = SimulatedCluster(seed, secret=SECRET, authority=AUTHORITY)
    server = bus.server(0, new_cluster=True)
    victim = bus.client("victim", key=TRUE_KEY)
    established(bus, victim)
    return bus, server, victim


def say(
    bus: SimulatedCluster, node: Node, message: ServerMessage | MemberMessage, key: ServerKey | None
) -> None:
    """Let a member say something, signed with a key of its own or not at all."""
    data = message.encode()
    if key is not None:
        purpose = TO_CLIENTS if isinstance(node, SimulatedClient) else TO_SERVERS
        data = Signer(key, bus.random.getrandbits(64), purpose).sign(data)
    bus.inject(node, Voucher(SECRET, bus.random.getrandbits(64)).vouch(data), -1)


KEYS: dict[str, ServerKey | None] = {
    "unsigned": None,
    "signed by nobody": ServerKey(bytes(32)),
    "vouched for by another cluster": ServerKey(bytes(32)).certified(OTHERS),
}
WITH = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)


def heartbeat(state: MemberState = MemberState.ACTIVE) -> ServerHeartbeat:
    rogue = Member(ROGUE, 666, server_address(6), state)
    return ServerHeartbeat(rogue, ClusterView(1 << 60, (rogue,)))


@WITH
def test_a_member_joins_no_view(key: ServerKey | None) -> None:
    """What must hold: to servers and clients it is no server, and its address is not dialled."""
    bus, server, victim = cluster()
    for node in (server, victim):
        view, commands = node.machine.view, list(node.commands)
        say(bus, node, heartbeat(), key)
        assert (node.machine.view, node.commands) == (view, commands)
        counters = node.machine.counters
        assert counters[Count.UNSIGNED if key is None else Count.UNKNOWN_KEY] == 1
    bus.run(30.0)
    assert len(server.of(ServerEntered)) == 0
    assert len(victim.of(ServerEntered)) == 1
    assert is_established(victim)


@WITH
def test_a_member_is_nobody_else_to_a_newcomer(key: ServerKey | None) -> None:
    """What must hold: a newcomer has the victim's own key, whoever told another one first.

    The attack: join the view as a server, wait for a newcomer, and tell it of the victim before
    the servers do, with a key of one's own. Every channel to the victim is then one to the rogue.
    """
    bus, server, victim = cluster()
    known = server.machine.clients[victim.machine.id]
    lie = replace(known, key=MALLORYS_KEY, candidates=ELSEWHERE)
    say(bus, server, heartbeat(), key)
    say(bus, server, Registered(ROGUE, (lie,)), key)
    newcomer = bus.client("newcomer")
    bus.run_until(lambda: bool(newcomer.machine.servers))
    say(bus, newcomer, heartbeat(), key)
    say(bus, newcomer, Peers(ROGUE, 0, (lie,)), key)
    say(bus, newcomer, Peers(server.machine.id, 0, (lie,)), key)
    established(bus, newcomer)
    bus.run(3.0)
    assert newcomer.machine.peers[victim.machine.id] == known
    assert [event.peer.key for event in newcomer.of(PeerEntered)] == [TRUE_KEY]
    assert server.machine.clients[victim.machine.id] == known


def test_without_keys_of_servers_a_member_is_whoever_it_likes_to_be() -> None:
    """What the secret alone does not hold, which is why servers have keys."""
    bus = SimulatedCluster(secret=SECRET)
    server, victim = bus.server(0, new_cluster=True), bus.client("victim", key=TRUE_KEY)
    established(bus, victim)
    lie = replace(server.machine.clients[victim.machine.id], key=MALLORYS_KEY)
    newcomer = bus.client("newcomer")
    bus.run_until(lambda: bool(newcomer.machine.servers))
    say(bus, newcomer, heartbeat(), None)
    say(bus, newcomer, Peers(ROGUE, 0, (lie,)), None)
    bus.run(3.0)
    assert newcomer.machine.peers[victim.machine.id].key == MALLORYS_KEY


ANYTHING: dict[str, Callable[[Node, Holder], ServerMessage | MemberMessage]] = {
    "ack": lambda server, own: IdAck(server.machine.id, (own,)),
    "nack": lambda server, own: IdNack(server.machine.id, *own, Reason.DENIED),
    "leave": lambda server, _: ServerLeave(server.machine.id, server.machine.member.nonce),
    "peer left": lambda server, own: PeersGone(
        server.machine.id, 0, (GoneHolder(*own, Reason.LEFT),)
    ),
    "released": lambda server, own: Released(server.machine.id, (GoneHolder(*own, Reason.LEFT),)),
    "registered": lambda server, own: Registered(server.machine.id, (PeerRecord(*own),)),
}


@pytest.mark.parametrize("what", ANYTHING)
def test_a_member_speaks_for_no_server(what: str) -> None:
    """What must hold: nothing that gives power is heard of whoever is no server."""
    bus, first, client = cluster()
    second = bus.server(1, join=[0])
    bus.run_until(lambda: len(first.machine.view.active) == 2)
    bus.run(3.0)
    forged = ANYTHING[what](second, Holder(client.machine.id, client.machine.nonce))
    before = [dict(first.machine.clients), first.machine.view.active, client.machine.view.active]
    for node in (first, client):
        for key in KEYS.values():
            say(bus, node, forged, key)
    after = [dict(first.machine.clients), first.machine.view.active, client.machine.view.active]
    assert after == before
    for node in (first, client):
        counters = node.machine.counters
        assert (counters[Count.UNSIGNED], counters[Count.UNKNOWN_KEY]) == (1, len(KEYS) - 1)
    bus.run(12.0)
    assert is_established(client)


@pytest.mark.parametrize("what", ["leave", "nack", "peer left"])
def test_a_server_speaks_for_no_other_server(what: str) -> None:
    """What must hold: a server has its own power, and not the name of another one."""
    bus, server, client = cluster()
    own = Holder(client.machine.id, client.machine.nonce)
    say(bus, client, ANYTHING[what](server, own), ServerKey(bytes(32)).certified(AUTHORITY))
    assert client.machine.counters[Count.FOREIGN_KEY] == 1
    assert is_established(client)
    assert len(client.machine.servers) == 1


def test_servers_that_sign_do_all_that_servers_do() -> None:
    """What must hold: several servers that join and leave, restart, clients that come and go."""
    bus = SimulatedCluster(secret=SECRET, authority=AUTHORITY)
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    early = bus.client("early", (0, 1), packed=b"early", key=TRUE_KEY)
    bus.run_until(lambda: all(len(s.machine.view.active) == 2 for s in (first, second)))
    established(bus, early)
    late = bus.client("late", (0, 1), key=MALLORYS_KEY)
    established(bus, late)
    bus.run_until(lambda: early.machine.id in late.machine.peers)
    bus.run_until(lambda: late.machine.id in early.machine.peers)
    bus.kill(first)
    third = bus.server(0, join=[1])
    bus.run_until(lambda: third.machine.view.active >= {third.machine.id, second.machine.id})
    bus.run(15.0)
    assert dict(third.machine.clients) == dict(second.machine.clients)
    assert late.machine.peers[early.machine.id].data == b"early"
    early.machine.leave(bus.now)
    bus.pump(early)
    bus.run_until(lambda: early.machine.id not in late.machine.peers)
    assert early.machine.id not in third.machine.clients
    for node in (second, third, late):
        for count in (Count.UNSIGNED, Count.UNKNOWN_KEY, Count.FOREIGN_KEY, Count.REPLAYED):
            assert node.machine.counters[count] == 0, count


def test_a_recording_of_a_server_tells_a_newcomer_nothing_of_clients() -> None:
    """What must hold: what a server said once is not believed about who is there now.

    The attack: hold an id until the server has told everybody, leave it, let the victim have it,
    and play the server's own signed words to somebody who has just begun.
    """
    bus, server, _ = cluster()
    rogue = bus.client("rogue", key=MALLORYS_KEY, ids=iter((77,)))
    established(bus, rogue)
    bus.run(1.0)
    recording = list(server.published)
    rogue.machine.leave(bus.now)
    bus.pump(rogue)
    bus.run(15.0)
    holder = bus.client("holder", key=TRUE_KEY, ids=iter((77,)))
    established(bus, holder)
    newcomer = bus.client("newcomer")
    other = bus.server(1, join=[0])
    for node in (newcomer, other):
        for data in recording:
            bus.inject(node, data, -1)
    assert newcomer.machine.peers == other.machine.clients == {}
    assert newcomer.machine.counters[Count.UNPROVEN] > 0
    established(bus, newcomer)
    bus.run(15.0)
    assert newcomer.machine.peers[77].key == other.machine.clients[77].key == TRUE_KEY
    assert {event.peer.key for event in newcomer.of(PeerEntered)} == {TRUE_KEY}


def test_what_is_for_clients_is_nothing_to_servers_and_the_other_way_round() -> None:
    message = heartbeat().encode()
    for purpose, other in ((TO_CLIENTS, TO_SERVERS), (TO_SERVERS, TO_CLIENTS)):
        signed = Signer(SERVER, 1, purpose).sign(message)
        for reader, status in (
            (other, SignatureStatus.UNSIGNED),
            (purpose, SignatureStatus.GENUINE),
        ):
            assert Verifier([AUTHORITY.public], reader).judge(signed, 0).verdict is status


def test_no_bit_can_be_changed() -> None:
    """What must hold: header, words, key, certificate, number and signature are all covered."""
    signed = Signer(SERVER, 1, TO_CLIENTS).sign(heartbeat().encode())
    for bit in range(0, 8 * len(signed), 7):
        bent = bytearray(signed)
        bent[bit // 8] ^= 1 << bit % 8
        judged = Verifier([AUTHORITY.public], TO_CLIENTS).judge(bytes(bent), 0)
        assert judged.verdict is not SignatureStatus.GENUINE, bit
    for size in range(len(signed)):
        judged = Verifier([AUTHORITY.public], TO_CLIENTS).judge(signed[:size], 0)
        assert judged.verdict is SignatureStatus.UNSIGNED


def test_a_signature_counts_once_and_no_older_one_after_it() -> None:
    signer, listener = Signer(SERVER, 1, TO_CLIENTS), Verifier([SERVER.public], TO_CLIENTS)
    said = [signer.sign(heartbeat().encode()) for _ in range(3)]
    verdicts = [listener.judge(said[at], 0).verdict for at in (1, 0, 1, 2)]
    assert verdicts == [
        SignatureStatus.GENUINE,
        SignatureStatus.REPLAYED,
        SignatureStatus.REPLAYED,
        SignatureStatus.GENUINE,
    ]


def test_a_certificate_is_for_one_key_and_nothing_else_that_is_signed_is_one() -> None:
    """What must hold: a server's power is not handed on by a copy, nor by what a server signs."""
    stolen = ServerKey(bytes(32))
    stolen.certificate = SERVER.certificate
    chained = ServerKey(bytes(32))
    chained.certificate = Certificate(SERVER.public, SERVER.sign(chained.public))
    listener = Verifier([AUTHORITY.public, SERVER.public], TO_CLIENTS)
    for key in (stolen, chained):
        signed = Signer(key, 1, TO_CLIENTS).sign(heartbeat().encode())
        assert listener.judge(signed, 0).verdict is SignatureStatus.UNKNOWN


def test_wrong_signatures_cost_a_bounded_time() -> None:
    """What must hold: after some through one connection no more are checked, there only."""
    signer = Signer(SERVER, 1, TO_CLIENTS)
    signed, later = (signer.sign(heartbeat().encode()) for _ in range(2))
    wrong = later[:-1] + bytes((later[-1] ^ 1,))
    listener = Verifier([AUTHORITY.public], TO_CLIENTS)
    for _ in range(MAX_FAILURES):
        assert listener.judge(wrong, 1).verdict is SignatureStatus.UNSIGNED
    assert listener.judge(signed, 1).verdict is SignatureStatus.UNSIGNED
    assert listener.judge(signed, 2).verdict is SignatureStatus.GENUINE
    # The connections that failed are remembered as far as there is room: the first one is not.
    for pipe in range(3, 3 + CONNECTIONS_KEPT):
        assert listener.judge(wrong, pipe).verdict is SignatureStatus.UNSIGNED
    assert listener.judge(later, 1).verdict is SignatureStatus.GENUINE


def test_a_snapshot_that_was_recorded_is_for_somebody_else() -> None:
    bus, server, _ = cluster()
    joining = bus.server(1, join=[0])
    bus.run_until(lambda: len(server.machine.view.active) == 2)
    say(bus, joining, Snapshot(server.machine.id, joining.machine.id, Part(0, 1), ()), SERVER)
    bus.run(1.0)
    assert len(joining.machine.clients) == 1


def test_a_mark_takes_the_room_that_it_says() -> None:
    message = heartbeat().encode()
    assert len(Signer(SERVER, 1, TO_CLIENTS).sign(message)) == len(message) + SEAL_SIZE
