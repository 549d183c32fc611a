"""Sealed endpoints for tests: on the simulated network, as scripts drive them."""

from collections.abc import Set as AbstractSet
from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.protection import AesGcm
from sphtp.core.channel.security import HandshakeLimits, PeerPin, RosterAuthenticator, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.schema import Schema
from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise_framework import NoiseHandshake
from sphtp.testing import Faults
from sphtp.testing.pair import LEFT, RIGHT, Stage
from tests.reach import count

__all__ = ["LEFT", "RIGHT", "SealedPair", "check_forgotten", "identity", "keys_of", "make_sealed"]


def identity(name: str) -> Identity:
    """The identity of somebody by this name; always the same."""
    return Identity.draw(Random(name))


def make_sealed(
    name: str,
    *,
    peer_id: int = 0,
    trust: RosterAuthenticator | None = None,
    allow: AbstractSet[bytes] | None = None,
    settings: ChannelSettings | None = None,
    limits: HandshakeLimits | None = None,
    psk: bytes | None = None,
    schema: Schema | None = None,
    seed: int = 0,
    port: int = 0,
    entropy: Random | None = None,
    observer: Instrument | None = None,
) -> Endpoint:
    """A sealed endpoint of somebody by this name."""
    entropy = entropy or Random(f"{seed} {name}")
    limits = limits or HandshakeLimits()
    security = Security(identity=identity(name), roster=trust, allow=allow, limits=limits, psk=psk)
    settings = settings or ChannelSettings()
    return Endpoint(
        entropy, settings, peer_id, schema, security=security, port=port, observer=observer
    )


def keys_of(connection: Connection) -> AesGcm:
    """The keys of a sealed channel."""
    assert isinstance(connection.protection, AesGcm)
    return connection.protection


def check_forgotten(endpoint: Endpoint) -> None:
    """Nothing is kept of any channel, or of any attempt."""
    assert endpoint.connections == ()
    assert endpoint.half_open == 0
    assert endpoint.poll_timeout() is None
    while endpoint.poll_active() is not None:
        pass
    assert not count((Connection, AesGcm, NoiseHandshake), endpoint)


class SealedPair(Stage):
    """Left and right, who know each other's keys if they are asked to."""

    def __init__(
        self,
        seed: int = 0,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        **how: object,
    ) -> None:
        self.left = make_sealed("left", seed=seed, settings=settings, **how)  # type: ignore[arg-type]
        self.right = make_sealed("right", seed=seed, settings=settings, **how)  # type: ignore[arg-type]
        super().__init__(seed, {LEFT: self.left, RIGHT: self.right}, faults)

    def open(
        self, expectation: PeerPin | None = None, seconds: float = 60.0
    ) -> tuple[Connection, Connection]:
        """Dial from left to right and return both sides."""
        dialled = self.left.dial(self.now, [RIGHT], 0, expectation)
        answered: list[Connection] = []

        def is_open() -> bool:
            if (incoming := self.right.poll_incoming()) is not None:
                answered.append(incoming)
            return bool(answered)

        self.drive(is_open, seconds)
        return dialled, answered[0]
