"""Messages as bytes: three numbers, then any number of parameters (SphTP, "Message structure").

A ``Field`` is one data id with the type of its parameters. A field of numbers is one compiled
``struct``, so that a parameter costs one call. Each list and each heartbeat repeats the addresses
of clients and servers, so caches keep decoded addresses, and the encoded hosts of clients.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sphtp.core.clock import MAX_TIME, Stamp, Term, TimeRequest
from sphtp.core.control.records import (
    KEY_SIZE,
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_NAME_SIZE,
    MAX_VIEW,
    Candidate,
    Digest,
    GoneHolder,
    Holder,
    Member,
    PeerRecord,
    Watch,
    decode_address,
    decode_name,
    decode_names,
    encode_names,
)
from sphtp.core.control.vocabulary import (
    EVERYBODY,
    NO_NONCE,
    DataId,
    MemberState,
    Reason,
    is_client_id,
    is_server_id,
)
from sphtp.core.topics import LONGEST_NAME
from sphtp.core.wire import decode_text
from sphtp.errors import MessageTooLargeError, WireError, untrusted

MAX_MESSAGE = 65536
"""Bytes of the largest message. Receivers drop larger ones."""

MAX_PARAMETER = (1 << 16) - 1
"""The most bytes of a parameter's data."""

T = TypeVar("T")

HEADER = struct.Struct("<IIH")
"""The header of every message: simulation id, sender id and command."""
_FRONT = struct.Struct("<HH")
_new_tuple = tuple.__new__


class Parameter(NamedTuple):
    """One parameter. A message may contain several with the same id, and their order counts."""

    id: int
    data: bytes

    def encode(self) -> bytes:
        """Return the parameter as it is in a message.

        Raises ``MessageTooLargeError`` if the data is too large, and ``struct.error`` if the id
        does not fit 16 bits.
        """
        if len(self.data) > MAX_PARAMETER:
            raise MessageTooLargeError(
                f"a parameter of {len(self.data)} bytes; at most {MAX_PARAMETER} fit"
            )
        return _FRONT.pack(self.id, len(self.data)) + self.data


