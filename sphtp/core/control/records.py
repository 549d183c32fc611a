"""What servers and clients tell each other about each other."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from sphtp.core.control.vocabulary import MemberState
from sphtp.errors import SettingsError

MAX_CANDIDATES = 8
MAX_DATA = 4096
MAX_MEMBERS = 64
MAX_URL = 256

_ALLOWED = "scheme://host:port or scheme://host:port,port with scheme tcp or tls+tcp"
_URL = re.compile(
    r"(?P<base>(?:tcp|tls\+tcp)://(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/,]+)):(?P<port>\d+)"
)


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A UDP address at which a peer may be reached."""

    host: str
    """Numeric IPv4 or IPv6 address."""
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
    """The two bus URLs of a server: where it publishes, and where it listens."""

    pub: str
    sub: str

    @classmethod
    def parse(cls, text: str) -> "ServerAddress":
        """Read ``tcp://host:port`` (listening on the next port) or ``tcp://host:port,port``.

        Port 0 stands for any free port, at both sockets. Raises ``SettingsError``.
        """
        first, comma, second = text.partition(",")
        base, port = _split(first, text)
        if not comma:
            return cls(first, f"{base}:{_checked(port and port + 1, text)}")
        if second.isdecimal():
            return cls(first, f"{base}:{_checked(int(second), text)}")
        _split(second, text)
        return cls(first, second)

    def __str__(self) -> str:
        base, port = _split(self.pub, self.pub)
        sub_base, sub_port = _split(self.sub, self.sub)
        if sub_base != base:
            return f"{self.pub},{self.sub}"
        if sub_port == (port and port + 1):
            return self.pub
        return f"{self.pub},{sub_port}"


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """What servers tell about a client."""

    id: int
    nonce: int
    """Tells this holder of the id from earlier and later ones; 0 for plain SphTP clients."""
    candidates: tuple[Candidate, ...] = ()
    data: bytes = b""
    """The client's initial simulation data (seed, step 10), at most ``MAX_DATA`` bytes."""
    revision: int = 0
    """Counts the changes of ``data``."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the view."""

    id: int
    nonce: int
    """Drawn at boot, so that a restarted server is another one; 0 for plain SphTP servers."""
    address: ServerAddress | None
    """None for a plain SphTP server, which does not tell."""
    state: MemberState = MemberState.ACTIVE


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The servers that have to agree: members in the order of their ids."""

    number: int = 0
    members: tuple[Member, ...] = ()

    @property
    def active(self) -> frozenset[int]:
        """Ids of the members that answer new ids."""
        return frozenset(m.id for m in self.members if m.state is MemberState.ACTIVE)


def _split(url: str, text: str) -> tuple[str, int]:
    match = _URL.fullmatch(url)
    if match is None:
        raise SettingsError(f"server address {text!r}: allowed is {_ALLOWED}")
    return match["base"], _checked(int(match["port"]), text)


def _checked(port: int, text: str) -> int:
    if port >= 1 << 16:
        raise SettingsError(f"server address {text!r}: port {port} is over 65535")
    return port
