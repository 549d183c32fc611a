"""Two endpoints and the network between them."""

from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing.faults import Faults
from sphtp.testing.network import Address
from sphtp.testing.stage import Stage

LEFT: Address = ("10.0.0.1", 1000)
RIGHT: Address = ("10.0.0.2", 2000)


class Pair(Stage):
    """Left and right, as scripts drive them.

    ``settings`` serve both sides unless ``right_settings`` are given. Time is in seconds and starts
    at zero.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        right_settings: ChannelSettings | None = None,
    ) -> None:
        settings = settings or ChannelSettings()
        self.left = Endpoint(Random(f"{seed} left"), settings, peer_id=1)
        self.right = Endpoint(Random(f"{seed} right"), right_settings or settings, peer_id=3)
        super().__init__(seed, {LEFT: self.left, RIGHT: self.right}, faults)

    def open(self, seconds: float = 60.0) -> tuple[Connection, Connection]:
        """Dial from left to right and return both sides, open within ``seconds``."""
        return self.connect(LEFT, RIGHT, seconds)
