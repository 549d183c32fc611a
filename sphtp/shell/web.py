"""A web server beside servers, clients and nodes: metrics, liveness and readiness over HTTP.

One small ASGI application has all pages; ``starlette`` routes, and ``hypercorn`` talks HTTP on
Trio. Of hypercorn only the part that serves one connection is used. Around it stand the limits that
a process needs which is there for something else: so many connections at most, a reader that stalls
is cut off, and the end of the block waits for nobody.

What the pages tell is read-only, and yet it is not for everybody: names of peers and topics are in
it. On loopback, requests must name the host as loopback, so that a page of another site cannot read
them through a name that it lets point here. Elsewhere a token is asked for.
"""

import hmac
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from functools import partial
from ipaddress import ip_address
from itertools import chain
from typing import Any, Final

import trio
from hypercorn.config import Config as HttpConfig
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sphtp.core.datagrams import Address
from sphtp.core.group.steps import BOUNDS, TimeHistogram
from sphtp.errors import SettingsError, WebAddressError
from sphtp.shell.addresses import MOST_PORT, is_loopback
from sphtp.shell.client import Client
from sphtp.shell.lifetime import block, running
from sphtp.shell.metrics import METRICS, MetricText, Values, find_unready, read_samples
from sphtp.shell.node import Node
from sphtp.shell.server import Server

MOST_CONNECTIONS: Final = 64
"""The most connections at once; a further one is closed."""

SEND_TIME: Final = 10.0
"""Seconds for a reader to take what was sent; then its connection is closed."""

IDLE_TIME: Final = 75.0
"""Seconds without a request after which a connection is closed; more than a usual scrape interval,
so that Prometheus keeps one connection."""

SHORTEST_TOKEN: Final = 16
"""The fewest characters of a token."""

log: Final = logging.getLogger("sphtp.web")

Watched = Server | Client | Node | Collector
"""The objects with metrics; a collector of ``prometheus_client`` has metrics of the program."""


class Web:
    """A web server that runs. Made by ``open_web``."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.unready: str | None = None
        """The reason of the program why it is not ready, beside those of what is watched."""

    def __repr__(self) -> str:
        return f"<Web {self.url}>"

    @property
    def address(self) -> Address:
        """The address that it listens at, with the real port."""
        return self._address

    @property
    def url(self) -> str:
        """Its address as a browser takes it, such as ``http://127.0.0.1:9464``."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@block
async def open_web(
    *watched: Watched, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> AsyncIterator[Web]:
    """Serve metrics and health over HTTP for the length of the block.

    ``/metrics`` is for Prometheus. ``/healthz`` answers 200 as long as the event loop turns, and
    ``/readyz`` answers 200 if every server is active and every client established, else 503 with
    the reasons.

    Args:
        watched: the servers, clients and nodes to serve metrics of; and collectors of
            ``prometheus_client``, with metrics of the program itself.
        host, port: the address to listen at; port 0 takes any free one.
        token: what requests must have as ``Authorization: Bearer TOKEN``, except those for health.
            Without one, only a loopback address is allowed.

    Raises:
        WebAddressError: it cannot listen there.
        SettingsError: the address is more than loopback and there is no token, the token is
            shorter than 16 characters, or an object has no metrics.
    """
    if not 0 <= port <= MOST_PORT:
        raise SettingsError(f"port is {port}; allowed is 0 to {MOST_PORT}")
    if token is None and not is_loopback(host):
        raise SettingsError(f"{host} is open to other machines: the metrics there need a token")
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isprintable()):
        raise SettingsError(f"a token has {SHORTEST_TOKEN} printable characters or more")
    sources = collectors(watched)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except (OSError, ValueError, OverflowError) as error:
        raise WebAddressError(f"cannot serve http at {host}:{port}: {error}") from error
    # One name may stand for several addresses, which would have ports of their own.
    listener, *others = listeners
    for other in others:
        await other.aclose()
    web = Web(listener.socket.getsockname()[:2])
    serving = _HttpServer(_guarded(_application(web, watched, sources), token))
    async with listener, running(partial(serving.run, listener)):
        try:
            yield web
        finally:
            await serving.close()


