"""The settings of a channel: kinds of delivery, lanes, limits and timers."""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final, Self

from sphtp.errors import SettingsError

MOST_LANES = 64

# The smallest datagram that both sides must accept: the header and any control frame fit into it.
SMALLEST_DATAGRAM = 256

CONTROLLERS = ("newreno", "cubic", "tolerant")
FIXED = "fixed"


class Delivery(Enum):
    """The kind of delivery of a message."""

    RELIABLE = auto()
    """The sender retransmits the message until the receiver acks it, or until its deadline if it
    has one. An ordered lane delivers such messages in order."""
    UNRELIABLE = auto()
    """The sender sends the message once. It may be lost, or arrive after a later message."""
    SEQUENCED = auto()
    """The sender sends the message once. The receiver drops it if a later ``SEQUENCED`` message of
    its lane arrived first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A lane of a channel: a sequence of messages with an order of its own.

    A lost message delays only later messages of its own lane. Messages in a lane of higher
    ``priority`` leave first. Lanes of equal priority share the bandwidth by ``weight``. If a lane
    is not ``ordered``, the receiver delivers its reliable messages as they arrive.

    Raises ``SettingsError`` for a weight that is not a finite number above 0.
    """

    priority: int = 0
    weight: float = 1.0
    ordered: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise SettingsError(
                f"a lane's weight is {self.weight}; allowed is a finite number above 0"
            )


def check_lanes(lanes: tuple[Lane, ...]) -> None:
    """Raise ``SettingsError`` for too few or too many lanes."""
    if not 1 <= len(lanes) <= MOST_LANES:
        raise SettingsError(f"lanes has {len(lanes)} entries; allowed is 1 to {MOST_LANES}")


def parse_congestion(name: str) -> tuple[str, float | None]:
    """Return the kind of the congestion controller with this name, and its rate.

    ``fixed:RATE`` has a rate, in bytes per second; for every other name the rate is None. Raises
    ``SettingsError`` if there is no such controller, or if the rate is not a finite number above 0.
    """
    kind, colon, argument = name.partition(":")
    if kind == FIXED and colon:
        return FIXED, _parse_rate(argument)
    if name not in CONTROLLERS:
        raise SettingsError(
            f"no congestion controller is called {name!r}; allowed are {', '.join(CONTROLLERS)} "
            f"and {FIXED}:RATE, with RATE in bytes per second"
        )
    return name, None


