"""Services: protocols of the library itself, such as streams, over channels of their own.

A service has a schema of its own, which the handshake carries. So the peer can assign a channel to
its service before the first message, as with ALPN in TLS (RFC 7301). The program never gets the
channel of a service: ``Node.accept`` returns none.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import Lane
from sphtp.core.datagrams import Address
from sphtp.core.packing import PLAIN
from sphtp.core.schema import Schema
from sphtp.shell.channel import Channel, ServiceChannel
from sphtp.shell.encoding import Encoding

if TYPE_CHECKING:
    from sphtp.shell.loop import Loop


class Service(NamedTuple):
    """A protocol over channels of its own."""

    schema: Schema
    admit: Callable[[ServiceChannel], None]
    """The function that takes a channel that a peer opened, or aborts it. It must not wait."""
    encoding: Encoding = PLAIN
    lanes: tuple[Lane, ...] = ()
    """The lanes of the service's channels; by default those of the node's settings."""
    name: str = ""
    """The name of the service in the metrics."""


class Open(Protocol):
    """The function of a node that opens a channel."""

    def __call__(
        self,
        addresses: Sequence[Address],
        wanted: int,
        pin: PeerPin | None,
        schema: Schema | None,
    ) -> AbstractAsyncContextManager[Channel[Any]]:
        """Open a channel for the length of the block, by default one of the program."""


class Services:
    """The services of one node.

    ``schema`` and ``encoding`` are those of the program's messages, which some services carry.
    """

    def __init__(
        self,
        serve: Callable[[Schema, tuple[Lane, ...]], None],
        stop_serving: Callable[[Schema], bool],
        open_channel: Open,
        schema: Schema,
        encoding: Encoding,
        loop: "Loop",
    ) -> None:
        self.schema = schema
        self.encoding = encoding
        self.loop = loop
        """The event loop of the node."""
        self._serve = serve
        self._stop_serving = stop_serving
        self._open_channel = open_channel
        self._by_schema: dict[Schema, Service] = {}

    def add(self, service: Service) -> None:
        """Admit channels of this service from now on, until it is removed or the node closes."""
        self._by_schema[service.schema] = service
        self._serve(service.schema, service.lanes)

    def remove(self, service: Service) -> None:
        """Refuse channels of this service from now on; open ones stay.

        If the handshake of a channel is under way, the service stays, and its ``admit`` has to
        abort the channel.
        """
        if self._stop_serving(service.schema):
            del self._by_schema[service.schema]

    def has(self, schema: Schema) -> bool:
        """Return True if a service with this schema was added."""
        return schema in self._by_schema

    def of(self, connection: Connection) -> Service | None:
        """Return the service of a channel; None for the program, or if the service was removed."""
        return self._by_schema.get(connection.handshake.schema)

    def encoding_of(self, connection: Connection) -> Encoding:
        """Return the encoding of a channel: that of its service, or the program's own."""
        service = self.of(connection)
        return self.encoding if service is None else service.encoding

    def name_of(self, connection: Connection) -> str:
        """Return the name of a channel's service; "messages" where ``of`` returns None."""
        service = self._by_schema.get(connection.handshake.schema)
        return "messages" if service is None else service.name

    def kind_of(self, connection: Connection) -> type[Channel[Any]]:
        """Return the class of a channel: ``ServiceChannel`` for a service, else ``Channel``."""
        return Channel if self.of(connection) is None else ServiceChannel

    @asynccontextmanager
    async def open(
        self,
        service: Service | None,
        addresses: Sequence[Address],
        wanted: int = 0,
        pin: PeerPin | None = None,
    ) -> AsyncIterator[Channel[Any]]:
        """Open a channel of a service, or of the program with None, for the length of the block.

        All addresses are dialled at once, and the first that replies is used. A peer whose id is
        not ``wanted`` refuses, unless that is 0. Raises as ``Node.open_channel``.
        """
        schema = None if service is None else service.schema
        async with self._open_channel(addresses, wanted, pin, schema) as channel:
            yield channel
