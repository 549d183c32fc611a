"""Timers and limits of a stream, in three profiles, and the memory charged for each datagram.

``um`` has the defaults of Ultra Messaging, including their defects, for comparison; ``lan`` is for
one machine or one switch; ``wan`` for round trips of tens of milliseconds and more. Source and
receivers of a stream may have different settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from ipaddress import IPv4Address
from typing import Any, Final, Self

from sphtp.errors import SettingsError

OVERHEAD: Final = 768
"""Bytes charged for each datagram in addition to its body: the memory that Linux takes for the
smallest datagram.
"""
MEBIBYTE: Final = 1 << 20
MBIT: Final = 125_000.0
"""One Mbit/s, in bytes per second."""
SMALLEST_DATAGRAM: Final = 1024
"""Lower bound of ``max_datagram`` in bytes; the largest NAK fits into it."""
SMALL_MESSAGE: Final = 64
"""Message size in bytes for which ``wan`` scales ``order_map``."""


class Backoff(Enum):
    """The distribution of the wait before the first NAK; ``draw_nak_backoff`` has the others."""

    UNIFORM = "between half and one and a half of the interval"
    EXPONENTIAL = "up to the interval, with long waits more likely: for groups (RFC 5401, 3.2)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Timers and limits of a source or a receiver, in seconds, bytes, and bytes per second.

    Raises ``SettingsError``, with the names of the settings, if one is out of range, or several
    contradict each other.
    """

    # Receivers
    initial_backoff: float = 0.005
    """Seconds from a gap to the first NAK: the mean of ``Backoff.UNIFORM``, or the maximum of
    ``Backoff.EXPONENTIAL``. A multicast group has 0.03 s, whatever is set here.
    """
    backoff: Backoff = Backoff.UNIFORM
    """The distribution of waits. A multicast group has ``EXPONENTIAL``, whatever is set here."""
    group_size: int = 100
    """Number of receivers that may share a loss, for ``Backoff.EXPONENTIAL``."""
    send_naks: bool = True
    """True if the receiver sends NAKs. A receiver of a multicast group that sends none still gets
    the repairs that others request.
    """
    ordered: bool = True
    """True to deliver messages in the order of their sending; False to deliver each on arrival, at
    most once.
    """
    recover: bool = True
    """True to fetch over TCP the messages that the stream has not repaired, if the source retains
    them.
    """
    interface: str | None = None
    """The IPv4 address of this machine at which a receiver joins a multicast group; None for the
    address of its node.
    """
    nak_backoff: float = 0.1
    """Mean time between NAKs for one datagram, in seconds."""
    nak_spacing: float = 0.005
    """Least time between two NAKs of one receiver, in seconds."""
    suppress: float = 0.2
    """Seconds for which an NCF suppresses NAKs for a datagram: the mean after one with the reason
    SHED. After IGNORED or RX_DELAY, the wait is the time in the NCF and an initial backoff; if the
    NCF has no time, it is this setting and a NAK backoff.
    """
    generation: float = 10.0
    """Seconds after which the receiver gives up a missing datagram."""
    loss_map: int = 65_536
    """Largest number of missing ranges of datagrams. Beyond it, the receiver gives up the oldest.
    """
    # A channel's timeout is 10 s, so that the receiver has time to rejoin the source.
    activity_timeout: float = 30.0
    """Seconds of silence after which a source has vanished. By unicast, they begin again if the
    channel to the source is open when they are over.
    """
    order_map: int = 200_000
    """Largest number of messages of a topic that wait for earlier ones; fragments and missing
    ranges count, too. Beyond it, the oldest missing messages are lost.
    """
    order_map_bytes: int = 64 * MEBIBYTE
    """Limit of the bytes of these messages, with the same effect."""
    max_message: int = 16 * MEBIBYTE
    """Size of the largest message, in bytes."""

    receive_buffer: int = 16 * MEBIBYTE
    """Limit of the bytes of messages that wait for earlier ones or for the reader. The receiver
    drops messages beyond it, and fetches them later if it can; else they are lost.
    """

    bandwidth_delay: int = 0
    """Bytes that the path holds. A receiver lets the source be ahead by them in addition to those
    that its socket can hold at once. If it is not 0, a source makes up for wakeups that are up to
    10 ms late.
    """

    # Sources
    flow_window: int = 8 * MEBIBYTE
    """Most bytes by which a source may be ahead of its slowest receiver, with ``OVERHEAD`` for each
    datagram; 0 sets no limit.
    """
    patience: float = 1.0
    """Longest time, in seconds, for which a stalled receiver may keep a source waiting."""
    ignore: float = 0.04
    """Seconds after a repair in which the source ignores NAKs for the same datagram."""
    session_min: float = 0.05
    """Seconds from the last new data to the first session message. The interval then doubles, up to
    ``session_max``.
    """
    # ``activity_timeout`` is 15 of them. With three, a quiet source would soon seem to have
    # vanished at 30 % loss.
    session_max: float = 2.0
    """Longest time between two session messages, in seconds."""
    linger: float = 5.0
    """Longest time, in seconds, for which a closed source sends repairs after all data has left. A
    receiver ends the session after as long a silence of a closed source at the latest, or after
    three ``session_min`` if they are longer.
    """
    window: int = 24 * MEBIBYTE
    """Most bytes of datagrams that a source keeps for repairs."""
    window_age: float = 60.0
    """Longest time, in seconds, for which a source keeps datagrams for repairs, except the newest.
    """
    max_datagram: int = 1400
    """Size of the largest datagram in bytes, with its header and seal."""
    local_datagram: int = 31_000
    """Size of the largest datagram, in bytes, of a source that only its own machine reaches: there
    larger datagrams cost less.
    """
    data_rate: float | None = None
    """Limit of the rate of new data, in bytes per second; None sets no limit."""
    repair_rate: float = 50 * MBIT
    """Limit of the rate of repairs, in bytes per second: to a multicast group, or by unicast to
    each receiver.
    """
    repair_share: float | None = 3.0
    """Limit of the rate of repairs, as a multiple of the recent rate of new data. That rate counts
    as at least 1 Mbit/s.

    While so many repairs wait that they need longer than ``nak_backoff``, the rate of new data does
    not rise. None switches off both rules.
    """
    repair_queue: int = 4096
    """Most repairs that wait for their turn: those to a group, or to one receiver."""
    nak_budget: float = 2000.0
    """Datagrams per second that one receiver may request; the source ignores further requests."""

    max_receivers: int = 1024
    """Most receivers of a source, which refuses others."""
    lenient: bool = False
    """True to allow values of ``ignore`` and ``linger`` with which repairs fail, as in ``um``."""

    # Late join and off-transport recovery
    retention: int = 24 * MEBIBYTE
    """Most bytes of messages of one topic that a source retains for late joiners; 0 retains none.
    """
    retention_age: float = 600.0
    """Longest time, in seconds, for which a source retains a message."""
    retention_count: int = 1_000_000
    """Most messages of one topic that a source retains."""
    fetch_rate: float | None = None
    """Limit of the rate of a source's history to one receiver, in bytes per second; None sets no
    limit.
    """
    fetch_window: int = 200
    """Most messages that a receiver has requested from the history and not received yet."""
    fetch_interval: float = 1.0
    """Seconds without a reply after which a receiver repeats its requests. The wait doubles, up to
    ten intervals.
    """
    fetch_timeout: float = 60.0
    """Seconds after which a message that was requested from the history is lost. If no reply comes
    for this time, all wanted messages are. Time in which half of the receive buffer or more waits
    for the reader does not count.
    """
    caching_proximity: int = 5000
    """While a receiver that joined late catches up, it keeps live messages up to this many numbers
    ahead of the first missing one, and in half of the order map. It drops later messages, and
    fetches them afterwards.
    """

    @classmethod
    def lan(cls, **changes: Any) -> Self:
        """Return the settings for one machine, or one network."""
        return cls(**changes)

    @classmethod
    def um(cls, **changes: Any) -> Self:
        """Return the defaults that the transport of Ultra Messaging 6.17 has for a multicast group.

        They contradict each other: ``ignore`` is longer than ``nak_backoff``, so that the source
        ignores a second NAK.
        """
        return cls(**(UM | changes))

    @classmethod
    def wan(cls, rtt: float = 0.1, rate: float | None = None, **changes: Any) -> Self:
        """Return the settings for paths with a round trip of ``rtt`` seconds.

        ``rate`` is the ``data_rate``, in bytes per second. With it, windows and buffers hold the
        data that arrives while a receiver requests a lost datagram three times: the rate times an
        initial backoff, three NAK backoffs and two round trips (Ultra Messaging's rule for a
        transmission window). A smaller window would slow the source down behind each datagram that
        is lost twice. Raises ``SettingsError`` for a path that holds more than windows and buffers
        can.
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
        """Return these settings for receivers that miss the same datagrams, as in a multicast
        group: with ``Backoff.EXPONENTIAL``, and an ``initial_backoff`` of 0.03 s.
        """
        return replace(self, backoff=Backoff.EXPONENTIAL, initial_backoff=0.03)

    def for_loopback(self, most: int) -> Self:
        """Return these settings for a source that only its own machine reaches.

        ``max_datagram`` grows up to ``local_datagram``, as far as ``most`` allows and windows hold
        several datagrams. It is never reduced.
        """
        largest = min(self.window // 4, self.receive_buffer - OVERHEAD)
        size = min(self.local_datagram, most, largest, self.flow_window // 8 or most)
        return replace(self, max_datagram=max(self.max_datagram, size))

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_range(field.name, getattr(self, field.name))
        if self.interface is not None and not _is_of_a_machine(self.interface):
            raise SettingsError(
                f"interface is {self.interface!r}; allowed is an IPv4 address of this machine"
            )
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
"""The rules between settings (Ultra Messaging's interrelated options), and their error messages."""


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

# 65,507 bytes are the largest payload of UDP over IPv4. A window has less than half as many
# datagrams as there are 32-bit sequence numbers.
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
