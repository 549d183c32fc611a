"""The published sealed sessions, held by two of our endpoints that are told what to draw."""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.security import PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.core.secure.identity import Identity

NAMES = ("opener", "answerer")
ADDRESSES = {"opener": ("192.0.2.1", 4001), "answerer": ("192.0.2.2", 4002)}
# What only the answerer can tell apart from chance: from the first one it makes its cookies.
COOKIE_SECRETS = (1, 2)
IK = 1


class Spoken(NamedTuple):
    """A datagram, and who sent it."""

    speaker: str
    data: bytes


class Told:
    """Entropy that was told what to say, by the number of bits."""

    def __init__(self, **bits: tuple[int, ...]) -> None:
        self._numbers = {int(count[1:]): deque(numbers) for count, numbers in bits.items()}

    def getrandbits(self, count: int, /) -> int:
        return self._numbers[count].popleft()

    def random(self) -> float:
        raise AssertionError("nothing of a session depends on this")

    def uniform(self, a: float, b: float) -> float:
        raise AssertionError("nothing of a session depends on this")


def hold_session(fields: dict[str, Any]) -> list[Spoken]:
    """Open a channel as these fields have it, and return all that was said."""
    sides = {name: make_endpoint(fields, name) for name in NAMES}
    known = Identity(bytes.fromhex(fields["answerer"]["static"])).public
    expectation = PeerPin(known if fields["pattern"] == IK else None)
    sides["opener"].dial(0.0, [ADDRESSES["answerer"]], 0, expectation)
    return list(_talk(sides))


def make_endpoint(fields: dict[str, Any], name: str) -> Endpoint:
    """Make a side that draws what these fields say."""
    side = fields[name]
    ephemeral = int.from_bytes(bytes.fromhex(side["ephemeral"]), "little")
    entropy = Told(
        _32=(side["connection_id"],), _64=(fields["token"],), _256=(*COOKIE_SECRETS, ephemeral)
    )
    psk = bytes.fromhex(fields["psk"]) if "psk" in fields else None
    security = Security(identity=Identity(bytes.fromhex(side["static"])), psk=psk)
    return Endpoint(entropy, ChannelSettings(), security=security)


def _talk(sides: dict[str, Endpoint]) -> Iterator[Spoken]:
    """Let both speak in turn until there is nothing more to say."""
    speaker, hearer = NAMES
    silent = 0
    while silent < len(NAMES):
        silent += 1
        while (row := sides[speaker].poll_transmit(0.0)) is not None:
            silent = 0
            for datagram in row.datagrams:
                yield Spoken(speaker, datagram)
                sides[hearer].handle_datagrams_untrusted(
                    0.0, Datagrams.of(ADDRESSES[speaker], datagram)
                )
        while sides[speaker].poll_active() is not None:
            pass
        speaker, hearer = hearer, speaker
