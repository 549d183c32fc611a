"""The interface of congestion controllers, the controller of a fixed rate, and the factory."""

from collections.abc import Mapping
from typing import Protocol

from sphtp.core.channel.congestion.cubic import Cubic
from sphtp.core.channel.congestion.delivery_rate import Ack, Lost
from sphtp.core.channel.congestion.new_reno import NewReno
from sphtp.core.channel.congestion.tolerant import LossTolerant
from sphtp.errors import SettingsError


class FixedRate:
    """The controller that always paces at ``rate`` bytes/s, for links without other traffic.

    ``limit`` is its window in bytes.
    """

    __slots__ = ("pacing_rate", "window")

    def __init__(self, limit: int, rate: float) -> None:
        self.window = limit
        self.pacing_rate: float | None = rate

    phase = "fixed"

    def acked(self, now: float, ack: Ack) -> None:
        """Ignore an ack: the rate is fixed."""

    def lost(self, now: float, loss: Lost) -> None:
        """Ignore lost packets."""

    def spurious(self, now: float, size: int) -> None:
        """Ignore spurious losses."""

    def persistent(self, now: float) -> None:
        """Ignore persistent congestion."""

    def resize(self, datagram: int) -> None:
        """Ignore another size of datagrams."""


class Controller(Protocol):
    """A congestion controller: it limits the bytes in flight, and the rate at which packets leave.

    Sizes are in bytes, and times in seconds.
    """

    @property
    def window(self) -> int:
        """Bytes that may be in flight: at least two datagrams, at most ``max_window``."""
        ...

    @property
    def pacing_rate(self) -> float | None:
        """Bytes per second at which packets may leave; None is no limit.

        It is None before the first round trip is measured, unless the rate is fixed.
        """
        ...

    @property
    def phase(self) -> str:
        """The name of the controller's phase, in lower case."""
        ...

    def acked(self, now: float, ack: Ack) -> None:
        """Handle newly acked packets: at most one call for each received header."""
        ...

    def lost(self, now: float, loss: Lost) -> None:
        """Handle packets that were declared lost together. ``Path`` reports no lost MTU probes."""
        ...

    def spurious(self, now: float, size: int) -> None:
        """Handle the ack of packets with ``size`` bytes in all that were declared lost before.

        A loss-based controller undoes its latest reaction when all losses behind it were spurious.
        """
        ...

    def persistent(self, now: float) -> None:
        """Handle persistent congestion (RFC 9002, 7.6) or another path.

        Start again from the smallest window, unless the rate is fixed. The lost packets may be
        reported before or after.
        """
        ...

    def resize(self, datagram: int) -> None:
        """Adopt another size of datagrams, in bytes."""
        ...


MAKERS: Mapping[str, type[NewReno | Cubic | LossTolerant]] = {
    "newreno": NewReno,
    "cubic": Cubic,
    "tolerant": LossTolerant,
}


def make_controller(kind: str, rate: float | None, datagram: int, limit: int) -> Controller:
    """Make a controller for datagrams of ``datagram`` bytes and windows up to ``limit`` bytes.

    ``kind`` and ``rate`` are the results of ``settings.parse_congestion``. Raises ``SettingsError``
    if the limit is under two datagrams.
    """
    if limit < 2 * datagram:
        raise SettingsError(f"a window limit of {limit} is under two datagrams of {datagram} bytes")
    if rate is not None:
        return FixedRate(limit, rate)
    return MAKERS[kind](datagram, limit)
