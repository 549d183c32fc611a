"""The messages of clients, with one type for each command, and the queue of a client's messages.

``encode`` raises ``WireError`` if a number does not fit its field, and ``MessageTooLargeError`` if
the message is too large.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sphtp.core.clock import TimeRequest
from sphtp.core.control import codec
from sphtp.core.control.codec import Parameter, decode_message
from sphtp.core.control.records import (
    KEY_SIZE,
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_WATCHES,
    Candidate,
    Holder,
    Watch,
    check_groups,
    check_topics,
    next_revision,
)
from sphtp.core.control.vocabulary import (
    FEATURES,
    NO_NONCE,
    USER_PARAMETERS,
    VERSION,
    Command,
    check_user_numbers,
)
from sphtp.core.topics import check_name
from sphtp.errors import MessageTooLargeError, SettingsError, WireError


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """HEARTBEAT: the holder of an id is alive (SphTP, "Client rules")."""

    id: int
    nonce: int
    revision: int | None = None
    """The revision of the client's data; None from plain SphTP."""
    request: TimeRequest | None = None
    """A request for the time of one server's clock, or None."""

    def encode(self) -> bytes:
        """Return the encoded message."""
        revision = () if self.revision is None else (codec.REVISION.of(self.revision),)
        request = () if self.request is None else (codec.TIME_REQUEST.of(self.request),)
        return codec.encode_of_client(Command.HEARTBEAT, self.id, self.nonce, *revision, *request)


@dataclass(frozen=True, slots=True)
class Announce:
    """ANNOUNCE: a client requests the registration of an id (SphTP, step 5)."""

    id: int
    nonce: int
    candidates: tuple[Candidate, ...] = ()
    version: int = VERSION
    features: int = FEATURES
    key: bytes = b""
    name: str = ""

    def encode(self) -> bytes:
        """Return the encoded message."""
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
    """LEAVE: a client gives its id up, and the servers de-register it."""

    id: int
    nonce: int

    def encode(self) -> bytes:
        """Return the encoded message."""
        return codec.encode_of_client(Command.LEAVE, self.id, self.nonce)


@dataclass(frozen=True, slots=True)
class ClientData:
    """DATA: the initial simulation data (SphTP, step 10), topics and groups of a client.

    A message with a later revision replaces an earlier one.
    """

    id: int
    nonce: int
    revision: int
    data: bytes
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded message."""
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
    """LOOKUP: a client requests one peer, the differences in its watches, or all peers.

    ``target`` is the server that has to answer, or None for all servers.
    """

    id: int
    nonce: int
    peer: int | None = None
    target: int | None = None
    watches: tuple[Watch, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded message."""
        peer = () if self.peer is None else (codec.PEER_ID.of(self.peer),)
        target = () if self.target is None else (codec.TARGET.of(self.target),)
        watches = map(codec.WATCH.of, self.watches)
        return codec.encode_of_client(Command.LOOKUP, self.id, self.nonce, *peer, *target, *watches)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """CHECK: a client requests that a peer checks the client's candidates (``sphtp.core.nat``)."""

    id: int
    nonce: int
    peer: int
    token: int

    def encode(self) -> bytes:
        """Return the encoded message."""
        peer, token = codec.PEER_ID.of(self.peer), codec.TOKEN.of(self.token)
        return codec.encode_of_client(Command.CHECK, self.id, self.nonce, peer, token)


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """STATUS_REQUEST: a program with an odd id, registered or not, requests servers' status."""

    id: int
    nonce: int = NO_NONCE

    def encode(self) -> bytes:
        """Return the encoded message."""
        return codec.encode_of_client(Command.STATUS_REQUEST, self.id, self.nonce)


@dataclass(frozen=True, slots=True)
class ClientUser:
    """A command of the application, from a client."""

    id: int
    nonce: int
    command: int
    parameters: tuple[Parameter, ...]

    def encode(self) -> bytes:
        """Return the encoded message."""
        return codec.encode_of_client(self.command, self.id, self.nonce, *self.parameters)


ClientMessage = (
    Heartbeat | Announce | Leave | ClientData | Lookup | CheckRequest | StatusRequest | ClientUser
)


def read_user(data: bytes) -> ClientUser:
    """Decode a command of the application from a client, without parameters of the protocol.

    Raises ``WireError`` if it is malformed.
    """
    message = decode_message(data)
    nonce = codec.NONCE.first(message) or NO_NONCE
    rest = tuple(p for p in message.parameters if p.id >= USER_PARAMETERS)
    return ClientUser(message.sender, nonce, message.command, rest)


def _read_heartbeat(data: bytes) -> Heartbeat:
    message = decode_message(data)
    return Heartbeat(
        message.sender,
        codec.NONCE.first(message) or NO_NONCE,
        codec.REVISION.first(message),
        codec.TIME_REQUEST.first(message),
    )


def _read_announce(data: bytes) -> Announce:
    message = decode_message(data)
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


def _read_leave(data: bytes) -> Leave:
    message = decode_message(data)
    return Leave(message.sender, codec.NONCE.first(message) or NO_NONCE)


def _read_data(data: bytes) -> ClientData:
    message = decode_message(data)
    revision, blob = codec.REVISION.need(message), codec.BLOB.need(message)
    topics, groups = codec.TOPICS.first(message) or (), codec.GROUPS.first(message) or ()
    nonce = codec.NONCE.first(message) or NO_NONCE
    return ClientData(message.sender, nonce, revision, blob, topics, groups)


