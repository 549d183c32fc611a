"""Somebody on the way between a source and its receiver, and somebody who only knows addresses."""

import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import NamedTuple

import pytest

from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address, Kind
from sphtp.core.stream.settings import StreamSettings
from sphtp.shell.node import Node, open_node
from sphtp.shell.streams.source import Source
from sphtp.shell.streams.subscription import Stream, Terms
from sphtp.testing import Faults
from sphtp.testing.link import Link
from sphtp_client.relay.impairment import Traffic
from sphtp_client.relay.relay import open_relay

TOPIC = "positions"
CLEAN = Faults(delay=0)

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
    security: Security | None = SEALED, seed: int | None = None
) -> AbstractAsyncContextManager[Node]:
    """A node that does not stay long when it is left."""
    return open_node(security=security, seed=seed, settings=ChannelSettings(linger=0))


class Scene(NamedTuple):
    """A source on one node, and its receiver on another."""

    here: Node
    there: Node
    source: Source
    stream: Stream

    @property
    def lead(self) -> int:
        """The last datagram of the source."""
        return self.source._hosted.source.window.lead


@asynccontextmanager
async def streaming(
    *,
    security: Security | None = SEALED,
    settings: StreamSettings | None = None,
    terms: Terms | None = None,
    seed: int = 1,
) -> AsyncIterator[Scene]:
    """A source and its receiver, who meet by way of a relay; other seeds have other keys."""
    async with (
        opened(security, seed) as here,
        opened(security, seed + 1) as there,
        here.open_source(TOPIC, settings=settings) as source,
        open_relay(("127.0.0.1", 0), here.address, Traffic(1, CLEAN, CLEAN)) as relay,
        there.subscribe(*relay.address, topic=TOPIC, terms=terms) as stream,
    ):
        yield Scene(here, there, source, stream)


@contextmanager
def somebody(host: str = "127.0.0.1") -> Iterator[Callable[[bytes, Address], None]]:
    """Sends datagrams from an address of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind((host, 0))

        def send(datagram: bytes, to: Address) -> None:
            own.sendto(datagram, to)

        yield send