def _parse_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise SettingsError(f"the rate of fixed:{text} is no positive number of bytes per second")
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """Limits and timers of a channel; times in seconds, sizes in bytes.

    ``docs/reference/settings.md`` has the meaning and the range of each field. If ``keepalive`` is
    None, half of ``timeout`` is used.

    Raises ``SettingsError`` if a value is out of range or contradicts another one.
    """

    max_datagram: int = 65_507
    base_datagram: int = 1200
    congestion: str = "cubic"
    max_window: int = 4 * 1024 * 1024
    max_message: int = 16 * 1024 * 1024
    send_buffer: int = 16_384
    send_buffer_bytes: int = 32 * 1024 * 1024
    receive_buffer: int = 16_384
    receive_buffer_bytes: int = 64 * 1024 * 1024
    node_buffer_bytes: int = 1024 * 1024 * 1024
    unreliable_buffer: int = 256
    resend_time: float = 0.1
    ack_delay: float = 0.01
    ack_every: int = 2
    keepalive: float | None = None
    timeout: float = 10.0
    connect_timeout: float = 5.0
    close_timeout: float = 5.0
    linger: float = 1.0
    busy_poll: float = 0.0005
    shared_memory: int = 64 * 1024 * 1024
    shared_memory_threshold: int = 2048
    array_views: bool = False
    backlog: int = 128
    max_channels: int = 16_384
    first_sequence: int = 0
    lanes: tuple[Lane, ...] = (Lane(),)
    envelope: int = 0

    @classmethod
    def wan(cls, **changes: Any) -> Self:
        """Return the settings for long paths that lose packets at random, with ``changes``.

        Of the adaptive controllers only ``tolerant`` fills such a path. The others interpret each
        loss as a full queue. The rate of ``newreno`` is about one packet per round trip, divided by
        the square root of the loss ratio (Mathis et al., 1997).
        """
        return cls(**(WAN | changes))

    def __post_init__(self) -> None:
        for name in RANGES:
            if (value := getattr(self, name)) is not None:
                _check_range(name, value)
        check_lanes(self.lanes)
        parse_congestion(self.congestion)
        if self.receive_buffer_bytes < 2 * self.max_message:
            raise SettingsError(
                f"receive_buffer_bytes ({self.receive_buffer_bytes}) must be at least twice "
                f"max_message ({self.max_message})"
            )
        if self.keepalive is not None and self.keepalive * 2 > self.timeout:
            raise SettingsError(
                f"timeout ({self.timeout} s) must be at least twice keepalive ({self.keepalive} s)"
            )

    @property
    def keepalive_interval(self) -> float:
        """Seconds without an outgoing packet after which the dialling side sends a PING.

        The answering side waits a quarter longer. Either PING may leave up to a sixteenth of this
        time early. See ``ANSWERER_WAITS`` and ``KEEPALIVE_STEPS`` in ``connection``.
        """
        return self.timeout / 2 if self.keepalive is None else self.keepalive

    def enveloped(self, envelope: int) -> Self:
        """Return the settings for a channel around which a layer adds bytes to each datagram.

        ``max_datagram`` and ``base_datagram`` become smaller by ``envelope`` bytes. Raises
        ``SettingsError`` if one of them becomes too small.
        """
        for name in ("max_datagram", "base_datagram"):
            if getattr(self, name) < SMALLEST_DATAGRAM + envelope:
                raise SettingsError(
                    f"{name} is {getattr(self, name)}; sealed channels need "
                    f"{SMALLEST_DATAGRAM + envelope}"
                )
        return replace(
            self,
            max_datagram=self.max_datagram - envelope,
            base_datagram=self.base_datagram - envelope,
            envelope=envelope,
        )


WAN: Final[dict[str, Any]] = {"congestion": "tolerant", "max_window": 16 * 1024 * 1024}

# Many upper bounds follow from the fields on the wire: 16-bit ids and lengths, 32-bit sizes. A
# buffer of reliable messages has at most a quarter of the 16-bit range, so that no message id in
# use is ambiguous.
RANGES: dict[str, tuple[float, float]] = {
    "max_datagram": (SMALLEST_DATAGRAM, 65_507),
    "max_message": (1, 2**26),
    "send_buffer": (1, 16_384),
    "send_buffer_bytes": (1, 2**40),
    "receive_buffer": (1, 16_384),
    "receive_buffer_bytes": (1, 2**32 - 1),
    "node_buffer_bytes": (1, 2**40),
    "unreliable_buffer": (1, 65_536),
    "base_datagram": (SMALLEST_DATAGRAM, 65_507),
    "max_window": (2 * 65_507, 2**31),
    "resend_time": (0.001, 60),
    "ack_delay": (0, 1),
    "ack_every": (1, 16),
    "keepalive": (0.001, 3600),
    "timeout": (0.01, 86_400),
    "connect_timeout": (0.01, 3600),
    "close_timeout": (0.01, 3600),
    "linger": (0, 3600),
    "busy_poll": (0, 0.01),
    "shared_memory": (0, 2**30),
    "shared_memory_threshold": (2048, 2**26),
    "backlog": (1, 65_536),
    "max_channels": (1, 2**24),
    "envelope": (0, 256),
    "first_sequence": (0, 2**62),
}


def _check_range(name: str, value: float) -> None:
    low, high = RANGES[name]
    if not low <= value <= high:
        raise SettingsError(f"{name} is {value}; allowed is {low} to {high}")
