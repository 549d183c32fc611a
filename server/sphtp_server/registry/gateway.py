"""The way to etcd: its JSON gateway, by HTTP/1.1 over Trio.

h11 knows HTTP, and does no I/O; this module carries its bytes. A connection bears one request at a
time, and idle ones are kept. All requests go to one member of etcd until one fails: then the next
member is asked, by all that follow.
"""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import h11
import trio

from sphtp.core.printable import printable
from sphtp.errors import SphtpError
from sphtp_server.registry.keyspace import JsonObject
from sphtp_server.registry.location import EtcdAccess, EtcdLocation, format_endpoint

MOST_IDLE: Final = 4
"""The connections that are kept although they have nothing to do."""

MOST_BYTES: Final = 64 << 20
"""The most bytes of one document. A page of a list is the longest, with 250 clients' data."""

CHUNK: Final = 1 << 16

OK: Final = 200
UNAUTHENTICATED: Final = 401


class GatewayError(SphtpError):
    """A request to etcd has failed: etcd refused it, or its answer did not come."""


class RequestRefusedError(GatewayError):
    """An answer of etcd that is an error, with the status of HTTP."""

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
        """True if it can take the next request."""
        return self._http.our_state is h11.IDLE and self._http.their_state is h11.IDLE

    async def ask(self, path: str, body: JsonObject, token: str) -> int:
        """Send a request; return the status of the answer, whose body follows."""
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
                raise GatewayError("etcd closed the connection without an answer")

    async def read(self) -> bytes:
        """Return the next bytes of the body; none at its end."""
        event = await self._receive()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise GatewayError("etcd closed the connection within an answer")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return b""

    async def read_all(self) -> bytes:
        """Return the body."""
        parts, size = [], 0
        while part := await self.read():
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise GatewayError(f"an answer of over {MOST_BYTES} bytes")
        return b"".join(parts)

    def close(self) -> None:
        """Close it at once, without the farewell of TLS: nothing of value is on its way."""
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
    """The client of one etcd cluster. Each call raises ``GatewayError`` if it fails."""

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
        """The member of etcd that is asked at present."""
        return self._name(self._endpoint)

    def _name(self, endpoint: int) -> str:
        return format_endpoint(self._location.endpoints[endpoint])

    async def request(self, path: str, body: JsonObject) -> JsonObject:
        """Return the document that answers a request."""
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
        """Yield an iterator over the documents of an answer that does not end by itself."""
        async with self._asked(path, body) as connection:
            try:
                async with aclosing(_documents(connection)) as documents:
                    yield documents
            finally:
                connection.close()

    def fail_over(self, endpoint: int | None = None) -> None:
        """Ask the next member from now on, unless that has begun already."""
        if endpoint in (None, self._endpoint):
            self._endpoint = (self._endpoint + 1) % len(self._location.endpoints)
            self.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    @asynccontextmanager
    async def _asked(self, path: str, body: JsonObject) -> AsyncIterator[GatewayConnection]:
        """Yield a connection on which the good answer to a request begins."""
        endpoint, connection = self._endpoint, None
        try:
            if self._access.user is not None:
                # Once for all that begin together: etcd takes a tenth of a second for each.
                async with self._signing_in:
                    if not self._token:
                        await self._authenticate()
            connection = self._idle.pop() if self._idle else await self._connect()
            endpoint = connection.endpoint
            status = await connection.ask(path, body, self._token)
            if status != OK:
                why = _reason(await connection.read_all())
                # The second is etcd's word, with status 400, when users or roles have changed.
                if status == UNAUTHENTICATED or "auth store is old" in why:
                    self._token = ""
                raise RequestRefusedError(status, why)
            yield connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            # A timeout is a cancellation; so is a watch that another one replaces.
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
            raise RequestRefusedError(status, _reason(data))
        token = _document(data).get("token")
        if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
            raise GatewayError("etcd gave no token to its user")
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
)


def _cause(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
    if isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    return printable(str(cause or error) or type(error).__name__)


def _document(data: bytes) -> JsonObject:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise GatewayError("etcd answered with what is no JSON") from error
    if not isinstance(document, dict):
        raise GatewayError("etcd answered with what is no JSON object")
    if "error" in document:
        raise GatewayError(_reason(data))
    return document


async def _documents(connection: GatewayConnection) -> AsyncGenerator[JsonObject, None]:
    """Yield one document for each line."""
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


def _reason(data: bytes) -> str:
    """Return the reason that an answer gives, in at most a line."""
    text = data.decode(errors="replace").strip()
    try:
        document = json.loads(text)
        inner = document.get("error", document)
        message = inner if isinstance(inner, str) else inner.get("message", inner)
        text = str(message)
    except (ValueError, AttributeError):
        pass
    return printable(text[:200]) or "an error without a reason"
