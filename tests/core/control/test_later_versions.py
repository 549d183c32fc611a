"""Programs of later versions: what is unknown costs no more than itself, and never unanimity."""

from dataclasses import replace

import pytest

from sphtp.core.control.client_messages import Announce
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import NONCE, Message, Parameter
from sphtp.core.control.outputs import IdLost, PeerLeft
from sphtp.core.control.records import ClusterView, Holder, Member, Peer, PeerRecord
from sphtp.core.control.server_messages import IdAck, Peers, ServerHeartbeat
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Command, DataId, MemberState, Reason
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.core.control.helpers import Node, active_server, ask, established, is_established, said

OLD, LATER = 4, 8
UNKNOWN_REASON = Parameter(DataId.REASON, b"\xff\xff")


def heartbeat(state: int, *urls: bytes) -> bytes:
    """A heartbeat of an old server that tells of a later one."""
    member = LATER.to_bytes(4, "little") + (5).to_bytes(8, "little") + bytes([state])
    member += b"".join(len(url).to_bytes(2, "little") + url for url in urls)
    own = ServerHeartbeat(Member(OLD, 3, server_address(0)), ClusterView(2)).encode()
    return own + Message(0, 0, 0, (Parameter(DataId.MEMBER, member),)).encode()[10:]


def announcing(bus: SimulatedCluster, state: int, *urls: bytes) -> Node:
    """A client that the old server acknowledged."""
    client = bus.client("x", ids=iter((7,)))
    bus.inject(client, heartbeat(state, *urls))
    assert client.is_in(ClientState.ANNOUNCING)
    bus.inject(client, IdAck(OLD, (Holder(client.machine.id, client.machine.nonce),)).encode())
    return client


def test_a_member_that_cannot_be_dialled_still_has_to_agree() -> None:
    bus = SimulatedCluster()
    client = announcing(bus, MemberState.ACTIVE, b"quic://a:1", b"quic://a:2")
    assert client.is_in(ClientState.ANNOUNCING)
    assert list(client.dialled) == [server_address(0)]
    bus.inject(client, IdAck(LATER, (Holder(client.machine.id, client.machine.nonce),)).encode())
    assert is_established(client)


def test_a_member_in_an_unknown_state_is_not_waited_for() -> None:
    assert is_established(announcing(SimulatedCluster(), 9))


def test_an_unknown_refusal_gives_an_id_up() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x", ids=iter((7, 9, 11)))

    def refuse() -> None:
        parameters = (NONCE.of(client.machine.nonce), UNKNOWN_REASON)
        nack = Message(client.machine.id, server.machine.id, Command.NACK, parameters)
        bus.inject(client, nack.encode())

    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    refuse()
    assert client.is_in(ClientState.BACKING_OFF)
    established(bus, client)
    refuse()
    assert client.of(IdLost) == [IdLost(9, Reason.OTHER)]
    established(bus, client)
    assert client.machine.id == 11


def test_a_peer_that_left_for_an_unknown_reason_is_gone() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x")
    established(bus, client)
    bus.inject(client, Peers(server.machine.id, 0, (PeerRecord(99, 0),)).encode())
    gone = Parameter(DataId.GONE, bytes([99, 0, 0, 0]) + bytes(8) + b"\xff\0")
    bus.inject(client, Message(0, server.machine.id, Command.PEER_LEFT, (gone,)).encode())
    assert client.of(PeerLeft) == [PeerLeft(Peer.from_record(PeerRecord(99, 0)), Reason.OTHER)]


def test_a_server_hears_a_member_of_a_later_version() -> None:
    bus = SimulatedCluster()
    server = bus.server(0)
    bus.run(0.5)
    later = ServerHeartbeat(Member(LATER, 5, None), ClusterView(1)).encode()
    state = Parameter(DataId.STATE, b"\x09")
    parameters = (NONCE.of(5), state, Parameter(DataId.VERSION, b"\x09\0"))
    bus.inject(server, Message(0, LATER, Command.HEARTBEAT, parameters).encode())
    assert Member(LATER, 5, None, MemberState.JOINING) in server.machine.view.members
    assert not said(server, Command.SNAPSHOT_REQUEST)
    bus.inject(server, later)
    assert Member(LATER, 5, None, MemberState.ACTIVE) in server.machine.view.members
    assert said(server, Command.SNAPSHOT_REQUEST)
    assert server.is_in(ServerState.JOINING)


@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_versions_that_a_server_does_not_speak_are_refused_with_that_reason(version: int) -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    answer = ask(bus, server, replace(Announce(7, 5), version=version))
    assert answer == [(Command.NACK, 7, 5, Reason.VERSION)]
    assert server.machine.clients == {}
    assert ask(bus, server, Announce(7, 5)) == [(Command.ACK, 7, 5, 0)]
