"""What may be chosen of the control plane: periods, and what clients and servers hold at most."""

from dataclasses import dataclass
from typing import Any, Final

from sphtp.core.control.codec import MAX_PARTS
from sphtp.core.control.lists import MAX_CHUNK, MAX_RECORD_SIZE
from sphtp.core.control.records import CAPACITY
from sphtp.core.entropy import Entropy
from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ControlTimers:
    """When to speak, and when to stop waiting (seed: "about every second", "a particular time").

    ``heartbeat`` and ``expiry`` should be the same at all servers and clients of a cluster.
    Raises ``SettingsError`` when a period is wrong or contradicts another.
    """

    heartbeat: float = 1.0
    """Seconds between two heartbeats, or two announcements."""
    jitter: float = 0.1
    """Each heartbeat comes up to this share earlier or later, so that crowds fall out of step."""
    expiry: float = 10.0
    """Seconds of silence after which a server or a client is given up."""
    announce_deadline: float = 3.0
    """Seconds to wait for every server's answer before trying another id."""
    backoff: float = 1.0
    """Longest pause, in seconds, between withdrawing an id and announcing the next one."""

    def __post_init__(self) -> None:
        longest = self.heartbeat * (1 + self.jitter)
        checks = {
            f"heartbeat is {self.heartbeat:g}; it must be more than 0": self.heartbeat > 0,
            f"jitter is {self.jitter:g}; it must be at least 0 and less than 1": (
                0 <= self.jitter < 1
            ),
            f"expiry is {self.expiry:g}; it must be more than twice the longest heartbeat "
            f"interval, {longest:g}": self.expiry > 2 * longest,
            f"announce_deadline is {self.announce_deadline:g}; it must be at least one heartbeat, "
            f"{self.heartbeat:g}": self.announce_deadline >= self.heartbeat,
            f"backoff is {self.backoff:g}; it must not be negative": self.backoff >= 0,
        }
        wrong = [rule for rule, holds in checks.items() if not holds]
        if wrong:
            raise SettingsError(f"control timers: {'; '.join(wrong)}")

    @property
    def reconnect(self) -> float:
        """Seconds that a client whose connection has ended has to be heard through another one.

        The bus dials again after 0.1, 0.3, 0.7 and 1.5 s at the latest, and then says hello at
        once; a plain SphTP client has its next heartbeat to say.
        """
        return max(1.5, 1.5 * self.heartbeat)

    @property
    def joining(self) -> float:
        """Seconds a restarted server waits when nobody gives it a snapshot."""
        return 2 * self.expiry

    def next_heartbeat(self, entropy: Entropy) -> float:
        """Draw the seconds until the next heartbeat."""
        return self.heartbeat * entropy.uniform(1 - self.jitter, 1 + self.jitter)

    def next_backoff(self, entropy: Entropy) -> float:
        """Draw the seconds to pause before the next id."""
        return entropy.uniform(0, self.backoff)


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
