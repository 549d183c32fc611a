"""A client of etcd's JSON gateway, by HTTP/1.1 over Trio.

h11 implements HTTP without I/O; this module sends and receives its bytes. A connection carries one
request at a time, and idle connections are kept. All requests go to one member of etcd until a
request fails or is cancelled; all later requests go to the next member.
"""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import h11
import trio

from sphtp.core.printable import printable
from sphtp.errors import RemoteError, SphtpError
from sphtp_server.registry.keyspace import (
    JsonObject,
    parse_document_untrusted,
    parse_reason_untrusted,
)
from sphtp_server.registry.location import EtcdAccess, EtcdLocation, format_endpoint

MOST_IDLE: Final = 4
"""The most idle connections that are kept."""

MOST_BYTES: Final = 64 << 20
"""The size limit of a document, in bytes. The longest is a list page with 250 clients' data."""

CHUNK: Final = 1 << 16

OK: Final = 200
UNAUTHENTICATED: Final = 401


class GatewayError(SphtpError):
    """A request to etcd has failed: etcd refused it, or did not reply."""


class RequestRefusedError(GatewayError):
    """An error that etcd returned, with its HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class GatewayConnection:
    """One connection to one member of etcd."""

    def __init__(self, stream: trio.abc.Stream, host: str, endpoint: int) -> None:
        self.endpoint = endpoint
        self._stream = stream
        self._host = host
        self._http = h11.Connection(h11.CLIENT)

    @property
    def is_idle(self) -> bool:
        """True if the connection can carry the next request."""
        return self._http.our_state is h11.IDLE and self._http.their_state is h11.IDLE

    async def ask(self, path: str, body: JsonObject, token: str) -> int:
        """Send a request; return the HTTP status of the reply, whose body is read next."""
        data = json.dumps(body).encode()
        headers = [
            ("Host", self._host),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(data))),
        ]
        if token:
            headers.append(("Authorization", token))
        http = self._http
        request = h11.Request(method="POST", target=path, headers=headers)
        parts = (request, h11.Data(data=data), h11.EndOfMessage())
        await self._stream.send_all(b"".join(http.send(part) or b"" for part in parts))
        while True:
            event = await self._receive()
            if isinstance(event, h11.Response):
                return event.status_code
            if not isinstance(event, h11.InformationalResponse):
                raise GatewayError("etcd closed the connection without a reply")

    async def read(self) -> bytes:
        """Return the next bytes of the body; empty at its end."""
        event = await self._receive()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise GatewayError("etcd closed the connection within a reply")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return b""

    async def read_all(self) -> bytes:
        """Return the whole body. Raises ``GatewayError`` if it is over ``MOST_BYTES``."""
        parts, size = [], 0
        while part := await self.read():
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise GatewayError(f"the reply of etcd is over {MOST_BYTES} bytes")
        return b"".join(parts)

    def close(self) -> None:
        """Close the connection at once, without a close notification of TLS."""
        stream = self._stream
        while isinstance(stream, trio.SSLStream):
            stream = stream.transport_stream
        assert isinstance(stream, trio.SocketStream)
        stream.socket.close()

    async def _receive(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))
        return event


class Gateway:
    """The client of one etcd cluster. Requests raise ``GatewayError`` if they fail."""

    def __init__(self, location: EtcdLocation, access: EtcdAccess) -> None:
        self._location = location
        self._access = access
        self._tls = access.tls() if location.is_tls else None
        self._endpoint = 0
        self._token = ""
        self._signing_in = trio.Lock()
        self._idle: list[GatewayConnection] = []

    @property
    def endpoint(self) -> str:
        """The address of the etcd member that gets the requests now."""
        return self._name(self._endpoint)

    def _name(self, endpoint: int) -> str:
        return format_endpoint(self._location.endpoints[endpoint])

    async def request(self, path: str, body: JsonObject) -> JsonObject:
        """Send a request, and return the document in its reply."""
        async with self._asked(path, body) as connection:
            document = _document(await connection.read_all())
        is_here = connection.endpoint == self._endpoint
        if connection.is_idle and is_here and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return document

    @asynccontextmanager
    async def stream(self, path: str, body: JsonObject) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Send a request, and yield an iterator over the documents of its unlimited reply."""
        async with self._asked(path, body) as connection:
            try:
                async with aclosing(_documents(connection)) as documents:
                    yield documents
            finally:
                connection.close()

    def fail_over(self, endpoint: int | None = None) -> None:
        """Send later requests to the next member, unless ``endpoint`` is no longer in use."""
        if endpoint in (None, self._endpoint):
            self._endpoint = (self._endpoint + 1) % len(self._location.endpoints)
            self.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    @asynccontextmanager
    async def _asked(self, path: str, body: JsonObject) -> AsyncIterator[GatewayConnection]:
        """Send a request, and yield the connection when a reply with status 200 begins."""
        endpoint, connection = self._endpoint, None
        try:
            if self._access.user is not None:
                # One login for all concurrent requests: etcd takes a tenth of a second for each.
                async with self._signing_in:
                    if not self._token:
                        await self._authenticate()
            connection = self._idle.pop() if self._idle else await self._connect()
            endpoint = connection.endpoint
            status = await connection.ask(path, body, self._token)
            if status != OK:
                why = parse_reason_untrusted(await connection.read_all())
                # etcd's text, with status 400, after a change of users or roles.
                if status == UNAUTHENTICATED or "auth store is old" in why:
                    self._token = ""
                raise RequestRefusedError(status, why)
            yield connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            # A timeout is a cancellation, and so is a watch that was replaced.
            self.fail_over(endpoint)
            if isinstance(error, _FAILURES):
                raise GatewayError(f"{self._name(endpoint)}: {_cause(error)}") from error
            raise

    async def _authenticate(self) -> None:
        body = {"name": self._access.user, "password": self._access.password}
        connection = await self._connect()
        try:
            status = await connection.ask("/v3/auth/authenticate", body, "")
            data = await connection.read_all()
        finally:
            connection.close()
        if status != OK:
            raise RequestRefusedError(status, parse_reason_untrusted(data))
        token = _document(data).get("token")
        if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
            raise GatewayError("etcd returned no token for the user")
        self._token = token

    async def _connect(self) -> GatewayConnection:
        endpoint = self._endpoint
        host, port = self._location.endpoints[endpoint]
        stream: trio.abc.Stream
        if self._tls is None:
            stream = await trio.open_tcp_stream(host, port)
        else:
            stream = await trio.open_ssl_over_tcp_stream(
                host, port, https_compatible=True, ssl_context=self._tls
            )
        return GatewayConnection(stream, self._name(endpoint), endpoint)


_FAILURES: Final = (
    OSError,
    ssl.SSLError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    h11.ProtocolError,
    GatewayError,
    RemoteError,
)


def _cause(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
    if isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    return printable(str(cause or error) or type(error).__name__)


def _document(data: bytes) -> JsonObject:
    document = parse_document_untrusted(data)
    if "error" in document:
        raise GatewayError(parse_reason_untrusted(data))
    return document


async def _documents(connection: GatewayConnection) -> AsyncGenerator[JsonObject, None]:
    """Yield the document in each line."""
    rest = bytearray()
    while part := await connection.read():
        searched = len(rest)
        rest += part
        while (end := rest.find(b"\n", searched)) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            searched = 0
            if line.strip():
                yield _document(line)
        if len(rest) > MOST_BYTES:
            raise GatewayError(f"a document of over {MOST_BYTES} bytes")
