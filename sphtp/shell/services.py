"""Services: protocols of the library itself, over channels that only they see.

Streams are one. A service has a schema of its own, which the handshake carries; so the peer knows
before the first message which service a channel is for, as with ALPN in TLS (RFC 7301). A node
keeps the channels of a service from the program: ``Node.accept`` never returns one.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.security import PeerPin
from sphtp.core.datagrams import Address
from sphtp.core.packing import PLAIN
from sphtp.core.schema import Schema
from sphtp.shell.channel import Channel
from sphtp.shell.encoding import Encoding

if TYPE_CHECKING:
    from sphtp.shell.loop import Loop


class Service(NamedTuple):
    """A protocol over channels of its own."""

    schema: Schema
    admit: Callable[[Channel], None]
    """Take a channel that a peer opened. It must not wait; it aborts what it does not want."""
    encoding: Encoding = PLAIN


class Open(Protocol):
    """The function of a node that opens a channel."""

    def __call__(
        self,
        addresses: Sequence[Address],
        wanted: int,
        pin: PeerPin | None,
        schema: Schema,
    ) -> AbstractAsyncContextManager[Channel]:
        """Open a channel of this schema for the length of the block."""


class Services:
    """The services of one node."""

    def __init__(self, serve: Callable[[Schema], None], open_channel: Open, loop: "Loop") -> None:
        self.loop = loop
        """What moves the datagrams of the node."""
        self._serve = serve
        self._open_channel = open_channel
        self._by_schema: dict[Schema, Service] = {}

    def __iter__(self) -> Iterator[Service]:
        return iter(tuple(self._by_schema.values()))

    def add(self, service: Service) -> None:
        """Admit channels of this service from now on, for as long as the node lives."""
        self._by_schema[service.schema] = service
        self._serve(service.schema)

    def encoding_of(self, connection: Connection, default: Encoding) -> Encoding:
        """Return the encoding of a channel: that of its service, or the node's own."""
        service = self._by_schema.get(connection.handshake.schema)
        return default if service is None else service.encoding

    @asynccontextmanager
    async def open(
        self,
        service: Service,
        addresses: Sequence[Address],
        wanted: int = 0,
        pin: PeerPin | None = None,
    ) -> AsyncIterator[Channel]:
        """Open a channel of a service for the length of the block. Raises as ``open_channel``."""
        async with self._open_channel(addresses, wanted, pin, service.schema) as channel:
            yield channel
