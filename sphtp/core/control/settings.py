"""Settings of the control plane: periods, and limits of clients and servers."""

from dataclasses import dataclass
from typing import Any, Final

from sphtp.core.control.lists import MAX_RECORDS
from sphtp.core.control.records import MOST_PEERS
from sphtp.core.entropy import Entropy
from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ControlTimers:
    """The periods of the control plane (SphTP: "about every second", "a particular time").

    ``heartbeat`` and ``expiry`` should be the same at all servers and clients of a cluster. Raises
    ``SettingsError`` if a period is wrong or contradicts another.
    """

    heartbeat: float = 1.0
    """Seconds between two heartbeats, or two announcements."""
    jitter: float = 0.1
    """Largest share of ``heartbeat`` by which a heartbeat is earlier or later, so that many clients
    do not send at the same time.
    """
    expiry: float = 10.0
    """Seconds of silence after which a server is removed from the view, and a client de-registered.
    """
    announce_deadline: float | None = None
    """Seconds that a client waits for the answers of all servers before it tries another id.

    None stands for three heartbeats.
    """
    backoff: float = 1.0
    """Longest pause, in seconds, between withdrawing an id and announcing the next one."""
    answer_timeout: float = 30.0
    """Seconds in which running servers have to acknowledge a new client, or to send their status.
    """
    start_timeout: float = 0.0
    """Seconds for which a new client waits for a server to start; with 0, one has to run."""
    max_drift: float = 100e-6
    """Largest relative error of the rate of a machine's clock, from which ``clock`` computes its
    own error.
    """

    def __post_init__(self) -> None:
        longest = self.heartbeat * (1 + self.jitter)
        checks = {
            f"heartbeat is {self.heartbeat:g}; it must be more than 0": self.heartbeat > 0,
            f"jitter is {self.jitter:g}; it must be at least 0 and less than 1": (
                0 <= self.jitter < 1
            ),
            f"expiry is {self.expiry:g}; it must be more than twice the longest heartbeat "
            f"interval, {longest:g}": self.expiry > 2 * longest,
            f"announce_deadline is {self.announcing:g}; it must be at least one heartbeat, "
            f"{self.heartbeat:g}": self.announcing >= self.heartbeat,
            f"backoff is {self.backoff:g}; it must not be negative": self.backoff >= 0,
            f"answer_timeout is {self.answer_timeout:g}; it must be more than 0": (
                self.answer_timeout > 0
            ),
            f"start_timeout is {self.start_timeout:g}; it must not be negative": (
                self.start_timeout >= 0
            ),
            f"max_drift is {self.max_drift:g}; it must be between 0.000001 and 0.01": (
                1e-6 <= self.max_drift <= 0.01
            ),
        }
        wrong = [rule for rule, holds in checks.items() if not holds]
        if wrong:
            raise SettingsError(f"control timers: {'; '.join(wrong)}")

    @property
    def announcing(self) -> float:
        """The seconds that a client waits for all answers, also if ``announce_deadline`` is None.

        A server that is joining waits as long for the list of a server that appears late.
        """
        return 3 * self.heartbeat if self.announce_deadline is None else self.announce_deadline

    @property
    def reconnect(self) -> float:
        """The seconds after the end of a client's connection in which its next message must come.

        The bus dials again 0.1, 0.3, 0.7 and 1.5 s after that at the latest, and then the client
        sends a message at once. A plain SphTP client sends its next heartbeat.
        """
        return max(1.5, 1.5 * self.heartbeat)

    @property
    def joining(self) -> float:
        """The seconds after its start that a server waits for a snapshot of the registered ids.

        By then each client that holds an id has sent a heartbeat, or has expired. In ``make
        check-model``, a server that waits for one heartbeat only gives an id to a second client.
        """
        return 2 * self.expiry

    def next_heartbeat(self, entropy: Entropy) -> float:
        """Draw the time until the next heartbeat, in seconds."""
        return self.heartbeat * entropy.uniform(1 - self.jitter, 1 + self.jitter)

    def next_backoff(self, entropy: Entropy) -> float:
        """Draw the pause before the next id is announced, in seconds."""
        return entropy.uniform(0, self.backoff)


MAX_CLIENTS: Final = min(MOST_PEERS, MAX_RECORDS)
"""The most clients of a server: one list can contain as many, and a client keeps as many peers."""

MAX_ANSWERS: Final = 1 << 20
MAX_CONNECTIONS: Final = 1 << 20

SPARE_CONNECTIONS: Final = 64
"""Connections that a server accepts beside those of clients: for servers and status requests."""

MAX_HANDSHAKES: Final = 1 << 16
MIN_HANDSHAKE_TIMEOUT: Final = 0.01
MAX_HANDSHAKE_TIMEOUT: Final = 3600

MAX_RATE: Final = 1_000_000
"""The highest rate, in events per second, that the limits allow."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of one server. Raises ``SettingsError`` if one is out of range.

    A rate is also the largest number of events at once.
    """

    max_clients: int = 4096
    """Most registrations. The server refuses further announcements with the reason FULL."""
    announces_per_second: float = 4096.0
    """Announcements that the server answers per second; clients repeat the others."""
    lookups_per_second: float = 4096.0
    """Lookups that the server answers per second. An answer may be a whole list of clients.

    Requests for checks of addresses count, too.
    """
    data_per_second: float = 10.0
    """Changes of data, topics or groups that the server takes from one client per second.

    It drops others. When the client's next heartbeat has a revision that the server lacks, it
    requests the latest data.
    """
    max_answers: int = 8192
    """Most answers of one kind that wait for the next batch. Further requests get no answer."""
    max_connections: int | None = None
    """Most connections of each of the two sockets. The server closes further ones.

    None stands for twice ``max_clients``, and 64 more.
    """
    max_handshakes: int = 1024
    """Most connections of both sockets that are not authenticated yet.

    When there is one more, the server closes the oldest of them from the network address that has
    the most.
    """
    handshake_timeout: float = 10.0
    """Seconds in which a connection has to authenticate itself.

    It does so in TLS, in the greeting of the bus and, with a secret, by a message with a valid MAC.
    Each message must also be complete within this time after its beginning.
    """

    stun_per_second: float = 1000.0
    """STUN requests that the server answers per second; clients repeat the others."""

    def __post_init__(self) -> None:
        _check(self, _SERVER_RANGES)

    @property
    def connections(self) -> int:
        """The most connections of each socket, also if ``max_connections`` is None."""
        return self.max_connections or 2 * self.max_clients + SPARE_CONNECTIONS


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of one client. Raises ``SettingsError`` if one is out of range."""

    max_peers: int = MOST_PEERS
    """Most peers that the client keeps. It ignores others, and counts them as ``over_max_peers``.
    """

    def __post_init__(self) -> None:
        _check(self, {"max_peers": (1, MOST_PEERS)})


_SERVER_RANGES: Final[dict[str, tuple[float, float]]] = {
    "announces_per_second": (1, MAX_RATE),
    "lookups_per_second": (1, MAX_RATE),
    "data_per_second": (1, MAX_RATE),
    "stun_per_second": (1, MAX_RATE),
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
