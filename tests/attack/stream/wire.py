"""Somebody on the way between a source and its receiver, and somebody who only knows addresses."""

import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import NamedTuple

import pytest

from sphtp import Config, Node, Source, Subscription, open_node
from sphtp.config import ChannelSettings, StreamSettings
from sphtp.core.datagrams import Address, Kind
from sphtp.core.stream.membership import Welcome
from sphtp.messages import MessageCodec
from sphtp.security import Security
from sphtp.testing import Faults, Link
from sphtp_client.relay.impairment import Traffic
from sphtp_client.relay.relay import open_relay
from tests.shell.streams.joined import Joined, overheard

TOPIC = "positions"
CLEAN = Faults(delay=0)
SEALED = Security()

Meddling = Callable[[bytes], Iterable[bytes]]


def kind_of(datagram: bytes) -> int:
    return datagram[0] & 0x0F if datagram else -1


def is_of_stream(datagram: bytes) -> bool:
    return kind_of(datagram) in (Kind.STREAM, Kind.FEEDBACK)


class Way:
    """What is carried between them; ``meddle`` says what else is, after each datagram."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captured: list[bytes] = []
        self.meddle: Meddling = lambda _: ()
        offer = Link.offer

        def tapped(link: Link, now: float, datagram: bytes) -> list[tuple[float, bytes]]:
            self.captured.append(datagram)
            carried = offer(link, now, datagram)
            for more in tuple(self.meddle(datagram)):
                carried += offer(link, now, more)
            return carried

        monkeypatch.setattr(Link, "offer", tapped)

    def of_kind(self, kind: Kind) -> list[bytes]:
        return [datagram for datagram in self.captured if kind_of(datagram) == kind]


def opened(
    security: Security | None = SEALED,
    seed: int | None = None,
    messages: MessageCodec | None = None,
) -> AbstractAsyncContextManager[Node]:
    """A node that does not stay long when it is left."""
    settings = ChannelSettings(linger=0)
    return open_node(
        config=Config(security=security, seed=seed, channel=settings, messages=messages)
    )


class Scene(NamedTuple):
    """A source on one node, and its receiver on another."""

    here: Node
    there: Node
    source: Source
    stream: Subscription
    joined: Joined

    @property
    def welcome(self) -> Welcome:
        """What the source told its receiver."""
        return self.joined.welcome

    @property
    def lead(self) -> int:
        """The last datagram of the source."""
        return self.welcome.window.lead + self.source.statistics().datagrams_sent

    async def leave(self) -> None:
        """Let the receiver leave, as far as its source can see."""
        await self.joined.channel.aclose()


@asynccontextmanager
async def streaming(
    *,
    security: Security | None = SEALED,
    settings: StreamSettings | None = None,
    late_join: bool = False,
    seed: int = 1,
) -> AsyncIterator[Scene]:
    """A source and its receiver, who meet by way of a relay; other seeds have other keys."""
    with overheard() as joined:
        async with (
            opened(security, seed) as here,
            opened(security, seed + 1) as there,
            here.open_source(TOPIC, settings=settings) as source,
            open_relay(("127.0.0.1", 0), here.address, Traffic(1, CLEAN, CLEAN)) as relay,
            there.subscribe(*relay.address, topic=TOPIC, late_join=late_join) as stream,
        ):
            yield Scene(here, there, source, stream, joined[0])


@contextmanager
def somebody(host: str = "127.0.0.1") -> Iterator[Callable[[bytes, Address], None]]:
    """Sends datagrams from an address of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind((host, 0))

        def send(datagram: bytes, to: Address) -> None:
            own.sendto(datagram, to)

        yield send
