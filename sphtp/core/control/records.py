"""Records of servers and clients: names, addresses, data, topics, groups, views.

``registrations`` has the rules by which a client's record expires.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from reprlib import repr as brief
from typing import Any, Final, NamedTuple, Self
from unicodedata import category

from sphtp.core.control.vocabulary import MemberState, Reason
from sphtp.core.datagrams import Address
from sphtp.core.packing import MALFORMED, unpack
from sphtp.core.printable import peer_label, without_password
from sphtp.core.serial import SerialNumber
from sphtp.core.topics import LONGEST_NAME, check_group, check_topic
from sphtp.core.wire import decode_text
from sphtp.errors import SettingsError, WireError

MAX_NAMES: Final = 64
"""The most topics of a client, and the most groups of a client."""
MAX_NAMES_SIZE: Final = 2048
"""The most bytes on the wire of all topics of a client, and of all groups, which bounds the size of
its record.
"""
MAX_NAME_SIZE: Final = 4 * LONGEST_NAME
"""The most bytes of a client's name: UTF-8 has at most four for a character."""

_REMEMBERED: Final = 256
"""The most decoded lists of names in the cache: many clients of a simulation have the same list."""

_CONTROL: Final = "Cc"
"""Control characters, the Unicode category to which no later version adds any. So all readers
agree on it.
"""


def check_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics, each once. Raises ``SettingsError`` if a client cannot have them."""
    return _check_all("topics", map(check_topic, topics))


def check_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the groups, each once. Raises ``SettingsError`` if a client cannot be in them."""
    if isinstance(groups, str):
        raise SettingsError(
            f"groups is {groups!r}; allowed are several names, such as [{groups!r}]"
        )
    return _check_all("groups", map(check_group, groups))


