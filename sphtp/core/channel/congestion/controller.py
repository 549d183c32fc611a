"""The interface of congestion controllers, the one of a fixed rate, and their factory."""

from collections.abc import Mapping
from typing import Protocol

from sphtp.core.channel.congestion.cubic import Cubic
from sphtp.core.channel.congestion.new_reno import NewReno
from sphtp.core.channel.congestion.signals import Ack, Lost
from sphtp.core.channel.congestion.tolerant import LossTolerant
from sphtp.errors import SettingsError


class FixedRate:
    """Paces at ``rate`` bytes per second, whatever happens: for links shared with nobody.

    Only the limit bounds what is in flight.
    """

    __slots__ = ("pacing_rate", "window")

    def __init__(self, limit: int, rate: float) -> None:
        self.window = limit
        self.pacing_rate: float | None = rate

    phase = "fixed"

    def acked(self, now: float, ack: Ack) -> None:
        """Change nothing, as do all the others."""

    def lost(self, now: float, loss: Lost) -> None:
        """Change nothing."""

    def spurious(self, now: float, size: int) -> None:
        """Change nothing."""

    def persistent(self, now: float) -> None:
        """Change nothing."""

    def resize(self, datagram: int) -> None:
        """Change nothing."""


class Controller(Protocol):
    """Decides how many bytes may be in flight, and at what rate they may leave."""

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
        """The phase that it is in, by a name in lower case."""
        ...

    def acked(self, now: float, ack: Ack) -> None:
        """A received header acked something new: one call, however many packets that are."""
        ...

    def lost(self, now: float, loss: Lost) -> None:
        """A batch of packets was declared lost. Lost MTU probes are not reported."""
        ...

    def spurious(self, now: float, size: int) -> None:
        """Packets of ``size`` bytes that were declared lost have arrived after all.

        When nothing remains of what caused the latest reaction, the reaction is undone.
        """
        ...

    def persistent(self, now: float) -> None:
        """Nothing got through for several probe timeouts (RFC 9002, 7.6): start from the bottom.

        The losses behind it may be told before or after.
        """
        ...

    def resize(self, datagram: int) -> None:
        """The path takes datagrams of another size."""
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
