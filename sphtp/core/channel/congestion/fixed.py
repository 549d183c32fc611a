"""A given rate, whatever happens: for links that are known and shared with nobody."""

from sphtp.core.channel.congestion.signals import Ack, Lost


class Fixed:
    """Paces at ``rate`` bytes per second; only the limit bounds what is in flight."""

    __slots__ = ("pacing_rate", "window")

    def __init__(self, datagram: int, limit: int, rate: float) -> None:
        self.window = limit
        self.pacing_rate: float | None = rate

    phase = "fixed"

    def sent(self, now: float, size: int, in_flight: int) -> None:
        """Change nothing, as do all the others."""

    def acked(self, now: float, ack: Ack) -> None:
        """Change nothing."""

    def lost(self, now: float, loss: Lost) -> None:
        """Change nothing."""

    def spurious(self, now: float, size: int) -> None:
        """Change nothing."""

    def persistent(self, now: float) -> None:
        """Change nothing."""

    def resize(self, datagram: int) -> None:
        """Change nothing."""
