"""The messages of clients, with one type for each command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sphtp.core.control import codec
from sphtp.core.control.codec import Message, Parameter, Watch
from sphtp.core.control.records import MAX_CANDIDATES, MAX_WATCHES, Candidate
from sphtp.core.control.vocabulary import FEATURES, NO_NONCE, USER_PARAMETERS, VERSION, Command
from sphtp.errors import WireError


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """HEARTBEAT: the holder of an id is alive (SphTP, "Client rules")."""

    id: int
    nonce: int
    revision: int | None = None
    """The revision of the data that the servers should hold; plain SphTP does not send it."""

    def encode(self) -> bytes:
        """Return the bytes."""
        extra = () if self.revision is None else (codec.REVISION.of(self.revision),)
        return codec.encode_of_client(Command.HEARTBEAT, self.id, self.nonce, *extra)


@dataclass(frozen=True, slots=True)
class Announce:
    """ANNOUNCE: a client asks for an id (SphTP, step 5)."""

    id: int
    nonce: int
    candidates: tuple[Candidate, ...] = ()
    version: int = VERSION
    features: int = FEATURES
    key: bytes = b""
    name: str = ""

    def encode(self) -> bytes:
        """Return the bytes."""
        key = (codec.KEY.of(self.key),) if self.key else ()
        name = (codec.NAME.of(self.name),) if self.name else ()
        return codec.encode_of_client(
            Command.ANNOUNCE,
            self.id,
            self.nonce,
            codec.VERSION.of(self.version),
            codec.FEATURES.of(self.features),
            *map(codec.CANDIDATE.of, self.candidates),
            *key,
            *name,
        )


@dataclass(frozen=True, slots=True)
class Leave:
    """LEAVE: a client gives its id up."""

    id: int
    nonce: int

    def encode(self) -> bytes:
        """Return the bytes."""
        return codec.encode_of_client(Command.LEAVE, self.id, self.nonce)


@dataclass(frozen=True, slots=True)
class ClientData:
    """DATA: the initial simulation data (SphTP, step 10), topics and groups of a client.

    A later one replaces an earlier one.
    """

    id: int
    nonce: int
    revision: int
    data: bytes
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes."""
        topics = (codec.TOPICS.of(self.topics),) if self.topics else ()
        groups = (codec.GROUPS.of(self.groups),) if self.groups else ()
        return codec.encode_of_client(
            Command.DATA,
            self.id,
            self.nonce,
            codec.REVISION.of(self.revision),
            codec.BLOB.of(self.data),
            *topics,
            *groups,
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """LOOKUP: a client asks for one peer, for what it watches, or for all.

    It asks one server or every one.
    """

    id: int
    nonce: int
    peer: int | None = None
    target: int | None = None
    watches: tuple[Watch, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes."""
        peer = () if self.peer is None else (codec.PEER_ID.of(self.peer),)
        target = () if self.target is None else (codec.TARGET.of(self.target),)
        watches = map(codec.WATCH.of, self.watches)
        return codec.encode_of_client(Command.LOOKUP, self.id, self.nonce, *peer, *target, *watches)


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """STATUS_REQUEST: anybody with an odd id, registered or not, asks servers for their status."""

    id: int
    nonce: int = NO_NONCE

    def encode(self) -> bytes:
        """Return the bytes."""
        return codec.encode_of_client(Command.STATUS_REQUEST, self.id, self.nonce)


@dataclass(frozen=True, slots=True)
class ClientUser:
    """A command of the application, from a client."""

    id: int
    nonce: int
    command: int
    parameters: tuple[Parameter, ...]

    def encode(self) -> bytes:
        """Return the bytes."""
        return codec.encode_of_client(self.command, self.id, self.nonce, *self.parameters)


ClientMessage = Heartbeat | Announce | Leave | ClientData | Lookup | StatusRequest | ClientUser


def read_user(message: Message) -> ClientUser:
    """Read a command of the application; parameters of the protocol are skipped.

    Raises ``WireError``.
    """
    nonce = codec.NONCE.first(message) or NO_NONCE
    rest = tuple(p for p in message.parameters if p.id >= USER_PARAMETERS)
    return ClientUser(message.sender, nonce, message.command, rest)


def _read_heartbeat(message: Message) -> Heartbeat:
    return Heartbeat(
        message.sender, codec.NONCE.first(message) or NO_NONCE, codec.REVISION.first(message)
    )


def _read_announce(message: Message) -> Announce:
    candidates = codec.CANDIDATE.every(message)
    if len(candidates) > MAX_CANDIDATES:
        raise WireError(f"{len(candidates)} candidates are over {MAX_CANDIDATES}")
    version, features = codec.VERSION.first(message), codec.FEATURES.first(message)
    return Announce(
        message.sender,
        codec.NONCE.first(message) or NO_NONCE,
        candidates,
        VERSION if version is None else version,
        features or 0,
        codec.KEY.first(message) or b"",
        codec.NAME.first(message) or "",
    )


def _read_leave(message: Message) -> Leave:
    return Leave(message.sender, codec.NONCE.first(message) or NO_NONCE)


def _read_data(message: Message) -> ClientData:
    revision, data = codec.REVISION.need(message), codec.BLOB.need(message)
    topics, groups = codec.TOPICS.first(message) or (), codec.GROUPS.first(message) or ()
    nonce = codec.NONCE.first(message) or NO_NONCE
    return ClientData(message.sender, nonce, revision, data, topics, groups)


def _read_lookup(message: Message) -> Lookup:
    peer, target = codec.PEER_ID.first(message), codec.TARGET.first(message)
    nonce, watches = codec.NONCE.first(message) or NO_NONCE, codec.WATCH.every(message)
    if len(watches) > MAX_WATCHES:
        raise WireError(f"{len(watches)} watches are over {MAX_WATCHES}")
    return Lookup(message.sender, nonce, peer, target, watches)


def _read_status_request(message: Message) -> StatusRequest:
    return StatusRequest(message.sender, codec.NONCE.first(message) or NO_NONCE)


READERS: Mapping[int, Callable[[Message], ClientMessage]] = {
    Command.HEARTBEAT: _read_heartbeat,
    Command.ANNOUNCE: _read_announce,
    Command.LEAVE: _read_leave,
    Command.DATA: _read_data,
    Command.LOOKUP: _read_lookup,
    Command.STATUS_REQUEST: _read_status_request,
}
