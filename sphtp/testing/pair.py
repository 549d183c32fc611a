"""Two endpoints and the network between them."""

from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing.faults import Faults
from sphtp.testing.network import Address
from sphtp.testing.stage import Stage

LEFT: Address = ("10.0.0.1", 1000)
RIGHT: Address = ("10.0.0.2", 2000)


class Pair(Stage):
    """Two endpoints, left and right, for tests and scripts.

    ``settings`` serve both sides unless ``right_settings`` are given. ``instrument`` observes the
    left side, ``right_instrument`` the right side; an error that one of them raises ends the call
    that caused the event. With ``security`` both sides are sealed, each with an identity of its own
    unless it names one; ``right_security`` is the right's instead. Time is in seconds and starts
    at zero.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        right_settings: ChannelSettings | None = None,
        *,
        instrument: Instrument | None = None,
        right_instrument: Instrument | None = None,
        security: Security | None = None,
        right_security: Security | None = None,
    ) -> None:
        settings = settings or ChannelSettings()
        self.left = Endpoint(
            Random(f"{seed} left"), settings, 1, security=security, observer=instrument
        )
        self.right = Endpoint(
            Random(f"{seed} right"),
            right_settings or settings,
            3,
            security=right_security or security,
            observer=right_instrument,
        )
        super().__init__(seed, {LEFT: self.left, RIGHT: self.right}, faults)

    def open(
        self, seconds: float = 60.0, *, key: bytes | None = None
    ) -> tuple[Connection, Connection]:
        """Dial from left to right; return both sides, open within ``seconds``.

        ``key`` is the public key that a sealed right side must have.
        """
        return self.connect(LEFT, RIGHT, seconds, key=key)
