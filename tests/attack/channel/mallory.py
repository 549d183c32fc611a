"""Mallory: has an identity of its own, sends from any address, and reads what goes there."""

from collections.abc import Callable, Iterable
from random import Random

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.handshake import Connect, encode_connect
from sphtp.core.channel.noise import (
    NO_COOKIE,
    NUMBERS,
    SMALLEST_GREET,
    Confirm,
    Greet,
    decode_answer_untrusted,
    encode_confirm,
    encode_greet,
    prologue,
)
from sphtp.core.datagrams import KINDS, Address, Datagrams, Kind
from sphtp.core.secure.noise_framework import IK, XX, XXPSK0, NoiseHandshake, Pattern
from sphtp.testing.pair import Stage
from tests.core.channel.sealed import identity
from tests.core.channel.talk import offer

Sent = tuple[Address, Address, bytes]
"""Source, destination, datagram."""


def kind_of(datagram: bytes) -> Kind:
    """What a datagram says that it is."""
    return KINDS[datagram[0] & 0x0F]


def answers(stage: Stage, endpoint: Endpoint, source: Address, datagram: bytes) -> list[bytes]:
    """Hand an endpoint a datagram as from ``source``; return what it sends there because of it.

    What it sends elsewhere goes its way.
    """
    here = next(address for address, it in stage.endpoints.items() if it is endpoint)
    endpoint.handle_datagrams_untrusted(stage.now, Datagrams.of(source, datagram))
    answered: list[bytes] = []
    while (row := endpoint.poll_transmit(stage.now)) is not None:
        for one in row.datagrams:
            if row.address == source:
                answered.append(one)
            else:
                stage.network.send(stage.now, here, row.address, one)
    while endpoint.poll_active() is not None:
        pass
    return answered


def meddle(stage: Stage, change: Callable[[Sent], Iterable[Sent]]) -> list[Sent]:
    """Stand in the way of all that is sent; return what was, as it grows.

    ``change`` says what becomes of a datagram: nothing, something else, or several.
    """
    seen: list[Sent] = []
    send = stage.network.send

    def altered(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        seen.append((source, destination, datagram))
        for changed in change((source, destination, datagram)):
            send(now, *changed)

    stage.network.send = altered  # type: ignore[method-assign]
    return seen


def watch(stage: Stage) -> list[Sent]:
    """See all that is sent, and touch nothing."""
    return meddle(stage, lambda sent: [sent])


class Knocking:
    """One attempt of Mallory's at an endpoint, as ``at``, under an id and a token of its choice."""

    def __init__(
        self,
        stage: Stage,
        endpoint: Endpoint,
        at: Address,
        opener: int,
        token: int,
        *,
        name: str = "mallory",
        key: bytes | None = None,
        psk: bytes | None = None,
        connect: bytes | None = None,
        peer_id: int = 0,
    ) -> None:
        self.stage, self.endpoint, self.at = stage, endpoint, at
        self.opener, self.token = opener, token
        asks = Connect(token, 0, offer(opener, peer_id))
        self.connect = bytes(16) + (connect or encode_connect(asks))
        self.pattern: Pattern = IK if key else XXPSK0 if psk else XX
        self.handshake = NoiseHandshake(
            self.pattern,
            initiator=True,
            identity=identity(name),
            secrets=Random(f"{name} {opener}"),
            prologue=prologue(self.pattern, opener, token),
            remote=key,
            psk=psk,
        )
        self.noise = self.handshake.write(self.connect if key else bytes(SMALLEST_GREET))

    def greet(self, cookie: bytes = NO_COOKIE) -> list[bytes]:
        """Send GREET."""
        number = NUMBERS[self.pattern.name]
        greet = Greet(self.opener, self.token, number, cookie, self.noise)
        return self.send(encode_greet(greet))

    def enter(self) -> list[bytes]:
        """GREET with a true cookie."""
        (cookie,) = self.greet()
        assert kind_of(cookie) is Kind.COOKIE
        return self.greet(decode_answer_untrusted(cookie).content)

    def confirm(self, welcome: bytes) -> list[bytes]:
        """Answer WELCOME with CONFIRM."""
        self.handshake.read_untrusted(decode_answer_untrusted(welcome).content)
        self.noise = self.handshake.write(self.connect)
        return self.confirm_again()

    def confirm_again(self) -> list[bytes]:
        """Send the same CONFIRM."""
        return self.send(encode_confirm(Confirm(self.opener, self.token, self.noise)))

    def send(self, datagram: bytes) -> list[bytes]:
        """Send anything."""
        return answers(self.stage, self.endpoint, self.at, datagram)
