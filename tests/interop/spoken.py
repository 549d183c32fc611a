"""The published control messages, built as our machines build what they say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sphtp.core.control import client_messages as client
from sphtp.core.control import server_messages as server
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.records import ClusterView, Holder, Member, PeerRecord
from sphtp.core.control.server_messages import AnyMessage
from sphtp.core.control.vocabulary import USER_COMMANDS, Command, DataId, MemberState, Reason
from tests.interop.page import Vector
from tests.interop.translation import parameter_of, value_of

BESIDE = {
    "key": DataId.PEER_KEY,
    "topics": DataId.PEER_TOPICS,
    "name": DataId.PEER_NAME,
    "groups": DataId.PEER_GROUPS,
}


def read_message(data: bytes, *, for_client: bool) -> tuple[object, ControlCounters]:
    """Let a client or a server read a message; return what it is to it, and what it counted."""
    counters = ControlCounters()
    return MessageReader(counters, for_client=for_client).take(data), counters


class Said:
    """The named fields of a message: whom it names, and its parameters by id."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.sender: int = fields["sender"]
        self.to: int = fields["simulation"]
        self.command: int = fields["command"]
        self._named = fields["parameters"]

    def all(self, data_id: DataId) -> tuple[Any, ...]:
        return tuple(value_of(named) for named in self._named if named["id"] == data_id)

    def one(self, data_id: DataId, default: Any = None) -> Any:
        return next(iter(self.all(data_id)), default)

    @property
    def nonce(self) -> int:
        nonce: int = self.one(DataId.NONCE, 0)
        return nonce

    def peers(self) -> tuple[PeerRecord, ...]:
        return tuple(replace(record, **self._beside(record)) for record in self.all(DataId.PEER))

    def _beside(self, record: PeerRecord) -> dict[str, Any]:
        return {
            name: told.value
            for name, number in BESIDE.items()
            for told in self.all(number)
            if told[:2] == (record.id, record.nonce)
        }

    def beside_nonce(self) -> tuple[Any, ...]:
        return tuple(parameter_of(n) for n in self._named if n["id"] != DataId.NONCE)


def message_said(vector: Vector) -> AnyMessage:
    """Return the message with these fields, in the type that says it."""
    said = Said(vector.fields)
    speaker = next(s for s in SPEAKERS if f"{s}/" in vector.name)
    key = said.command if said.command < USER_COMMANDS else None
    return SPEAKERS[speaker][key](said)


def _announce(said: Said) -> client.Announce:
    return client.Announce(
        said.sender,
        said.nonce,
        said.all(DataId.CANDIDATE),
        said.one(DataId.VERSION, 1),
        said.one(DataId.FEATURES, 0),
        said.one(DataId.KEY, b""),
        said.one(DataId.NAME, ""),
    )


def _server_heartbeat(said: Said) -> server.ServerHeartbeat:
    others = said.all(DataId.MEMBER)
    state = said.one(DataId.STATE, MemberState.ACTIVE)
    address = next((m.address for m in others if m.id == said.sender), None)
    own = Member(said.sender, said.nonce, address, state)
    members = sorted({*others, own}, key=lambda m: m.id)
    view = ClusterView(said.one(DataId.VIEW, 0), tuple(members))
    return server.ServerHeartbeat(
        own,
        view,
        said.one(DataId.ROSTER),
        said.one(DataId.TIME),
        said.one(DataId.TIME_REQUEST),
    )


def _ack(said: Said) -> server.IdAck:
    if said.to == 1 or said.to % 2 == 0:
        return server.IdAck(said.sender, said.all(DataId.ACKED), said.to)
    return server.IdAck(said.sender, (Holder(said.to, said.nonce),))


def _nack(said: Said) -> server.IdNack:
    reason = said.one(DataId.REASON, Reason.CONFLICT)
    return server.IdNack(said.sender, said.to, said.nonce, reason)


SPEAKERS: dict[str, dict[int | None, Callable[[Said], AnyMessage]]] = {
    "client": {
        Command.HEARTBEAT: lambda s: client.Heartbeat(
            s.sender, s.nonce, s.one(DataId.REVISION), s.one(DataId.TIME_REQUEST)
        ),
        Command.ANNOUNCE: _announce,
        Command.LEAVE: lambda s: client.Leave(s.sender, s.nonce),
        Command.DATA: lambda s: client.ClientData(
            s.sender,
            s.nonce,
            s.one(DataId.REVISION),
            s.one(DataId.BLOB),
            s.one(DataId.TOPICS, ()),
            s.one(DataId.GROUPS, ()),
        ),
        Command.LOOKUP: lambda s: client.Lookup(
            s.sender, s.nonce, s.one(DataId.PEER_ID), s.one(DataId.TARGET), s.all(DataId.WATCH)
        ),
        Command.CHECK: lambda s: client.CheckRequest(
            s.sender, s.nonce, s.one(DataId.PEER_ID), s.one(DataId.TOKEN)
        ),
        Command.STATUS_REQUEST: lambda s: client.StatusRequest(s.sender, s.nonce),
        None: lambda s: client.ClientUser(s.sender, s.nonce, s.command, s.beside_nonce()),
    },
    "server": {
        Command.HEARTBEAT: _server_heartbeat,
        Command.ACK: _ack,
        Command.NACK: _nack,
        Command.LEAVE: lambda s: server.ServerLeave(s.sender, s.nonce),
        Command.PEERS: lambda s: server.Peers(s.sender, s.to, s.peers(), s.one(DataId.PART)),
        Command.PEER_LEFT: lambda s: server.PeersGone(s.sender, s.to, s.all(DataId.GONE)),
        Command.CHECK: lambda s: server.PeerCheck(
            s.sender,
            s.to,
            s.one(DataId.PEER_ID),
            s.one(DataId.TOKEN),
            s.all(DataId.CANDIDATE),
        ),
        Command.STATUS: lambda s: server.StatusReply(
            s.sender, s.to, s.one(DataId.PART), s.one(DataId.TEXT)
        ),
        Command.TIME: lambda s: server.TimeAnswer(
            s.sender, s.to, s.one(DataId.ORIGIN), s.one(DataId.TIME)
        ),
        None: lambda s: server.ServerUser(s.sender, s.to, s.command, s.beside_nonce()),
    },
    "member": {
        Command.REGISTERED: lambda s: server.Registered(s.sender, s.peers()),
        Command.RELEASED: lambda s: server.Released(s.sender, s.all(DataId.GONE)),
        Command.SNAPSHOT_REQUEST: lambda s: server.SnapshotRequest(s.sender, s.to),
        Command.SNAPSHOT: lambda s: server.Snapshot(s.sender, s.to, s.one(DataId.PART), s.peers()),
    },
}
