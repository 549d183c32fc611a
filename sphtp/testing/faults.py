"""The faults of one direction of a path."""

from dataclasses import dataclass, fields
from math import inf

from sphtp.errors import SettingsError

LARGEST_DATAGRAM = 65_507
"""The largest UDP payload over IPv4, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one direction of a path, in the order in which they happen to a datagram.

    Raises ``SettingsError``, naming the field, when a value is out of range.

    Attributes:
        blocked: nothing is carried: a partition.
        mtu: bytes of the largest datagram carried; larger ones vanish silently.
        duplicate: the share of datagrams that travel twice; later faults hit each copy separately.
        loss: the share lost, each independently of all others.
        burst: the share of datagrams that begin a burst, in which all datagrams are lost.
        burst_length: datagrams lost in a burst, on average; lengths are geometric
            (Gilbert's model).
        corrupt: the share in which one bit is flipped.
        rate: bits of payload per second that the link lets through, one datagram after the other.
        queue: bytes that may wait for the link or be on it; what finds no room is dropped (tail
            drop). An idle link takes any datagram.
        delay: seconds that every datagram travels after it has left the link.
        jitter: seconds; the largest of the extra delays, which are uniform and independent for
            each datagram, so that jitter reorders.
        reorder: the share held back, so that later ones overtake them.
        reorder_delay: seconds for which they are held back.
    """

    blocked: bool = False
    mtu: int = LARGEST_DATAGRAM
    duplicate: float = 0.0
    loss: float = 0.0
    burst: float = 0.0
    burst_length: float = 5.0
    corrupt: float = 0.0
    rate: float = inf
    queue: int = 65_536
    delay: float = 0.01
    jitter: float = 0.0
    reorder: float = 0.0
    reorder_delay: float = 0.01

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = RANGES[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise SettingsError(f"{field.name} is {value}; allowed is {low} to {high}")


_SHARE = (0.0, 1.0)
_SECONDS = (0.0, 3600.0)

RANGES: dict[str, tuple[float, float]] = {
    "blocked": (False, True),
    "mtu": (0, 65_535),
    "duplicate": _SHARE,
    "loss": _SHARE,
    "burst": _SHARE,
    "burst_length": (1.0, 1e9),
    "corrupt": _SHARE,
    "rate": (1.0, inf),
    "queue": (0, 2**40),
    "delay": _SECONDS,
    "jitter": _SECONDS,
    "reorder": _SHARE,
    "reorder_delay": _SECONDS,
}
"""The smallest and the largest value allowed of each field of ``Faults``."""
