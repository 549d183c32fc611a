"""Parameters with a type: how each data id is written, and read within its bounds."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Generic, NamedTuple, TypeVar

from sphtp.core.control.codec import Message, Parameter
from sphtp.core.control.ids import is_client_id, is_server_id
from sphtp.core.control.records import (
    KEY_SIZE,
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_URL,
    Candidate,
    Member,
    PeerRecord,
    ServerAddress,
)
from sphtp.core.control.topics import read_topics, write_topics
from sphtp.core.control.vocabulary import DataId, MemberState, Reason
from sphtp.core.wire import Reader, Writer, decode_text
from sphtp.errors import SettingsError, WireError

T = TypeVar("T")

MAX_VIEW = 1 << 63
"""Highest view number; leaves room to count on."""

MAX_PARTS = 1024
"""Messages that one list is divided into at most."""

_REMEMBERED = 1024
"""Addresses kept in both forms: the same ones come again with every list."""

_SCHEMES: Final = ("tcp", "tls+tcp")
_FOREIGN_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://.+", re.DOTALL)
"""What a URL of a scheme that we do not know looks like."""


class Holder(NamedTuple):
    """One holder of one id."""

    id: int
    nonce: int


class HolderKey(NamedTuple):
    """The public key of one holder of one id."""

    id: int
    nonce: int
    key: bytes


class HolderTopics(NamedTuple):
    """The topics of one holder of one id."""

    id: int
    nonce: int
    topics: tuple[str, ...]


class Gone(NamedTuple):
    """A holder that is no longer registered, and why."""

    id: int
    nonce: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Part:
    """Which of how many messages this one is."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Digest:
    """How many clients, and the exclusive or of their fingerprints."""

    count: int
    mix: int


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One data id and its type."""

    id: DataId
    write: Callable[[Writer, T], object]
    read: Callable[[Reader], T]

    def of(self, value: T) -> Parameter:
        """Return the parameter that carries ``value``."""
        writer = Writer()
        self.write(writer, value)
        return Parameter(self.id, writer.finish())

    def every(self, message: Message) -> tuple[T, ...]:
        """Return all values in the message, in their order. Raises ``WireError``."""
        return tuple(self._parse(p.data) for p in message.parameters if p.id == self.id)

    def first(self, message: Message) -> T | None:
        """Return the first value, or None when there is none.

        Raises ``WireError``, for later ones as well.
        """
        return next(iter(self.every(message)), None)

    def need(self, message: Message) -> T:
        """Return the first value. Raises ``WireError`` also when there is none."""
        value = self.first(message)
        if value is None:
            raise WireError(f"command {message.command} needs {self.id.name}")
        return value

    def _parse(self, data: bytes) -> T:
        reader = Reader(data)
        value = self.read(reader)
        reader.finish()
        return value


def _client_id(reader: Reader) -> int:
    number = reader.u32()
    if not is_client_id(number):
        raise WireError(f"{number} is no client's id")
    return number


def _server_id(reader: Reader) -> int:
    number = reader.u32()
    if not is_server_id(number):
        raise WireError(f"{number} is no server's id")
    return number


def _write_candidate(writer: Writer, candidate: Candidate) -> None:
    writer.u16(candidate.port).raw(_pack_host(candidate.host))


def _read_candidate(reader: Reader) -> Candidate:
    return _candidate(reader.u16(), reader.rest())


@lru_cache(maxsize=_REMEMBERED)
def _pack_host(host: str) -> bytes:
    return ip_address(host).packed


@lru_cache(maxsize=_REMEMBERED)
def _candidate(port: int, packed: bytes) -> Candidate:
    if len(packed) not in (4, 16) or port == 0:
        raise WireError("not a UDP address")
    return Candidate(str(ip_address(packed)), port)


def _write_member(writer: Writer, member: Member) -> None:
    writer.u32(member.id).u64(member.nonce).u8(member.state)
    if member.address is not None:
        writer.prefixed(member.address.pub.encode(), Writer.u16)
        writer.prefixed(member.address.sub.encode(), Writer.u16)


def _read_member(reader: Reader) -> Member:
    number, nonce = _server_id(reader), reader.u64()
    state = _read_state(reader)
    if not reader.remaining:
        return Member(number, nonce, None, state)
    pub, sub = reader.take(reader.u16()), reader.take(reader.u16())
    return Member(number, nonce, _address(pub, sub), state)


@lru_cache(maxsize=_REMEMBERED)
def _address(pub: bytes, sub: bytes) -> ServerAddress | None:
    """Return where to dial, or None when a scheme is unknown. Raises ``WireError``."""
    urls = (decode_text(pub), decode_text(sub))
    known = [url for url in urls if not _is_foreign(url)]
    try:
        addresses = [ServerAddress(url, url) for url in known]
    except SettingsError as error:
        raise WireError(str(error)) from error
    if not all(address.is_dialable for address in addresses):
        raise WireError("nobody listens at port 0")
    return ServerAddress(*urls) if len(known) == len(urls) else None


def _is_foreign(url: str) -> bool:
    match = _FOREIGN_URL.fullmatch(url)
    return match is not None and match["scheme"] not in _SCHEMES and len(url) <= MAX_URL


def _write_peer(writer: Writer, record: PeerRecord) -> None:
    writer.u32(record.id).u64(record.nonce).u32(record.revision).u8(len(record.candidates))
    for candidate in record.candidates:
        writer.prefixed(CANDIDATE.of(candidate).data, Writer.u8)
    writer.raw(record.data)


def _read_peer(reader: Reader) -> PeerRecord:
    number, nonce, revision, count = _client_id(reader), reader.u64(), reader.u32(), reader.u8()
    if count > MAX_CANDIDATES:
        raise WireError(f"{count} candidates are over {MAX_CANDIDATES}")
    candidates = tuple(_read_candidate(Reader(reader.take(reader.u8()))) for _ in range(count))
    return PeerRecord(number, nonce, candidates, _read_blob(reader), revision)


def _read_blob(reader: Reader) -> bytes:
    if reader.remaining > MAX_DATA:
        raise WireError(f"{reader.remaining} bytes of data are over {MAX_DATA}")
    return reader.rest()


def _read_part(reader: Reader) -> Part:
    part = Part(reader.u16(), reader.u16())
    if part.index >= part.count or part.count > MAX_PARTS:
        raise WireError(f"part {part.index} of {part.count}")
    return part


def _read_view(reader: Reader) -> int:
    number = reader.u64()
    if number > MAX_VIEW:
        raise WireError(f"view number {number} is over {MAX_VIEW}")
    return number


def _read_reason(reader: Reader) -> Reason:
    return _REASONS.get(reader.u16(), Reason.OTHER)


def _read_state(reader: Reader) -> MemberState:
    return _STATES.get(reader.u8(), MemberState.JOINING)


_REASONS: Final = {reason.value: reason for reason in Reason}
_STATES: Final = {state.value: state for state in MemberState}


VERSION = Field(DataId.VERSION, Writer.u16, Reader.u16)
FEATURES = Field(DataId.FEATURES, Writer.u32, Reader.u32)
NONCE = Field(DataId.NONCE, Writer.u64, Reader.u64)
CANDIDATE = Field(DataId.CANDIDATE, _write_candidate, _read_candidate)
STATE: Field[MemberState] = Field(DataId.STATE, Writer.u8, _read_state)
VIEW = Field(DataId.VIEW, Writer.u64, _read_view)
MEMBER = Field(DataId.MEMBER, _write_member, _read_member)
ROSTER: Field[Digest] = Field(
    DataId.ROSTER,
    lambda writer, digest: writer.u32(digest.count).u64(digest.mix),
    lambda reader: Digest(reader.u32(), reader.u64()),
)
REASON: Field[Reason] = Field(DataId.REASON, Writer.u16, _read_reason)
REVISION = Field(DataId.REVISION, Writer.u32, Reader.u32)
BLOB = Field(DataId.BLOB, Writer.raw, _read_blob)
PEER = Field(DataId.PEER, _write_peer, _read_peer)
ACKED: Field[Holder] = Field(
    DataId.ACKED,
    lambda writer, holder: writer.u32(holder.id).u64(holder.nonce),
    lambda reader: Holder(_client_id(reader), reader.u64()),
)
PART: Field[Part] = Field(
    DataId.PART, lambda writer, part: writer.u16(part.index).u16(part.count), _read_part
)
TEXT = Field(DataId.TEXT, Writer.raw, Reader.rest)
PEER_ID = Field(DataId.PEER_ID, Writer.u32, _client_id)
GONE: Field[Gone] = Field(
    DataId.GONE,
    lambda writer, gone: writer.u32(gone.id).u64(gone.nonce).u16(gone.reason),
    lambda reader: Gone(_client_id(reader), reader.u64(), _read_reason(reader)),
)
TARGET = Field(DataId.TARGET, Writer.u32, _server_id)
KEY = Field(DataId.KEY, Writer.raw, lambda reader: reader.take(KEY_SIZE))
PEER_KEY: Field[HolderKey] = Field(
    DataId.PEER_KEY,
    lambda writer, told: writer.u32(told.id).u64(told.nonce).raw(told.key),
    lambda reader: HolderKey(_client_id(reader), reader.u64(), reader.take(KEY_SIZE)),
)
TOPICS: Field[tuple[str, ...]] = Field(DataId.TOPICS, write_topics, read_topics)
PEER_TOPICS: Field[HolderTopics] = Field(
    DataId.PEER_TOPICS,
    lambda writer, told: write_topics(writer.u32(told.id).u64(told.nonce), told.topics),
    lambda reader: HolderTopics(_client_id(reader), reader.u64(), read_topics(reader)),
)
