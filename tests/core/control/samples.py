"""One of every message, and some more."""

from typing import Any

from sphtp.core.clock import Stamp, Term, TimeRequest
from sphtp.core.control import client_messages as client
from sphtp.core.control import server_messages as server
from sphtp.core.control.codec import Parameter, Part
from sphtp.core.control.records import (
    Candidate,
    ClusterView,
    Digest,
    GoneHolder,
    Holder,
    Member,
    PeerRecord,
    Watch,
)
from sphtp.core.control.vocabulary import MemberState, Reason
from sphtp.testing.cluster import server_address

V4, V6 = Candidate("127.0.0.1", 5000), Candidate("::1", 65535)
KEY = bytes(range(32))
TOPICS = ("positions", "位置/1")
GROUPS = ("fluid", "流体")
NAME = "流体 1"
RECORD = PeerRecord(7, 9, (V4, V6), b"data", 3, KEY, TOPICS, NAME, GROUPS)
PLAIN = PeerRecord(9, 0)
MEMBERS = (Member(4, 5, server_address(0)), Member(8, 6, server_address(1), MemberState.JOINING))

STAMP = Stamp(Term(5, 2, 6, 5, 1 << 62), 1 << 63, 7)

FROM_CLIENT: list[Any] = [
    client.Heartbeat(7, 1 << 63, 4),
    client.Heartbeat(7, 0),
    client.Heartbeat(7, 5, 1, TimeRequest(4, 1 << 63)),
    client.Announce(7, 5, (V4, V6)),
    client.Announce(7, 0),
    client.Announce(7, 5, key=KEY),
    client.Announce(7, 5, key=KEY, name=NAME),
    client.Leave(7, 5),
    client.ClientData(7, 5, 1, b"x" * 4096),
    client.ClientData(7, 5, 2, b"", TOPICS),
    client.ClientData(7, 5, 2, b"", TOPICS, GROUPS),
    client.Lookup(7, 5),
    client.Lookup(7, 5, 9, 4),
    client.Lookup(7, 5, None, 4, (Watch(1, Digest(0, 0)), Watch(6, Digest(2, 1 << 63)))),
    client.CheckRequest(7, 5, 9, 1 << 63),
    client.StatusRequest(7),
    client.ClientUser(7, 5, 0x0100, (Parameter(0x177, b"?"), Parameter(0x177, b""))),
]
FROM_SERVER: list[Any] = [
    server.ServerHeartbeat(MEMBERS[0], ClusterView(3, MEMBERS), Digest(2, 1 << 63)),
    server.ServerHeartbeat(MEMBERS[0], ClusterView(3, MEMBERS), None, STAMP, TimeRequest(8, 3)),
    server.ServerHeartbeat(MEMBERS[0], ClusterView(3, MEMBERS), answers_stun=True),
    server.TimeAnswer(4, 7, 1 << 63, STAMP),
    server.IdAck(4, (Holder(7, 5),)),
    server.IdAck(4, (Holder(7, 0),)),
    server.IdAck(4, (Holder(7, 5), Holder(9, 6))),
    server.IdAck(4, (Holder(7, 5), Holder(9, 6)), 1),
    server.IdAck(4, (Holder(7, 5), Holder(23, 6)), 8),
    server.IdNack(4, 7, 5, Reason.CONFLICT),
    server.ServerLeave(4, 5),
    server.Peers(4, 0, (RECORD, PLAIN)),
    server.Peers(4, 7, (RECORD,), Part(0, 2)),
    server.PeersGone(4, 0, (GoneHolder(7, 9, Reason.EXPIRED), GoneHolder(9, 0, Reason.LEFT))),
    server.PeerCheck(4, 7, 9, 1 << 63, (V4, V6)),
    server.StatusReply(4, 7, Part(1, 2), b"{}"),
    server.ServerUser(4, 7, 0xFFFF, (Parameter(0x100, b"\0"),)),
]
FROM_MEMBER: list[Any] = [
    server.Registered(4, (RECORD, PLAIN)),
    server.Released(4, (GoneHolder(7, 9, Reason.LEFT),)),
    server.SnapshotRequest(4, 8),
    server.Snapshot(4, 8, Part(0, 1), (RECORD,)),
    server.Snapshot(4, 8, Part(0, 1), ()),
]