class _HttpServer:
    """Serves connections, within limits."""

    def __init__(self, application: Any) -> None:
        self._config = HttpConfig()
        self._config.accesslog = None
        self._config.errorlog = log
        self._config.include_server_header = False
        self._config.keep_alive_timeout = IDLE_TIME
        self._application = wrap_app(application, 0, "asgi")
        self._context = WorkerContext(None)
        self._streams: set[_PromptStream] = set()

    async def run(self, listener: trio.SocketListener) -> None:
        """Serve connections until cancelled."""
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, stream: trio.SocketStream) -> None:
        if len(self._streams) >= MOST_CONNECTIONS:
            await trio.aclose_forcefully(stream)
            return
        prompt = _PromptStream(stream)
        self._streams.add(prompt)
        try:
            # It tells TLS by what the stream can do, and is annotated for TLS alone.
            taken: Any = prompt
            await TCPServer(
                self._application, self._config, self._context, ConnectionState({}), taken
            )
        except Exception:
            # Of one connection, which is nobody else's matter.
            log.exception("a connection ended with an error")
        finally:
            self._streams.discard(prompt)
            await trio.aclose_forcefully(stream)

    async def close(self) -> None:
        """Close the connections, so that no task waits for a reader."""
        for stream in tuple(self._streams):
            await trio.aclose_forcefully(stream)


class _PromptStream(trio.abc.HalfCloseableStream):
    """A stream whose reader has to read. Sending is not cancelled from outside, but by this."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with trio.move_on_after(SEND_TIME) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the reader does not read")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


# The metrics for Prometheus


class LibraryCollector(Collector):
    """A collector of ``prometheus_client`` over servers, clients and nodes."""

    def __init__(self, watched: Iterable[Server | Client | Node]) -> None:
        self._watched = tuple(watched)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with their values now."""
        samples = read_samples(self._watched).items()
        return (metric_family(METRICS[name], values) for name, values in samples)


def collectors(watched: Sequence[Watched]) -> tuple[Collector, ...]:
    """Return the collectors for what is watched, and for the process.

    Raises ``SettingsError`` for an object without metrics.
    """
    own: list[Server | Client | Node] = []
    others: list[Collector] = []
    for one in watched:
        if isinstance(one, Server | Client | Node):
            own.append(one)
        elif hasattr(one, "collect"):
            others.append(one)
        else:
            raise SettingsError(f"{one!r} is no server, client, node or collector")
    return (LibraryCollector(own), *others, ProcessCollector(registry=None))


def metric_family(metric: MetricText, values: Values) -> Metric:
    """Return a metric with its values by labels, as ``prometheus_client`` renders it."""
    families: dict[str, Callable[..., Any]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    family: Any = families[metric.kind](metric.name, metric.text, labels=metric.labels)
    for labels, value in values.items():
        if isinstance(value, TimeHistogram):
            family.add_metric(labels, _buckets(value), value.total)
        else:
            family.add_metric(labels, value)
    return family  # type: ignore[no-any-return]


def _buckets(histogram: TimeHistogram) -> list[tuple[str, float]]:
    buckets, count = [], 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), histogram.counts, strict=True):
        count += number
        buckets.append((bound, float(count)))
    return buckets


# The application

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OF_HEALTH: Final = ("/healthz", "/readyz")


def _application(web: Web, watched: Sequence[Watched], sources: Sequence[Collector]) -> Application:
    async def metrics(_: Request) -> Response:
        families = chain.from_iterable(source.collect() for source in sources)
        text = b"".join([part async for part in _render(families)])
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> Response:
        unready = [*find_unready(watched), *filter(None, [web.unready])]
        text = "".join(f"{line}\n" for line in unready) or "ready\n"
        return PlainTextResponse(text, 503 if unready else 200)

    async def index(_: Request) -> Response:
        return PlainTextResponse("/metrics for Prometheus\n/healthz\n/readyz\n")

    return Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", metrics),
            Route("/healthz", health),
            Route("/readyz", readiness),
        ]
    )


class _OneFamily(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """Return the one family."""
        return (self._family,)


async def _render(families: Iterable[Metric]) -> AsyncIterator[bytes]:
    # One by one: with 200 channels all of them take tens of milliseconds, in which no message
    # would come or go.
    for family in families:
        yield generate_latest(_OneFamily(family))
        await trio.lowlevel.checkpoint()


def _guarded(application: Application, token: str | None) -> Application:
    """Return the application with the check of token or host before it."""
    expected = None if token is None else f"Bearer {token}".encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or ())
        if expected is not None:
            is_allowed = scope.get("path") in OF_HEALTH or hmac.compare_digest(
                headers.get(b"authorization", b""), expected
            )
            refusal = PlainTextResponse("a token is needed\n", 401, {"WWW-Authenticate": "Bearer"})
        else:
            is_allowed = _names_loopback(headers.get(b"host", b"").decode("latin-1"))
            refusal = PlainTextResponse("the request names another host\n", 403)
        await (application if is_allowed else refusal)(scope, receive, send)

    return guarded


def _names_loopback(host: str) -> bool:
    """Return True if the header Host, with or without a port, is a name of this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.rstrip(".").lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
