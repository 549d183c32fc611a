"""The messages of servers to clients and to each other, with one type for each command.

``encode`` raises ``WireError`` if a number does not fit its field, and ``MessageTooLargeError`` if
the message is too large.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sphtp.core.clock import Stamp, TimeRequest
from sphtp.core.control import codec
from sphtp.core.control.client_messages import ClientMessage
from sphtp.core.control.codec import Message, Parameter, Part, decode_message
from sphtp.core.control.lists import read_records, write_records
from sphtp.core.control.records import (
    MAX_CANDIDATES,
    MAX_MEMBERS,
    Candidate,
    ClusterView,
    Digest,
    GoneHolder,
    Holder,
    Member,
    PeerRecord,
)
from sphtp.core.control.vocabulary import (
    EVERYBODY,
    FEATURES,
    NO_NONCE,
    STUN,
    USER_PARAMETERS,
    VERSION,
    Command,
    MemberState,
    Reason,
    is_client_id,
)
from sphtp.errors import WireError


@dataclass(frozen=True, slots=True)
class ServerHeartbeat:
    """HEARTBEAT: a server is alive, and sends its view (SphTP, "Server rules").

    ``roster`` is the digest of its registered clients, ``stamp`` the time of its clock, and
    ``request`` a request for the time of another server.
    """

    member: Member
    view: ClusterView
    roster: Digest | None = None
    stamp: Stamp | None = None
    request: TimeRequest | None = None
    answers_stun: bool = False

    def encode(self) -> bytes:
        """Return the encoded message."""
        roster = () if self.roster is None else (codec.ROSTER.of(self.roster),)
        stamp = () if self.stamp is None else (codec.TIME.of(self.stamp),)
        request = () if self.request is None else (codec.TIME_REQUEST.of(self.request),)
        return encode(
            EVERYBODY,
            self.member.id,
            Command.HEARTBEAT,
            codec.VERSION.of(VERSION),
            codec.FEATURES.of(STUN if self.answers_stun else FEATURES),
            codec.NONCE.of(self.member.nonce),
            codec.STATE.of(self.member.state),
            codec.VIEW.of(self.view.number),
            *map(codec.MEMBER.of, self.view.members),
            *roster,
            *stamp,
            *request,
        )


@dataclass(frozen=True, slots=True)
class IdAck:
    """ACK: ids are registered for these holders (SphTP, step 8)."""

    sender: int
    holders: tuple[Holder, ...]
    to: int = EVERYBODY

    def encode(self) -> bytes:
        """Encode the message.

        With one holder it is for that client alone. With several it is for the clients that
        subscribe to ``to``: all, those without presence, or those of a shard.
        """
        if len(self.holders) == 1:
            holder = self.holders[0]
            return encode(holder.id, self.sender, Command.ACK, *_proof(holder.nonce))
        return encode(self.to, self.sender, Command.ACK, *map(codec.ACKED.of, self.holders))


@dataclass(frozen=True, slots=True)
class IdNack:
    """NACK: the server refuses one holder for a reason (SphTP, step 7)."""

    sender: int
    id: int
    nonce: int
    reason: Reason

    def encode(self) -> bytes:
        """Return the encoded message."""
        reason = codec.REASON.of(self.reason)
        return encode(self.id, self.sender, Command.NACK, *_proof(self.nonce), reason)


@dataclass(frozen=True, slots=True)
class ServerLeave:
    """LEAVE: a server stops, and receivers remove it at once."""

    sender: int
    nonce: int

    def encode(self) -> bytes:
        """Return the encoded message."""
        return encode(EVERYBODY, self.sender, Command.LEAVE, *_proof(self.nonce))


@dataclass(frozen=True, slots=True)
class Peers:
    """PEERS: clients that entered or changed; with ``part``, a part of a list of clients."""

    sender: int
    to: int
    records: tuple[PeerRecord, ...]
    part: Part | None = None

    def encode(self) -> bytes:
        """Return the encoded message."""
        records = write_records(self.records)
        return encode(self.to, self.sender, Command.PEERS, *part_of(self.part), *records)


@dataclass(frozen=True, slots=True)
class PeersGone:
    """PEER_LEFT: clients that are no longer registered, or unregistered ones in a lookup."""

    sender: int
    to: int
    gone: tuple[GoneHolder, ...]

    def encode(self) -> bytes:
        """Return the encoded message."""
        return encode(self.to, self.sender, Command.PEER_LEFT, *map(codec.GONE.of, self.gone))


@dataclass(frozen=True, slots=True)
class PeerCheck:
    """CHECK: a peer has requested that client ``to`` checks the peer's candidates."""

    sender: int
    to: int
    peer: int
    token: int
    candidates: tuple[Candidate, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded message."""
        candidates = map(codec.CANDIDATE.of, self.candidates)
        peer, token = codec.PEER_ID.of(self.peer), codec.TOKEN.of(self.token)
        return encode(self.to, self.sender, Command.CHECK, peer, token, *candidates)


@dataclass(frozen=True, slots=True)
class StatusReply:
    """STATUS: a part of a JSON document with the server's status."""

    sender: int
    to: int
    part: Part
    text: bytes

    def encode(self) -> bytes:
        """Return the encoded message."""
        text = codec.TEXT.of(self.text)
        return encode(self.to, self.sender, Command.STATUS, *part_of(self.part), text)


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """TIME: the answer to one ``TimeRequest``, with the time of the server's clock.

    ``origin`` is copied from the request.
    """

    sender: int
    to: int
    origin: int
    stamp: Stamp

    def encode(self) -> bytes:
        """Return the encoded message."""
        parameters = codec.ORIGIN.of(self.origin), codec.TIME.of(self.stamp)
        return Message(self.to, self.sender, Command.TIME, parameters).encode()


@dataclass(frozen=True, slots=True)
class ServerUser:
    """A command of the application, from a server."""

    sender: int
    to: int
    command: int
    parameters: tuple[Parameter, ...]

    def encode(self) -> bytes:
        """Return the encoded message."""
        return encode(self.to, self.sender, self.command, *self.parameters)


Known = Mapping[int, PeerRecord]
"""The records that a reader has, by id."""

ServerMessage = (
    ServerHeartbeat
    | IdAck
    | IdNack
    | ServerLeave
    | Peers
    | PeersGone
    | PeerCheck
    | StatusReply
    | TimeAnswer
    | ServerUser
)


def read_user(data: bytes) -> ServerUser:
    """Decode a command of the application from a server, without parameters of the protocol.

    Raises ``WireError`` if it is malformed.
    """
    message = decode_message(data)
    rest = tuple(p for p in message.parameters if p.id >= USER_PARAMETERS)
    return ServerUser(message.sender, message.simulation, message.command, rest)


def encode(to: int, sender: int, command: int, *parameters: Parameter) -> bytes:
    """Encode a server's message."""
    return Message(to, sender, command, parameters).encode()


def _proof(nonce: int) -> tuple[Parameter, ...]:
    return () if nonce == NO_NONCE else (codec.NONCE.of(nonce),)


def part_of(part: Part | None) -> tuple[Parameter, ...]:
    """Return the parameter of a part; no parameter for None."""
    return () if part is None else (codec.PART.of(part),)


# A process with a hundred clients receives each heartbeat a hundred times, and decodes it once.
# Members send theirs under 0 and under 1.
@lru_cache(maxsize=2 * MAX_MEMBERS)
def _read_heartbeat(data: bytes) -> ServerHeartbeat:
    message = decode_message(data)
    # The version must be well-formed, but has no effect: servers decide whether versions fit.
    codec.VERSION.first(message)
    nonce = codec.NONCE.first(message) or NO_NONCE
    state = codec.STATE.first(message) or MemberState.ACTIVE
    members = codec.MEMBER.every(message)
    if len(members) > MAX_MEMBERS:
        raise WireError(f"{len(members)} members are over {MAX_MEMBERS}")
    own, by_id = None, dict[int, Member]()
    for each in members:
        if each.id == message.sender and own is None:
            own = each.address
        by_id[each.id] = each
    by_id[message.sender] = member = Member(message.sender, nonce, own, state)
    ordered = tuple(map(by_id.__getitem__, sorted(by_id)))
    view = ClusterView(codec.VIEW.first(message) or 0, ordered)
    return ServerHeartbeat(
        member,
        view,
        codec.ROSTER.first(message),
        codec.TIME.first(message),
        codec.TIME_REQUEST.first(message),
        bool((codec.FEATURES.first(message) or 0) & STUN),
    )


def _read_ack(data: bytes) -> IdAck:
    message = decode_message(data)
    if not is_client_id(message.simulation):
        return IdAck(message.sender, codec.ACKED.every(message), message.simulation)
    nonce = codec.NONCE.first(message) or NO_NONCE
    return IdAck(message.sender, (Holder(message.simulation, nonce),))


def _read_nack(data: bytes) -> IdNack:
    message = decode_message(data)
    nonce, reason = codec.NONCE.first(message) or NO_NONCE, codec.REASON.first(message)
    given = Reason.CONFLICT if reason is None else reason
    return IdNack(message.sender, message.simulation, nonce, given)


def _read_leave(data: bytes) -> ServerLeave:
    message = decode_message(data)
    return ServerLeave(message.sender, codec.NONCE.first(message) or NO_NONCE)


def _read_peers(data: bytes, known: Known) -> Peers:
    message = decode_message(data)
    records, part = read_records(message, known), codec.PART.first(message)
    return Peers(message.sender, message.simulation, records, part)


def _read_peer_left(data: bytes) -> PeersGone:
    message = decode_message(data)
    return PeersGone(message.sender, message.simulation, codec.GONE.every(message))


def _read_check(data: bytes) -> PeerCheck:
    message = decode_message(data)
    candidates = codec.CANDIDATE.every(message)
    if len(candidates) > MAX_CANDIDATES:
        raise WireError(f"{len(candidates)} candidates are over {MAX_CANDIDATES}")
    peer, token = codec.PEER_ID.need(message), codec.TOKEN.need(message)
    return PeerCheck(message.sender, message.simulation, peer, token, candidates)


def _read_status(data: bytes) -> StatusReply:
    message = decode_message(data)
    part, text = codec.PART.need(message), codec.TEXT.need(message)
    return StatusReply(message.sender, message.simulation, part, text)


def _read_time(data: bytes) -> TimeAnswer:
    message = decode_message(data)
    origin, stamp = codec.ORIGIN.need(message), codec.TIME.need(message)
    return TimeAnswer(message.sender, message.simulation, origin, stamp)


READERS: Mapping[int, Callable[[bytes], ServerMessage]] = {
    Command.HEARTBEAT: _read_heartbeat,
    Command.ACK: _read_ack,
    Command.NACK: _read_nack,
    Command.LEAVE: _read_leave,
    Command.PEER_LEFT: _read_peer_left,
    Command.CHECK: _read_check,
    Command.STATUS: _read_status,
    Command.TIME: _read_time,
}
RECORD_READERS: Mapping[int, Callable[[bytes, Known], Peers]] = {Command.PEERS: _read_peers}
"""The decoders of messages with records, which also take the reader's known records."""


@dataclass(frozen=True, slots=True)
class Registered:
    """REGISTERED: clients that entered or changed, from server to server."""

    sender: int
    records: tuple[PeerRecord, ...]

    def encode(self) -> bytes:
        """Return the encoded message."""
        records = write_records(self.records)
        return encode(EVERYBODY, self.sender, Command.REGISTERED, *records)


@dataclass(frozen=True, slots=True)
class Released:
    """RELEASED: clients that are no longer registered, from server to server."""

    sender: int
    gone: tuple[GoneHolder, ...]

    def encode(self) -> bytes:
        """Return the encoded message."""
        gone = map(codec.GONE.of, self.gone)
        return encode(EVERYBODY, self.sender, Command.RELEASED, *gone)


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """SNAPSHOT_REQUEST: a server requests the clients whose messages the server ``to`` receives."""

    sender: int
    to: int

    def encode(self) -> bytes:
        """Return the encoded message."""
        return encode(self.to, self.sender, Command.SNAPSHOT_REQUEST)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """SNAPSHOT: a part of the list of clients whose messages its sender receives, for a server."""

    sender: int
    to: int
    part: Part
    records: tuple[PeerRecord, ...]

    def encode(self) -> bytes:
        """Return the encoded message."""
        records = write_records(self.records)
        return encode(self.to, self.sender, Command.SNAPSHOT, *part_of(self.part), *records)


MemberMessage = Registered | Released | SnapshotRequest | Snapshot

AnyMessage = ClientMessage | ServerMessage | MemberMessage
"""The messages that arrive over the bus."""


def _read_registered(data: bytes, known: Known) -> Registered:
    message = decode_message(data)
    return Registered(message.sender, read_records(message, known))


def _read_released(data: bytes) -> Released:
    message = decode_message(data)
    return Released(message.sender, codec.GONE.every(message))


def _read_snapshot_request(data: bytes) -> SnapshotRequest:
    message = decode_message(data)
    return SnapshotRequest(message.sender, message.simulation)


def _read_snapshot(data: bytes, known: Known) -> Snapshot:
    message = decode_message(data)
    part, records = codec.PART.need(message), read_records(message, known)
    return Snapshot(message.sender, message.simulation, part, records)


MEMBER_READERS: Mapping[int, Callable[[bytes], MemberMessage]] = {
    Command.RELEASED: _read_released,
    Command.SNAPSHOT_REQUEST: _read_snapshot_request,
}

MEMBER_RECORD_READERS: Mapping[int, Callable[[bytes, Known], MemberMessage]] = {
    Command.REGISTERED: _read_registered,
    Command.SNAPSHOT: _read_snapshot,
}
"""The decoders of messages with records, which also take the reader's known records."""