def _check_all(kind: str, checked: Iterable[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(checked))
    if len(names) > MAX_NAMES:
        raise SettingsError(f"{len(names)} {kind}; allowed are {MAX_NAMES} of one client")
    if (size := size_of_names(names)) > MAX_NAMES_SIZE:
        raise SettingsError(
            f"the names of {len(names)} {kind} take {size} bytes, with one more for each; "
            f"allowed are {MAX_NAMES_SIZE}"
        )
    return names


def size_of_names(names: Iterable[str]) -> int:
    """Return the number of bytes of the names of topics or groups on the wire."""
    return sum(1 + len(name.encode()) for name in names)


def encode_names(names: Iterable[str]) -> bytes:
    """Encode the names of topics or groups, each after its length u8."""
    parts: list[bytes] = []
    for name in names:
        text = name.encode()
        parts += (bytes((len(text),)), text)
    return b"".join(parts)


@lru_cache(maxsize=_REMEMBERED)
def decode_names(data: bytes) -> tuple[str, ...]:
    """Decode names. Raises ``WireError`` if they are malformed, or a client cannot have them."""
    if len(data) > MAX_NAMES_SIZE:
        raise WireError(f"{len(data)} bytes of names are over {MAX_NAMES_SIZE}")
    names = list[str]()
    start = 0
    while start < len(data):
        end = start + 1 + data[start]
        if end > len(data):
            raise WireError("a name is cut off")
        if end == start + 1:
            raise WireError("a name is empty")
        names.append(decode_name(data[start + 1 : end]))
        start = end
    if len(names) > MAX_NAMES or len(set(names)) < len(names):
        raise WireError(f"{len(names)} names are over {MAX_NAMES}, or two are the same")
    return tuple(names)


def decode_name(data: bytes) -> str:
    """Decode one name. Raises ``WireError`` if it is not UTF-8, or has a control character."""
    name = decode_text(data)
    if any(category(one) == _CONTROL for one in name):
        raise WireError(f"{name!r} has a control character")
    return name


MAX_LOOKED_UP: Final = 256
"""The most peers that a client watches because it looked them up."""
MAX_WATCHES: Final = 1 + MAX_NAMES + MAX_LOOKED_UP
"""The most watches of a client: ``WITHOUT_PRESENCE``, its groups, and the peers that it looked up.
"""
MAX_CANDIDATES = 8
MAX_DATA = 4096
KEY_SIZE = 32
MAX_MEMBERS = 64
MOST_PEERS = 16384
"""The most peers that a client keeps, so that no server can make it take more memory."""
MAX_URL = 256
_REVISION: Final = SerialNumber(32)
"""The arithmetic of revisions. They wrap around, and skip 0, which means "no data"."""

_ALLOWED = (
    "host:port, tcp://host:port or tls+tcp://host:port, with IPv6 as [::1]:port, and with ,port "
    f"behind it where the second port is not the next one; {MAX_URL} characters at most"
)
_SCHEME = "tcp://"
_DIGITS = re.compile("[0-9]{1,5}")
_URL = re.compile(
    r"(?P<base>(?:tcp|tls\+tcp)://(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|[0-9A-Za-z._-]+))"
    r":(?P<port>[0-9]{1,5})"
)

_SCHEMES: Final = ("tcp", "tls+tcp")
_FOREIGN_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://.+", re.DOTALL)
"""Matches a URL with a scheme that this version does not know."""


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A UDP address at which a peer may be reached.

    Raises ``SettingsError`` if the host is not a numeric address, or the port is not 1 to 65535.
    """

    host: str
    """A numeric IPv4 or IPv6 address."""
    port: int

    def __post_init__(self) -> None:
        try:
            ip_address(self.host)
        except ValueError as error:
            raise SettingsError(f"candidate {self.host!r} is not a numeric address") from error
        if not 0 < self.port < 1 << 16:
            raise SettingsError(f"candidate port {self.port} is not between 1 and 65535")


@dataclass(frozen=True, slots=True, order=True)
class ServerAddress:
    """The two bus URLs of a server: of its PUB socket, and of its SUB socket.

    Port 0 stands for any free port, and cannot be dialled. Raises ``SettingsError`` if one of them
    is not a URL of a bus socket, or is too long.
    """

    pub: str
    sub: str

    def __post_init__(self) -> None:
        for url in (self.pub, self.sub):
            _split(url, url)

    @classmethod
    def parse(cls, text: str) -> "ServerAddress":
        """Return the address in a text ``tcp://host:port`` or ``tcp://host:port,port``.

        The second port is that of ``sub``, by default the next one; a whole URL may stand in its
        place. The default scheme is ``tcp``. Port 0 stands for any free port, and alone for any
        two. Raises ``SettingsError`` if the text is malformed.
        """
        first, comma, second = text.partition(",")
        first = first if "://" in first else _SCHEME + first
        base, port = _split(first, text)
        if not comma:
            return cls(first, f"{base}:{_checked(port and port + 1, text)}")
        if _DIGITS.fullmatch(second):
            return cls(first, f"{base}:{_checked(int(second), text)}")
        _split(second, text)
        return cls(first, second)

    @property
    def is_dialable(self) -> bool:
        """True if neither port is 0."""
        return all(_split(url, url)[1] for url in (self.pub, self.sub))

    def __str__(self) -> str:
        base, port = _split(self.pub, self.pub)
        sub_base, sub_port = _split(self.sub, self.sub)
        if sub_base != base:
            return f"{self.pub},{self.sub}"
        if sub_port == (port and port + 1):
            return self.pub
        return f"{self.pub},{sub_port}"


def decode_address(*urls: str) -> ServerAddress | None:
    """Return the address to dial, or None if a scheme is unknown.

    Raises ``WireError`` if a URL is malformed, or has port 0.
    """
    known = [url for url in urls if not _is_foreign(url)]
    try:
        addresses = [ServerAddress(url, url) for url in known]
    except SettingsError as error:
        raise WireError(str(error)) from error
    if not all(address.is_dialable for address in addresses):
        raise WireError("a server cannot have port 0")
    return ServerAddress(*urls) if len(known) == len(urls) else None


def _is_foreign(url: str) -> bool:
    match = _FOREIGN_URL.fullmatch(url)
    return match is not None and match["scheme"] not in _SCHEMES and len(url) <= MAX_URL


class RecordEncoding(NamedTuple):
    """The encoded parameters of a record."""

    peer: bytes
    beside: Mapping[int, bytes]
    """The encoded key, name, topics and groups, which follow ``PEER``, by data id."""


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """A client as servers describe it to each other and to clients."""

    id: int
    nonce: int
    """A number that distinguishes this holder of the id from others; 0 for plain SphTP clients."""
    candidates: tuple[Candidate, ...] = ()
    data: bytes = b""
    """The client's initial simulation data (SphTP, step 10), at most ``MAX_DATA`` bytes."""
    revision: int = 0
    """A counter of changes of ``data``, ``topics`` and ``groups``, see ``next_revision``."""
    key: bytes = b""
    """The client's public key, ``KEY_SIZE`` bytes, or empty if it has none."""
    topics: tuple[str, ...] = ()
    """The topics of the client's sources."""
    name: str = ""
    """The name that the client gave itself, or empty; it is not unique."""
    groups: tuple[str, ...] = ()
    """The groups that the client is in."""
    encoding: RecordEncoding | None = field(default=None, init=False, compare=False, repr=False)
    """The encoded record, or None before it was encoded or decoded for the first time."""

    def remember(self, encoding: RecordEncoding) -> None:
        """Store the encoded record."""
        object.__setattr__(self, "encoding", encoding)

    def after(self, known: "PeerRecord") -> "PeerRecord":
        """Return this record, completed from the ``known`` record of the same holder.

        Not every server sends key, name, topics and groups. The key and the name of a holder never
        change, and its topics and groups only with its revision.
        """
        key, name = known.key or self.key, known.name or self.name
        topics, groups = self.topics, self.groups
        if self.revision == known.revision:
            topics, groups = known.topics or topics, known.groups or groups
        if (key, name, topics, groups) == (self.key, self.name, self.topics, self.groups):
            return self
        return replace(self, key=key, name=name, topics=topics, groups=groups)


def next_revision(revision: int) -> int:
    """Return the revision after ``revision``; never 0."""
    return _REVISION.wrap(revision + 1) or 1


def is_newer(revision: int, other: int) -> bool:
    """Return True if ``revision`` is later than ``other``, in serial number arithmetic.

    0 is earlier than every other revision.
    """
    return bool(revision) and (other == 0 or _REVISION.ahead(revision, other) > 0)


class Holder(NamedTuple):
    """A holder of an id: the same id with another nonce is another holder."""

    id: int
    nonce: int


class GoneHolder(NamedTuple):
    """A holder that is no longer registered, and the reason."""

    id: int
    nonce: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest of a list of clients: their number, and the XOR of their fingerprints."""

    count: int
    mix: int


class Watch(NamedTuple):
    """A watch: a group's topic or a peer's id, and the digest of the client's records of it."""

    topic: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the view, as it describes itself."""

    id: int
    nonce: int
    """A number that a server draws at its start, so that a restarted server is a different one; 0
    for plain SphTP.
    """
    address: ServerAddress | None
    """The address to dial; None for plain SphTP servers and unknown schemes."""
    state: MemberState = MemberState.ACTIVE


MAX_VIEW = 1 << 63
"""The highest view number."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The view: the servers that have to agree on client ids, in the order of their own ids."""

    number: int = 0
    members: tuple[Member, ...] = ()

    @property
    def active(self) -> frozenset[int]:
        """The ids of the members that register new client ids."""
        return frozenset([m.id for m in self.members if m.state is MemberState.ACTIVE])


def _split(url: str, text: str) -> tuple[str, int]:
    match = _URL.fullmatch(url)
    if match is None or len(url) > MAX_URL or not _is_ipv6(match["ipv6"]):
        raise SettingsError(f"server address {without_password(text)!r}: allowed is {_ALLOWED}")
    return match["base"], _checked(int(match["port"]), text)


def _is_ipv6(host: str | None) -> bool:
    try:
        return host is None or bool(IPv6Address(host))
    except ValueError:
        return False


def _checked(port: int, text: str) -> int:
    if port >= 1 << 16:
        raise SettingsError(f"server address {text!r}: port {port} is over 65535")
    return port


@dataclass(frozen=True, slots=True)
class Peer:
    """A client of the same cluster, as the servers introduce it.

    Two objects are equal if they have the same id and nonce, even if other fields differ. The data,
    topics and groups of a new client arrive a moment after its entry.
    """

    id: int
    packed: bytes = field(repr=False, compare=False)
    """The peer's data as msgpack; empty if it has none, or none yet."""
    addresses: tuple[Address, ...] = field(compare=False)
    """The UDP addresses at which the peer accepts channels, as pairs of host and port."""
    nonce: int
    """A number that distinguishes this holder of the id from earlier and later ones."""
    key: bytes = field(default=b"", compare=False)
    """The peer's public key, 32 bytes; empty if it has none."""
    topics: tuple[str, ...] = field(default=(), compare=False)
    """The topics of the peer's sources."""
    name: str = field(default="", compare=False)
    """The name that the peer gave itself, or empty. Several peers may have the same one."""
    groups: tuple[str, ...] = field(default=(), compare=False)
    """The groups that the peer is in."""
    _unpacked: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        addresses = ", ".join(f"{host}:{port}" for host, port in self.addresses)
        where = addresses or "no address"
        return f"<Peer {peer_label(self.name, self.id)} at {where}, data {brief(self.data)}>"

    @property
    def data(self) -> Any:
        """The peer's data, unpacked; None if it has none, or if the data is not msgpack.

        The data of a new client arrives a moment after its entry, so it is None at first.
        """
        # Unpacked at the first access: frequent changes cost nothing if no program reads the data.
        if not self._unpacked:
            self._unpacked.append(_decode(self.packed))
        return self._unpacked[0]

    @classmethod
    def from_record(cls, record: PeerRecord) -> Self:
        """Return the peer of a record."""
        addresses = tuple((candidate.host, candidate.port) for candidate in record.candidates)
        return cls(
            record.id,
            record.data,
            addresses,
            record.nonce,
            record.key,
            record.topics,
            record.name,
            record.groups,
        )


def _decode(data: bytes) -> Any:
    try:
        return unpack(data) if data else None
    except MALFORMED:
        return None


class KnownPeers(Mapping[int, Peer]):
    """The peers by id: a live view of their records."""

    def __init__(self, records: Mapping[int, PeerRecord]) -> None:
        self._records = records

    def __getitem__(self, number: int) -> Peer:
        return Peer.from_record(self._records[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, number: object) -> bool:
        return number in self._records
