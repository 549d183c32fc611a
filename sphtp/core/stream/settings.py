"""Timers and limits of a stream, in three profiles, and the memory that a datagram counts for.

``um`` has the defaults of Ultra Messaging, including their defects, for comparison; ``lan`` is for
one machine or one switch; ``wan`` for paths of tens of milliseconds. Source and receivers of a
stream may have different settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from ipaddress import IPv4Address
from typing import Any, Final, Self

from sphtp.errors import SettingsError

OVERHEAD: Final = 768
"""The bytes charged for a datagram beside its body: Linux takes as many for the smallest one."""
MEBIBYTE: Final = 1 << 20
MBIT: Final = 125_000.0
"""Bytes a second."""
SMALLEST_DATAGRAM: Final = 1024
"""Bytes; it has room for a NAK."""
SMALL_MESSAGE: Final = 64


class Backoff(Enum):
    """The distribution of the wait before a NAK."""

    UNIFORM = "between half and one and a half of the interval"
    EXPONENTIAL = "up to the interval, early only with the few: for groups (RFC 5401, 3.2)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Timers and limits of a source or a receiver: seconds, bytes, and bytes a second.

    Raises ``SettingsError``, naming the settings, when one is out of range, or two contradict each
    other.
    """

    # Receivers
    initial_backoff: float = 0.005
    """Seconds from a gap to the first NAK, on average; 0 asks at once."""
    backoff: Backoff = Backoff.UNIFORM
    group_size: int = 100
    """Receivers that may share a loss, for ``Backoff.EXPONENTIAL``."""
    send_naks: bool = True
    """True if NAKs are sent at all; others of a group may, and their repairs come to all."""
    ordered: bool = True
    """True if messages come in the order of their sending; else as they arrive, each at most once.
    """
    recover: bool = True
    """True if messages that the stream does not repair are fetched over TCP, if retained."""
    interface: str | None = None
    """The IPv4 address of this machine at which a receiver joins a multicast group; None for the
    address of its node.
    """
    nak_backoff: float = 0.1
    """Seconds between NAKs for one datagram, on average."""
    nak_spacing: float = 0.005
    """Seconds between two NAKs of one receiver, at least."""
    suppress: float = 0.2
    """Seconds without NAKs after an NCF that names no time."""
    generation: float = 10.0
    """The age in seconds at which a missing datagram is lost."""
    loss_map: int = 65_536
    """The most ranges of missing datagrams. Of more, the oldest are lost."""
    # A channel notices after 10 s that nothing comes: that leaves time to come back to the source.
    activity_timeout: float = 30.0
    """The seconds of silence after which a source has vanished."""
    order_map: int = 200_000
    """The most messages of a topic that wait for one before them."""
    order_map_bytes: int = 64 * MEBIBYTE
    max_message: int = 16 * MEBIBYTE

    receive_buffer: int = 16 * MEBIBYTE
    """The most bytes of messages that wait for the reader. Further ones are lost."""

    bandwidth_delay: int = 0
    """Bytes that the path holds, beside those that a receiver's socket can hold at once."""

    # Sources
    flow_window: int = 8 * MEBIBYTE
    """The most bytes that a source may be ahead of its slowest receiver; 0 sets no limit."""
    patience: float = 1.0
    """The longest time, in seconds, for which a stalled receiver may keep a source waiting."""
    ignore: float = 0.04
    """Seconds after a repair in which NAKs for the same datagram are ignored."""
    session_min: float = 0.05
    """Seconds from the last datagram to the first session message; then the wait doubles."""
    # Seven chances in ``activity_timeout``: with three, a quiet source is gone at 30 % loss soon.
    session_max: float = 2.0
    linger: float = 5.0
    """The longest time, in seconds, for which a closing source repairs."""
    window: int = 24 * MEBIBYTE
    """The most bytes of datagrams kept for repairs."""
    window_age: float = 60.0
    """The longest time, in seconds, for which datagrams are kept for repairs."""
    max_datagram: int = 1400
    local_datagram: int = 31_000
    """The largest datagram of a source that only its own machine reaches: larger ones cost less
    there.
    """
    data_rate: float | None = None
    """The rate of new data; None sets no limit."""
    repair_rate: float = 50 * MBIT
    """The rate of repairs to a group; without one, to each receiver that asks for them."""
    repair_share: float | None = 3.0
    """The rate of repairs as a multiple of the recent rate of new data.

    While more repairs wait, the rate of new data does not grow. None sets neither limit.
    """
    repair_queue: int = 4096
    """The most repairs that wait for their turn: those to a group, or to one receiver."""
    nak_budget: float = 2000.0
    """The datagrams a second that one receiver may ask for; further requests are ignored."""

    max_receivers: int = 1024
    """The most receivers of a source; others are refused."""
    lenient: bool = False
    """True if ``ignore`` and ``linger`` may be such that repairs fail, as in ``um``."""

    # Late join and off-transport recovery
    retention: int = 24 * MEBIBYTE
    """The bytes of messages that a source retains for late joiners; 0 retains none."""
    retention_age: float = 600.0
    retention_count: int = 1_000_000
    fetch_rate: float | None = None
    """The rate of a source to one receiver that fetches; None sets no limit."""
    fetch_window: int = 200
    """The messages asked for ahead."""
    fetch_interval: float = 1.0
    """Seconds between requests that get no answer; doubles, ten times at most."""
    fetch_timeout: float = 60.0
    """The age in seconds at which a message that is asked for is lost."""
    caching_proximity: int = 5000
    """Live messages up to so far ahead of the missing ones are kept; others are fetched again."""

    @classmethod
    def lan(cls, **changes: Any) -> Self:
        """Return the settings for one machine, or one network."""
        return cls(**changes)

    @classmethod
    def um(cls, **changes: Any) -> Self:
        """Return the defaults of Ultra Messaging 6.17, of which ``ignore`` contradicts
        ``nak_backoff``.
        """
        return cls(**(UM | changes))

    @classmethod
    def wan(cls, rtt: float = 0.1, rate: float | None = None, **changes: Any) -> Self:
        """Return the settings for paths with a round trip of ``rtt`` seconds.

        ``rate`` is the ``data_rate``, in bytes a second. With it, windows and buffers hold what
        arrives while a lost datagram is asked for three times: the rate times an initial backoff,
        three NAK backoffs and two round trips (Ultra Messaging's rule for a transmission window).
        A smaller window would slow the source down behind each datagram that is lost twice.
        Raises ``SettingsError`` for a path that holds more than windows and buffers can.
        """
        backoff = max(0.4, 4 * rtt)
        chosen = WAN | {
            "initial_backoff": 0.02 + rtt,
            "nak_backoff": backoff,
            "ignore": max(0.4 * backoff, 1.5 * rtt),
        }
        if rate is not None:
            charged = rate * (1 + OVERHEAD / SMALLEST_DATAGRAM)
            cycle = chosen["initial_backoff"] + 3 * backoff + 2 * rtt
            held, least = round(rate * cycle), cls()
            chosen |= {
                "data_rate": rate,
                "repair_rate": min(chosen["repair_rate"], rate),
                "window": max(chosen["window"], held),
                "flow_window": max(least.flow_window, round(charged * cycle)),
                "receive_buffer": max(least.receive_buffer, held),
                "order_map": max(least.order_map, held // SMALL_MESSAGE),
                "order_map_bytes": max(least.order_map_bytes, held),
                # Reports take a round trip, and come with each quarter of a window.
                "bandwidth_delay": round(2 * rtt * charged),
            }
        try:
            return cls(**(chosen | changes))
        except SettingsError as error:
            path = f"a round trip of {rtt:g} s" + (f" at {rate:g} bytes/s" if rate else "")
            raise SettingsError(f"{path}: {error}") from None

    def for_group(self) -> Self:
        """Return these settings for receivers that share their losses, as in a multicast group."""
        return replace(self, backoff=Backoff.EXPONENTIAL, initial_backoff=0.03)

    def for_loopback(self, most: int) -> Self:
        """Return these settings for a source that only its own machine reaches.

        Datagrams have at most ``most`` bytes, and windows hold several of them.
        """
        largest = min(self.window // 4, self.receive_buffer - OVERHEAD)
        size = min(self.local_datagram, most, largest, self.flow_window // 8 or most)
        return replace(self, max_datagram=max(self.max_datagram, size))

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_range(field.name, getattr(self, field.name))
        if self.interface is not None and not _is_of_a_machine(self.interface):
            raise SettingsError(f"interface is {self.interface!r}; allowed is an IPv4 address")
        for holds, message in RULES:
            if not holds(self):
                raise SettingsError(message.format(self))


Rule = tuple[Callable[[StreamSettings], bool], str]

RULES: Final[tuple[Rule, ...]] = (
    (
        lambda its: its.lenient or its.ignore < 0.5 * its.nak_backoff,
        (
            "ignore ({0.ignore:g} s) must be less than half of nak_backoff ({0.nak_backoff:g} s), "
            "else a second NAK is ignored"
        ),
    ),
    (
        lambda its: (
            its.lenient or its.linger >= min(2 * its.suppress + 3 * its.nak_backoff, its.generation)
        ),
        (
            "linger ({0.linger:g} s) must be at least two suppress ({0.suppress:g} s) and three "
            "nak_backoff ({0.nak_backoff:g} s), or generation, else the end gets lost"
        ),
    ),
    (
        lambda its: its.generation >= 2 * its.nak_backoff + its.suppress,
        (
            "generation ({0.generation:g} s) must be at least two nak_backoff "
            "({0.nak_backoff:g} s) and suppress ({0.suppress:g} s)"
        ),
    ),
    (
        lambda its: its.activity_timeout >= 3 * its.session_max,
        (
            "activity_timeout ({0.activity_timeout:g} s) must be at least three session_max "
            "({0.session_max:g} s)"
        ),
    ),
    (
        lambda its: its.session_min <= its.session_max,
        "session_min ({0.session_min:g} s) is over session_max ({0.session_max:g} s)",
    ),
    (
        lambda its: its.receive_buffer >= its.max_datagram + OVERHEAD,
        (
            "receive_buffer ({0.receive_buffer}) must hold a datagram of max_datagram "
            f"({{0.max_datagram}}) and the {OVERHEAD} bytes that it is charged besides"
        ),
    ),
    (
        lambda its: its.window >= 4 * its.max_datagram,
        "window ({0.window}) must hold four of max_datagram ({0.max_datagram})",
    ),
    (
        lambda its: its.data_rate is None or its.repair_rate <= its.data_rate,
        "repair_rate ({0.repair_rate:g}) is over data_rate ({0.data_rate:g})",
    ),
    (
        lambda its: its.order_map_bytes >= 2 * its.max_message,
        (
            "order_map_bytes ({0.order_map_bytes}) must be at least twice max_message "
            "({0.max_message})"
        ),
    ),
)
"""The rules between settings (Ultra Messaging's interrelated options), and their words."""


UM: Final[dict[str, Any]] = {
    "initial_backoff": 0.05,
    "nak_backoff": 0.2,
    "nak_spacing": 0.0,
    "suppress": 1.0,
    "activity_timeout": 60.0,
    "ignore": 0.5,
    "session_min": 0.2,
    "session_max": 10.0,
    "linger": 0.0,
    "max_datagram": 8192,
    "local_datagram": 8192,
    "data_rate": 10 * MBIT,
    "repair_rate": 5 * MBIT,
    "repair_share": None,
    "flow_window": 0,
    "lenient": True,
}

WAN: Final[dict[str, Any]] = {
    "suppress": 1.0,
    "generation": 30.0,
    "activity_timeout": 90.0,
    "session_min": 0.2,
    "session_max": 10.0,
    "linger": 30.0,
    "window": 64 * MEBIBYTE,
    "repair_rate": 5 * MBIT,
}

# A datagram has no more than UDP carries beside a seal; a window stays below half of what 32 bits
# can tell apart.
RANGES: Final[dict[str, tuple[float, float]]] = {
    "initial_backoff": (0, 60),
    "group_size": (1, 1_000_000),
    "nak_backoff": (0.001, 60),
    "nak_spacing": (0, 60),
    "suppress": (0.001, 60),
    "generation": (0.005, 3600),
    "loss_map": (1, 2**20),
    "activity_timeout": (0.01, 86_400),
    "order_map": (1, 2**24),
    "order_map_bytes": (2, 2**40),
    "max_message": (1, 2**26),
    "receive_buffer": (65_536, 2**32),
    "bandwidth_delay": (0, 2**30),
    "flow_window": (0, 2**30),
    "patience": (0.001, 3600),
    "ignore": (0, 60),
    "session_min": (0.001, 60),
    "session_max": (0.001, 3600),
    "linger": (0, 3600),
    "window": (65_536, 2**30),
    "window_age": (0.1, 86_400),
    "max_datagram": (SMALLEST_DATAGRAM, 65_507),
    "local_datagram": (SMALLEST_DATAGRAM, 65_507),
    "data_rate": (1000, 1e12),
    "repair_rate": (1000, 1e12),
    "repair_share": (0.01, 1e6),
    "repair_queue": (1, 2**20),
    "nak_budget": (1, 1e9),
    "max_receivers": (1, 2**24),
    "retention": (0, 2**40),
    "retention_age": (0, 1e9),
    "retention_count": (0, 2**31),
    "fetch_rate": (1000, 1e12),
    "fetch_window": (1, 65_535),
    "fetch_interval": (0.001, 3600),
    "fetch_timeout": (0.01, 86_400),
    "caching_proximity": (1, 2**31),
}


def _check_range(name: str, value: Any) -> None:
    if name not in RANGES or value is None:
        return
    low, high = RANGES[name]
    if not low <= value <= high:
        raise SettingsError(f"{name} is {value}; allowed is {low} to {high}")


def _is_of_a_machine(address: str) -> bool:
    try:
        return not IPv4Address(address).is_multicast
    except ValueError:
        return False
