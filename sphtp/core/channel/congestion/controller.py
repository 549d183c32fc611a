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

    Only ``limit`` bounds the bytes in flight.
    """

    __slots__ = ("pacing_rate", "window")

    def __init__(self, limit: int, rate: float) -> None:
        self.window = limit
        self.pacing_rate: float | None = rate

    phase = "fixed"

    def acked(self, now: float, ack: Ack) -> None:
        """Change nothing: the rate is fixed."""

    def lost(self, now: float, loss: Lost) -> None:
        """Change nothing."""

    def spurious(self, now: float, size: int) -> None:
        """Change nothing."""

    def persistent(self, now: float) -> None:
        """Change nothing."""

    def resize(self, datagram: int) -> None:
        """Change nothing."""


class Controller(Protocol):
    """A congestion controller: it decides how many bytes may be in flight, and their rate."""

    @property
    def window(self) -> int:
        """Bytes that may be in flight: at least two datagrams, at most the limit."""
        ...

    @property
    def pacing_rate(self) -> float | None:
        """Bytes per second; None while no round trip is known."""
        ...

    @property
    def phase(self) -> str:
        """The name of its phase, in lower case."""
        ...

    def acked(self, now: float, ack: Ack) -> None:
        """Handle an ack of new packets. It is called once per received header."""
        ...

    def lost(self, now: float, loss: Lost) -> None:
        """Handle packets that were declared lost together. Lost MTU probes are not reported."""
        ...

    def spurious(self, now: float, size: int) -> None:
        """Handle the late arrival of packets of ``size`` bytes that were declared lost.

        If all losses of the latest reaction were spurious, the reaction is undone.
        """
        ...

    def persistent(self, now: float) -> None:
        """Handle persistent congestion (RFC 9002, 7.6): start from the smallest window.

        The losses themselves may be reported before or after.
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

    ``kind`` and ``rate`` are as ``settings.parse_congestion`` gives them. Raises ``SettingsError``
    when the limit is under two datagrams.
    """
    if limit < 2 * datagram:
        raise SettingsError(f"a window limit of {limit} is under two datagrams of {datagram} bytes")
    if rate is not None:
        return FixedRate(limit, rate)
    return MAKERS[kind](datagram, limit)
