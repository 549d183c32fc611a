"""Many endpoints on one network."""

from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.security import Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import SettingsError
from sphtp.testing.faults import Faults
from sphtp.testing.network import Address
from sphtp.testing.stage import Stage

MOST = 65_000


class Crowd(Stage):
    """``count`` endpoints, identified by their position: 0, 1, 2 ...

    Each step polls every endpoint, so that tens are quick and thousands are not. For a bottleneck
    that several paths share use ``network.share_link``. With ``security`` all are sealed, each with
    an identity of its own.
    """

    def __init__(
        self,
        seed: int,
        count: int,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        *,
        security: Security | None = None,
    ) -> None:
        if not 1 <= count <= MOST:
            raise SettingsError(f"count is {count}; allowed is 1 to {MOST}")
        settings = settings or ChannelSettings()
        self.addresses: list[Address] = [
            (f"10.1.{position >> 8}.{position & 255}", 1000) for position in range(count)
        ]
        endpoints = {
            address: Endpoint(
                Random(f"{seed} {address}"), settings, 2 * position + 1, security=security
            )
            for position, address in enumerate(self.addresses)
        }
        super().__init__(seed, endpoints, faults)

    def open(
        self, source: int, destination: int, seconds: float = 60.0
    ) -> tuple[Connection, Connection]:
        """Dial from one endpoint to another; return both sides when they are open.

        Raises ``NeverIdleError`` if that takes more than ``seconds``.
        """
        return self.connect(self.addresses[source], self.addresses[destination], seconds)
