"""What servers and clients hold at most."""

from dataclasses import dataclass
from typing import Any, Final

from sphtp.core.control.fields import MAX_PARTS
from sphtp.core.control.parts import MAX_CHUNK, MAX_RECORD_SIZE
from sphtp.core.control.roster import CAPACITY
from sphtp.errors import SettingsError

MAX_CLIENTS: Final = min(CAPACITY, MAX_PARTS * (MAX_CHUNK // MAX_RECORD_SIZE))
"""So many are told to a client in one list, whatever their data, and so many it remembers."""

MAX_ANSWERS: Final = 1 << 20
MAX_CONNECTIONS: Final = 1 << 20

SPARE_CONNECTIONS: Final = 64
"""Connections beyond the clients' that a server accepts: other servers, and people who ask."""

MAX_HANDSHAKES: Final = 1 << 16
MIN_HANDSHAKE_TIMEOUT: Final = 0.01
MAX_HANDSHAKE_TIMEOUT: Final = 3600

MAX_RATE: Final = 1_000_000
"""Per second; no server gets near."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server. Raises ``SettingsError`` when one is wrong."""

    max_clients: int = 4096
    """Registrations held; the next announcement is refused with the reason FULL."""
    announces_per_second: float = 4096.0
    """Announcements answered, so many at once and so many per second; others have to come again."""
    lookups_per_second: float = 4096.0
    """The same for lookups, whose answers may be whole lists of clients."""
    data_per_second: float = 10.0
    """Changes of its data or topics that one client may tell, so many at once and so many per
    second. Others are not taken; the server asks for the last one when the client's next heartbeat
    shows that it misses it."""
    max_answers: int = 8192
    """Answers of one sort that wait for one batch to end; those asked for beyond are not given."""
    max_connections: int | None = None
    """Connections of each of both sockets; more are closed. None is enough for all clients."""
    max_handshakes: int = 1024
    """Connections of both sockets that have not proved themselves yet; one more costs the network
    address that has the most of them its oldest one."""
    handshake_timeout: float = 10.0
    """Seconds that a connection has to prove itself: in TLS, in the greeting of the bus, and with a
    secret by a message that is vouched for. Also for each message that it begins."""

    def __post_init__(self) -> None:
        _check(self, _SERVER_RANGES)

    @property
    def connections(self) -> int:
        """The connections of each socket: two for each client, and some to spare, by default."""
        return self.max_connections or 2 * self.max_clients + SPARE_CONNECTIONS


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of one client. Raises ``SettingsError`` when one is wrong."""

    max_peers: int = CAPACITY
    """Peers remembered, whatever servers say; others are not introduced."""

    def __post_init__(self) -> None:
        _check(self, {"max_peers": (1, CAPACITY)})


_SERVER_RANGES: Final[dict[str, tuple[float, float]]] = {
    "announces_per_second": (1, MAX_RATE),
    "lookups_per_second": (1, MAX_RATE),
    "data_per_second": (1, MAX_RATE),
    "max_clients": (1, MAX_CLIENTS),
    "max_answers": (1, MAX_ANSWERS),
    "max_connections": (1, MAX_CONNECTIONS),
    "max_handshakes": (1, MAX_HANDSHAKES),
    "handshake_timeout": (MIN_HANDSHAKE_TIMEOUT, MAX_HANDSHAKE_TIMEOUT),
}


def _check(limits: Any, ranges: dict[str, tuple[float, float]]) -> None:
    for name, (low, high) in ranges.items():
        value = getattr(limits, name)
        if value is not None and not low <= value <= high:
            raise SettingsError(f"{name} is {value}; allowed are {low} to {high}")