@dataclass(frozen=True, slots=True)
class Message:
    """One message: simulation u32, sender u32, command u16, then (id u16, length u16, data)*."""

    simulation: int
    sender: int
    command: int
    parameters: tuple[Parameter, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded message.

        Raises ``MessageTooLargeError`` if a parameter or the message is too large, and
        ``WireError`` if a number is.
        """
        try:
            parts = [HEADER.pack(self.simulation, self.sender, self.command)]
            parts += [parameter.encode() for parameter in self.parameters]
        except struct.error as error:
            raise WireError(f"a number of a message is too large: {error}") from error
        whole = b"".join(parts)
        if len(whole) > MAX_MESSAGE:
            raise MessageTooLargeError(f"a message of {len(whole)} bytes is over {MAX_MESSAGE}")
        return whole


@untrusted
def decode_message_untrusted(data: bytes) -> Message:
    """Decode a message. Raises ``RemoteError`` if it is malformed or too large."""
    return decode_message(data)


def decode_message(data: bytes) -> Message:
    """Decode a message, like ``decode_message_untrusted``, but raise ``WireError``.

    The caller has to convert ``WireError`` to ``RemoteError``.
    """
    if len(data) > MAX_MESSAGE:
        raise WireError(f"a message of {len(data)} bytes is over {MAX_MESSAGE}")
    size, start = len(data), HEADER.size
    if size < start:
        raise WireError(f"{size} bytes are no message")
    simulation, sender, command = HEADER.unpack_from(data)
    parameters: list[Parameter] = []
    while start < size:
        begin = start + _FRONT.size
        if begin > size:
            raise WireError("a parameter is cut off")
        number, length = _FRONT.unpack_from(data, start)
        start = begin + length
        if start > size:
            raise WireError("a parameter is cut off")
        # The constructor of the named tuple would be slow, and a list may have 1000 parameters.
        parameters.append(_new_tuple(Parameter, (number, data[begin:start])))
    return Message(simulation, sender, command, tuple(parameters))


MAX_PARTS = 2048
"""The most messages of one list."""

_REMEMBERED = 1024
"""The most entries of each cache."""

_PORT = struct.Struct("<H")
_MEMBER = struct.Struct("<IQB")
_PEER = struct.Struct("<IQIB")
_HOLDER = struct.Struct("<IQ")
HOLDER_SIZE: Final = _HOLDER.size
"""Bytes of an id and a nonce, with which each parameter beside a record begins."""


class OfHolder(NamedTuple, Generic[T]):
    """A property of one holder of an id: its key, name, topics or groups."""

    id: int
    nonce: int
    value: T


@dataclass(frozen=True, slots=True)
class Part:
    """The place of a message in a divided list: ``index``, counted from 0, of ``count``."""

    index: int
    count: int


class Field(Generic[T]):
    """One data id and its type. A subclass encodes and decodes the values."""

    __slots__ = ("id",)

    def __init__(self, number: DataId) -> None:
        self.id = number

    def encode(self, value: T) -> bytes:
        """Encode a value. Raises ``WireError`` if a number in it does not fit."""
        raise NotImplementedError

    def decode(self, data: bytes) -> T:
        """Decode the data of a parameter. Raises ``WireError`` if it is malformed."""
        raise NotImplementedError

    def of(self, value: T) -> Parameter:
        """Return a parameter with this value. Raises ``WireError`` if a number does not fit."""
        return Parameter(self.id, self.encode(value))

    def every(self, message: Message) -> tuple[T, ...]:
        """Return all values of this field in a message, in their order.

        Raises ``WireError`` if one is malformed.
        """
        found: list[T] = []
        for number, data in message.parameters:
            if number == self.id:
                found.append(self.decode(data))
        return tuple(found)

    def first(self, message: Message) -> T | None:
        """Return the first value of this field in a message, or None if there is none.

        Raises ``WireError`` if one value is malformed, also a later one.
        """
        found: T | None = None
        for number, data in message.parameters:
            if number == self.id:
                value = self.decode(data)
                found = value if found is None else found
        return found

    def need(self, message: Message) -> T:
        """Return the first value of this field in a message.

        Raises ``WireError`` if there is none, or one is malformed.
        """
        value = self.first(message)
        if value is None:
            raise WireError(f"command {message.command} needs {self.id.name}")
        return value


class PackedField(Field[T]):
    """A field of a fixed size. Its value is a tuple of the numbers in the layout."""

    __slots__ = ("_layout",)

    def __init__(self, number: DataId, layout: str) -> None:
        super().__init__(number)
        self._layout = struct.Struct(layout)

    def encode(self, value: Any) -> bytes:
        """Encode a tuple. Raises ``WireError`` if a number does not fit."""
        try:
            return self._layout.pack(*value)
        except struct.error as error:
            raise WireError(f"{value} does not fit {self.id.name}: {error}") from error

    def decode(self, data: bytes) -> T:
        """Decode a tuple. Raises ``WireError`` if the size or a value is wrong."""
        try:
            return self._checked(self._layout.unpack(data))
        except struct.error:
            raise _wrong_size(self.id, data) from None

    def _checked(self, values: Any) -> T:
        return values  # type: ignore[no-any-return] # a tuple as it is


class IntegerField(Field[int]):
    """A field with an unsigned integer."""

    __slots__ = ("_layout",)

    def __init__(self, number: DataId, layout: str) -> None:
        super().__init__(number)
        self._layout = struct.Struct(layout)

    def encode(self, value: int) -> bytes:
        """Encode a number. Raises ``WireError`` if it does not fit."""
        try:
            return self._layout.pack(value)
        except struct.error as error:
            raise WireError(f"{value} does not fit {self.id.name}") from error

    def decode(self, data: bytes) -> int:
        """Decode a number. Raises ``WireError`` if the size or the value is wrong."""
        try:
            return self._layout.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error:
            raise _wrong_size(self.id, data) from None


class _ClientIdParameter(IntegerField):
    def decode(self, data: bytes) -> int:
        return _client_id(super().decode(data))


class _ServerIdParameter(IntegerField):
    def decode(self, data: bytes) -> int:
        number = super().decode(data)
        if not is_server_id(number):
            raise WireError(f"{number} is no server's id")
        return number


class _ViewParameter(IntegerField):
    def decode(self, data: bytes) -> int:
        number = super().decode(data)
        if number > MAX_VIEW:
            raise WireError(f"view number {number} is over {MAX_VIEW}")
        return number


class _ReasonParameter(Field[Reason]):
    def encode(self, value: Reason) -> bytes:
        return _PORT.pack(value)

    def decode(self, data: bytes) -> Reason:
        if len(data) != _PORT.size:
            raise _wrong_size(self.id, data)
        return _REASONS.get(_PORT.unpack(data)[0], Reason.OTHER)


class _StateParameter(Field[MemberState]):
    def encode(self, value: MemberState) -> bytes:
        return bytes((value,))

    def decode(self, data: bytes) -> MemberState:
        if len(data) != 1:
            raise _wrong_size(self.id, data)
        return _STATES.get(data[0], MemberState.JOINING)


class _BytesParameter(Field[bytes]):
    """Bytes as they are; ``decode`` checks their smallest and their largest length."""

    __slots__ = ("_least", "_most")

    def __init__(self, number: DataId, most: int, least: int = 0) -> None:
        super().__init__(number)
        self._most = most
        self._least = least

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        if not self._least <= len(data) <= self._most:
            raise _wrong_size(self.id, data)
        return data


class _CandidateParameter(Field[Candidate]):
    """Port u16, then the 4 or 16 bytes of the address."""

    def encode(self, value: Candidate) -> bytes:
        return _PORT.pack(value.port) + _pack_host(value.host)

    def decode(self, data: bytes) -> Candidate:
        return _read_candidate(data)


class _MemberParameter(Field[Member]):
    """Id u32, nonce u64, state u8, then both URLs, each after its length u16, or nothing."""

    def encode(self, value: Member) -> bytes:
        try:
            front = _MEMBER.pack(value.id, value.nonce, value.state)
        except struct.error as error:
            raise WireError(f"{value} does not fit a member: {error}") from error
        if value.address is None:
            return front
        pub, sub = value.address.pub.encode(), value.address.sub.encode()
        return b"".join((front, _PORT.pack(len(pub)), pub, _PORT.pack(len(sub)), sub))

    def decode(self, data: bytes) -> Member:
        return _read_member(data)


class _PeerParameter(Field[PeerRecord]):
    """Id u32, nonce u64, revision u32, count of candidates u8, the candidates, each after its
    length u8, then the data.
    """

    def encode(self, value: PeerRecord) -> bytes:
        try:
            front = _PEER.pack(value.id, value.nonce, value.revision, len(value.candidates))
        except struct.error as error:
            raise WireError(f"{value} does not fit a record: {error}") from error
        parts = [front]
        for candidate in value.candidates:
            packed = CANDIDATE.encode(candidate)
            parts += (bytes((len(packed),)), packed)
        parts.append(value.data)
        return b"".join(parts)

    def decode(self, data: bytes) -> PeerRecord:
        return decode_record(data)


class _HolderParameter(PackedField[Holder]):
    def _checked(self, values: Any) -> Holder:
        _client_id(values[0])
        return Holder._make(values)


class _GoneParameter(PackedField[GoneHolder]):
    def _checked(self, values: Any) -> GoneHolder:
        number, nonce, reason = values
        return GoneHolder(_client_id(number), nonce, _REASONS.get(reason, Reason.OTHER))


class _DigestParameter(PackedField[Digest]):
    def encode(self, value: Digest) -> bytes:
        return super().encode((value.count, value.mix))

    def _checked(self, values: Any) -> Digest:
        return Digest(*values)


class _StampParameter(PackedField[Stamp]):
    """Timeline u64, generation u32; reference, predecessor, since, time and error, each u64."""

    def encode(self, value: Stamp) -> bytes:
        return super().encode((*value.term, value.time, value.error))

    def _checked(self, values: Any) -> Stamp:
        *term, time, error = values
        if max(term[4], time, error) > MAX_TIME:
            raise WireError(f"a time is over {MAX_TIME} ns")
        return Stamp(Term(*term), time, error)


class _RequestParameter(PackedField[TimeRequest]):
    def _checked(self, values: Any) -> TimeRequest:
        request = TimeRequest(*values)
        if request.server & 1 or request.server == 0:
            raise WireError(f"{request.server} is no server's id")
        return request


class _WatchParameter(PackedField[Watch]):
    def encode(self, value: Watch) -> bytes:
        return super().encode((value.topic, value.digest.count, value.digest.mix))

    def _checked(self, values: Any) -> Watch:
        number, count, mix = values
        if number == EVERYBODY:
            raise WireError("a watch of simulation id 0, which stands for all clients")
        return Watch(number, Digest(count, mix))


class _PartParameter(PackedField[Part]):
    def encode(self, value: Part) -> bytes:
        return super().encode((value.index, value.count))

    def _checked(self, values: Any) -> Part:
        part = Part(*values)
        if part.index >= part.count or part.count > MAX_PARTS:
            raise WireError(f"part {part.index} of {part.count}")
        return part


class _NamesParameter(Field[tuple[str, ...]]):
    def encode(self, value: tuple[str, ...]) -> bytes:
        return encode_names(value)

    def decode(self, data: bytes) -> tuple[str, ...]:
        return decode_names(data)


class _NameParameter(Field[str]):
    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        if len(data) > MAX_NAME_SIZE or len(name := decode_name(data)) > LONGEST_NAME:
            raise _wrong_size(self.id, data)
        return name


class BesideField(Field[OfHolder[T]]):
    """A field beside a record: the holder's id u32 and nonce u64, then the property."""

    __slots__ = ("_inner",)

    def __init__(self, number: DataId, inner: Field[T]) -> None:
        super().__init__(number)
        self._inner = inner

    def encode(self, value: OfHolder[T]) -> bytes:
        """Encode a property with its holder. Raises ``WireError`` if a number does not fit."""
        try:
            front = _HOLDER.pack(value.id, value.nonce)
        except struct.error as error:
            raise WireError(f"{value} does not fit {self.id.name}: {error}") from error
        return front + self._inner.encode(value.value)

    def decode(self, data: bytes) -> OfHolder[T]:
        """Decode a property with its holder. Raises ``WireError`` if the data is malformed."""
        if len(data) < HOLDER_SIZE:
            raise _wrong_size(self.id, data)
        number, nonce = _HOLDER.unpack_from(data)
        return OfHolder(_client_id(number), nonce, self._inner.decode(data[HOLDER_SIZE:]))


def decode_record(data: bytes, **beside: Any) -> PeerRecord:
    """Decode the record in a ``PEER``. ``beside`` are the decoded properties from other parameters.

    Raises ``WireError`` if the data is malformed.
    """
    try:
        number, nonce, revision, count = _PEER.unpack_from(data)
    except struct.error:
        raise _wrong_size(DataId.PEER, data) from None
    _client_id(number)
    if count > MAX_CANDIDATES:
        raise WireError(f"{count} candidates are over {MAX_CANDIDATES}")
    candidates: list[Candidate] = []
    start, size = _PEER.size, len(data)
    for _ in range(count):
        end = start + 1 + data[start] if start < size else size + 1
        if end > size:
            raise WireError("a candidate is cut off")
        candidates.append(_read_candidate(data[start + 1 : end]))
        start = end
    if size - start > MAX_DATA:
        raise WireError(f"{size - start} bytes of data are over {MAX_DATA}")
    return PeerRecord(number, nonce, tuple(candidates), data[start:], revision, **beside)


def _client_id(number: int) -> int:
    if not is_client_id(number):
        raise WireError(f"{number} is no client's id")
    return number


def _wrong_size(number: DataId, data: bytes) -> WireError:
    return WireError(f"{number.name} does not have {len(data)} bytes")


@lru_cache(maxsize=_REMEMBERED)
def _pack_host(host: str) -> bytes:
    return ip_address(host).packed


@lru_cache(maxsize=_REMEMBERED)
def _read_candidate(data: bytes) -> Candidate:
    if len(data) not in (2 + 4, 2 + 16):
        raise _wrong_size(DataId.CANDIDATE, data)
    (port,) = _PORT.unpack_from(data)
    if port == 0:
        raise WireError("a candidate cannot have port 0")
    return Candidate(str(ip_address(data[2:])), port)


@lru_cache(maxsize=_REMEMBERED)
def _read_member(data: bytes) -> Member:
    try:
        number, nonce, state = _MEMBER.unpack_from(data)
    except struct.error:
        raise _wrong_size(DataId.MEMBER, data) from None
    if not is_server_id(number):
        raise WireError(f"{number} is no server's id")
    address = None
    if len(data) > _MEMBER.size:
        pub, start = _take_url(data, _MEMBER.size)
        sub, end = _take_url(data, start)
        if end != len(data):
            raise _wrong_size(DataId.MEMBER, data)
        address = decode_address(pub, sub)
    return Member(number, nonce, address, _STATES.get(state, MemberState.JOINING))


def _take_url(data: bytes, start: int) -> tuple[str, int]:
    if start + _PORT.size > len(data):
        raise _wrong_size(DataId.MEMBER, data)
    begin = start + _PORT.size
    end = begin + _PORT.unpack_from(data, start)[0]
    if end > len(data):
        raise _wrong_size(DataId.MEMBER, data)
    return decode_text(data[begin:end]), end


_REASONS: Final = {reason.value: reason for reason in Reason}
_STATES: Final = {state.value: state for state in MemberState}

VERSION = IntegerField(DataId.VERSION, "<H")
FEATURES = IntegerField(DataId.FEATURES, "<I")
NONCE = IntegerField(DataId.NONCE, "<Q")
CANDIDATE = _CandidateParameter(DataId.CANDIDATE)
STATE = _StateParameter(DataId.STATE)
VIEW = _ViewParameter(DataId.VIEW, "<Q")
MEMBER = _MemberParameter(DataId.MEMBER)
ROSTER = _DigestParameter(DataId.ROSTER, "<IQ")
REASON = _ReasonParameter(DataId.REASON)
REVISION = IntegerField(DataId.REVISION, "<I")
BLOB = _BytesParameter(DataId.BLOB, MAX_DATA)
PEER = _PeerParameter(DataId.PEER)
ACKED = _HolderParameter(DataId.ACKED, "<IQ")
PART = _PartParameter(DataId.PART, "<HH")
TEXT = _BytesParameter(DataId.TEXT, 1 << 16)
PEER_ID = _ClientIdParameter(DataId.PEER_ID, "<I")
GONE = _GoneParameter(DataId.GONE, "<IQH")
TARGET = _ServerIdParameter(DataId.TARGET, "<I")
KEY = _BytesParameter(DataId.KEY, KEY_SIZE, KEY_SIZE)
PEER_KEY = BesideField(DataId.PEER_KEY, KEY)
TOPICS = _NamesParameter(DataId.TOPICS)
PEER_TOPICS = BesideField(DataId.PEER_TOPICS, TOPICS)
NAME = _NameParameter(DataId.NAME)
PEER_NAME = BesideField(DataId.PEER_NAME, NAME)
GROUPS = _NamesParameter(DataId.GROUPS)
PEER_GROUPS = BesideField(DataId.PEER_GROUPS, GROUPS)
WATCH = _WatchParameter(DataId.WATCH, "<IIQ")
TIME = _StampParameter(DataId.TIME, "<QIQQQQQ")
TIME_REQUEST = _RequestParameter(DataId.TIME_REQUEST, "<IQ")
ORIGIN = IntegerField(DataId.ORIGIN, "<Q")
TOKEN = IntegerField(DataId.TOKEN, "<Q")


def encode_of_client(command: int, client: int, nonce: int, *parameters: Parameter) -> bytes:
    """Encode a client's message.

    Its simulation id and its sender id are the client's id. Its first parameter is the nonce, if
    the client has one. Raises as ``Message.encode``.
    """
    proof = () if nonce == NO_NONCE else (NONCE.of(nonce),)
    return Message(client, client, command, (*proof, *parameters)).encode()