def _read_lookup(data: bytes) -> Lookup:
    message = decode_message(data)
    peer, target = codec.PEER_ID.first(message), codec.TARGET.first(message)
    nonce, watches = codec.NONCE.first(message) or NO_NONCE, codec.WATCH.every(message)
    if len(watches) > MAX_WATCHES:
        raise WireError(f"{len(watches)} watches are over {MAX_WATCHES}")
    return Lookup(message.sender, nonce, peer, target, watches)


def _read_check_request(data: bytes) -> CheckRequest:
    message = decode_message(data)
    peer, token = codec.PEER_ID.need(message), codec.TOKEN.need(message)
    return CheckRequest(message.sender, codec.NONCE.first(message) or NO_NONCE, peer, token)


def _read_status_request(data: bytes) -> StatusRequest:
    message = decode_message(data)
    return StatusRequest(message.sender, codec.NONCE.first(message) or NO_NONCE)


READERS: Mapping[int, Callable[[bytes], ClientMessage]] = {
    Command.HEARTBEAT: _read_heartbeat,
    Command.ANNOUNCE: _read_announce,
    Command.LEAVE: _read_leave,
    Command.DATA: _read_data,
    Command.LOOKUP: _read_lookup,
    Command.CHECK: _read_check_request,
    Command.STATUS_REQUEST: _read_status_request,
}


class ClientSender:
    """The queue of a client's messages, each with the id and the nonce of its holder.

    Raises ``SettingsError`` if an argument is wrong, and ``MessageTooLargeError`` if ``data`` is
    too large.
    """

    def __init__(
        self, candidates: Sequence[Candidate], data: bytes, key: bytes = b"", name: str = ""
    ) -> None:
        if len(candidates) > MAX_CANDIDATES:
            raise SettingsError(f"{len(candidates)} candidates are over {MAX_CANDIDATES}")
        if len(key) not in (0, KEY_SIZE):
            raise SettingsError(f"a public key of {len(key)} bytes; allowed is {KEY_SIZE}")
        self._key = key
        self._name = check_name(name)
        self._candidates = tuple(candidates)
        self._data = _checked(data)
        self._topics: tuple[str, ...] = ()
        self._groups: tuple[str, ...] = ()
        self._revision = 1 if data else 0
        self._queue: deque[bytes] = deque()

    def announce(self, holder: Holder, features: int) -> None:
        """Send an ANNOUNCE, which requests the id (SphTP, step 5)."""
        announce = Announce(
            *holder, self._candidates, features=features, key=self._key, name=self._name
        )
        self._queue.append(announce.encode())

    def heartbeat(self, holder: Holder, request: TimeRequest | None) -> None:
        """Send a HEARTBEAT, perhaps with a request for the time."""
        self._queue.append(Heartbeat(*holder, self._revision, request).encode())

    def send_data(self, holder: Holder) -> None:
        """Send the data of this client (SphTP, step 10), its topics and its groups.

        It has no effect for a client that never had any of them.
        """
        if self._revision:
            data = ClientData(*holder, self._revision, self._data, self._topics, self._groups)
            self._queue.append(data.encode())

    def lookup(self, holder: Holder, *, peer: int | None = None, server: int | None = None) -> None:
        """Send a LOOKUP of one peer, by default of all; to one server, by default to all."""
        self._queue.append(Lookup(*holder, peer, server).encode())

    def watch(self, holder: Holder, server: int | None, watches: tuple[Watch, ...]) -> None:
        """Send a LOOKUP that requests the differences in these watches; None is all servers."""
        self._queue.append(Lookup(*holder, None, server, watches).encode())

    def request_check(self, holder: Holder, peer: int, token: int) -> None:
        """Send a CHECK, which requests that a peer checks the candidates."""
        self._queue.append(CheckRequest(*holder, peer, token).encode())

    def set_candidates(self, candidates: Sequence[Candidate]) -> bool:
        """Replace the candidates, ``MAX_CANDIDATES`` at most. Return True if they have changed."""
        before, self._candidates = self._candidates, tuple(candidates[:MAX_CANDIDATES])
        return self._candidates != before

    def leave(self, holder: Holder) -> None:
        """Send a LEAVE, which gives the id up."""
        self._queue.append(Leave(*holder).encode())

    def publish(self, holder: Holder, command: int, parameters: Sequence[Parameter]) -> None:
        """Send a command of the application.

        Raises ``StateError`` if it uses wrong numbers, and ``MessageTooLargeError`` if it is too
        large.
        """
        check_user_numbers(command, (each.id for each in parameters))
        message = ClientUser(*holder, command, tuple(parameters))
        self._queue.append(message.encode())

    def set_data(self, data: bytes) -> None:
        """Replace the client's data. Raises ``MessageTooLargeError`` if it is over ``MAX_DATA``."""
        self._data = _checked(data)
        self._revision = next_revision(self._revision)

    def set_topics(self, topics: Iterable[str]) -> None:
        """Replace the topics. Raises ``SettingsError`` if they are wrong."""
        self._topics = check_topics(topics)
        self._revision = next_revision(self._revision)

    def set_groups(self, groups: Iterable[str]) -> None:
        """Replace the groups. Raises ``SettingsError`` if they are wrong."""
        self._groups = check_groups(groups)
        self._revision = next_revision(self._revision)

    def poll(self) -> bytes | None:
        """Return the next message, or None."""
        return self._queue.popleft() if self._queue else None


def _checked(data: bytes) -> bytes:
    if len(data) > MAX_DATA:
        raise MessageTooLargeError(f"{len(data)} bytes of data are over {MAX_DATA}")
    return data
