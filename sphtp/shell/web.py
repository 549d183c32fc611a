"""A web server beside servers, clients and nodes: metrics, health, and a page of the cluster.

One small ASGI application has all pages. ``starlette`` routes requests, and ``hypercorn`` serves
HTTP on Trio. This module uses only the part of hypercorn that serves one connection. Limits protect
the main work of the process: the number of connections is bounded, a reader that stalls is
disconnected, and the end of the block does not wait for readers.

The pages are read-only, but not public: they contain names of peers and topics. So requests for
them need a token, except for health and readiness, and for the files of the page. Without a token,
which only loopback allows, the host in a request must be loopback, so that a page of another site
cannot read them through its own host name. Requests that a browser sends for another site
(``Sec-Fetch-Site``) are refused before any other work, unless they follow a link.

The page is a few files without data. Its script requests the status of the cluster, a line of JSON
each second, and the states of a simulation, as bytes. Both responses have no end. The requests
carry the token in a header; the script takes it from the fragment of the page's address, which
browsers do not send. When the browser has received one state, it gets the newest one. So a slow
browser gets fewer states, and no queue grows. As long as no browser shows the page, the server
requests no status from peers.
"""

import hmac
import json
import logging
import sys
from array import array
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractContextManager, aclosing, suppress
from importlib.resources import files
from ipaddress import ip_address
from itertools import chain
from math import isfinite
from struct import Struct
from typing import Any, Final, cast
from urllib.parse import quote

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
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sphtp.core.datagrams import Address
from sphtp.core.group.steps import BOUNDS, TimeHistogram
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.topics import TopicPattern
from sphtp.errors import (
    RemoteError,
    SettingsError,
    SphtpError,
    StateError,
    WebAddressError,
    WireError,
    untrusted,
)
from sphtp.shell.addresses import MOST_PORT, is_loopback
from sphtp.shell.client import Client
from sphtp.shell.cluster_observer import ClusterObserver, Viewers
from sphtp.shell.config import DEFAULTS, Config
from sphtp.shell.lifetime import block, running
from sphtp.shell.metrics import (
    NO_STEPS,
    MetricText,
    Steps,
    Values,
    check_steps,
    find_unready,
    metric_rows,
    metric_texts,
    read_samples,
)
from sphtp.shell.node import Node
from sphtp.shell.server import Server
from sphtp.shell.topics import TopicLoss

MOST_CONNECTIONS: Final = 64
"""The most connections at once; further ones are closed."""

SEND_TIME: Final = 10.0
"""The most seconds that sending a part of a response may take; then the connection is closed."""

IDLE_TIME: Final = 75.0
"""Seconds without a request after which a connection is closed; more than a usual scrape interval,
so that Prometheus keeps one connection."""

SHORTEST_TOKEN: Final = 16
"""The fewest characters of a token."""

PICTURE: Final = "slab/*"
"""The pattern of the topics on which ``sphtp client`` publishes its spheres."""

log: Final = logging.getLogger("sphtp.web")

Watched = Server | Client | Node | Collector
"""The objects with metrics; a collector of ``prometheus_client`` has metrics of the program."""


class Web:
    """A running web server. Made by ``open_web``."""

    def __init__(
        self,
        address: Address,
        token: str | None = None,
        observer: ClusterObserver | None = None,
    ) -> None:
        self._address = address
        self._token = token
        self._observer = observer
        self.unready: str | None = None
        """The program's own reason why ``/readyz`` answers 503, or None; the program sets it."""

    def __repr__(self) -> str:
        return f"<Web {self.url}>"

    @property
    def address(self) -> Address:
        """The address at which the server listens, with the real port."""
        return self._address

    @property
    def url(self) -> str:
        """The address of the server for a browser, such as ``http://127.0.0.1:9464``."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def page_url(self) -> str:
        """The address of the page for a browser, with the token that its requests need."""
        return f"{self.url}/" if self._token is None else f"{self.url}/#token={quote(self._token)}"

    @property
    def problem(self) -> str | None:
        """The reason why the page shows only a part of the cluster, or None; the program sets it.

        The page shows the reason among the causes. Without a page it is always None.
        """
        return None if self._observer is None else self._observer.problem

    @problem.setter
    def problem(self, reason: str | None) -> None:
        if self._observer is not None:
            self._observer.problem = reason

    def observe_with(self, client: Client) -> AbstractContextManager[None]:
        """Request the data of the page through this client, for the length of the block.

        The page shows the client as an observer. Raises ``StateError`` if there is no page.
        """
        if self._observer is None:
            raise StateError("there is no page: open_web(page=True) serves one")
        return self._observer.asking_with(client)


@block
async def open_web(
    *watched: Watched,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    page: bool = False,
    picture: str = PICTURE,
    steps: Steps | None = None,
    config: Config = DEFAULTS,
) -> AsyncIterator[Web]:
    """Serve metrics and health, and a page of the cluster, for the length of the block.

    ``/metrics`` is for Prometheus. ``/healthz`` answers 200 as long as the event loop runs.
    ``/readyz`` answers 200 if every server is active, every client is established, and
    ``Web.unready`` is None; otherwise it answers 503 with the reasons.

    Args:
        watched: the servers, clients and nodes whose metrics are served, and collectors of
            ``prometheus_client``, with metrics of the program itself.
        host, port: the address to listen at; port 0 takes any free port.
        token: the token in ``Authorization: Bearer TOKEN``, which requests for metrics, status and
            states need. Without a token, only a loopback address is allowed.
        page: True to serve the page of the cluster at ``/``. The first client of ``watched``
            requests the status of its peers, unless ``observe_with`` sets another one. All clients
            of ``watched`` send their own status to peers that request it.
        picture: the pattern of the topics on which peers publish the places of simulated objects.
        steps: statistics of steps that the first client makes without a group, by a name, which is
            part of the names of their metrics: ``sphtp_NAME_step_seconds``.
        config: the config of the clients, for the page. With its ``cluster``, the page also
            requests the metrics of other servers.

    Raises:
        WebAddressError: the server cannot listen at this address.
        SettingsError: the address is more than loopback and there is no token, the token is
            shorter than 16 characters or not printable, the port is out of range, ``picture`` is no
            pattern, an object has no metrics, or a name in ``steps`` would give a metric the name
            of another one. The name ``group`` would, for example.
    """
    if not 0 <= port <= MOST_PORT:
        raise SettingsError(f"port is {port}; allowed is 0 to {MOST_PORT}")
    if token is None and not is_loopback(host):
        raise SettingsError(f"{host} is open to other machines: the metrics there need a token")
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isprintable()):
        raise SettingsError(f"a token has {SHORTEST_TOKEN} printable characters or more")
    check_steps(steps or NO_STEPS)
    sources = collectors(watched, steps or NO_STEPS)
    shown = (
        _Page(watched, TopicPattern(picture), steps or NO_STEPS, sources[1:], config)
        if page
        else None
    )
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except (OSError, ValueError, OverflowError) as error:
        raise WebAddressError(f"cannot serve http at {host}:{port}: {error}") from error
    # A host name may have several addresses. Each listener would get its own port.
    listener, *others = listeners
    for other in others:
        await other.aclose()
    observer = None if shown is None else shown.observer
    web = Web(listener.socket.getsockname()[:2], token, observer)
    serving = _HttpServer(_guarded(_application(web, watched, sources, shown), token))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serving.run, listener)
            if shown is not None:
                nursery.start_soon(shown.run)

    async with listener, running(run):
        try:
            yield web
        finally:
            await serving.close()


class _HttpServer:
    """The server of HTTP connections, within limits."""

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
            # ``TCPServer`` detects TLS at run time, but its annotation allows only TLS streams.
            taken: Any = prompt
            await TCPServer(
                self._application, self._config, self._context, ConnectionState({}), taken
            )
        except Exception:
            # An error of one connection must not end the others.
            log.exception("a connection ended with an error")
        finally:
            self._streams.discard(prompt)
            await trio.aclose_forcefully(stream)

    async def close(self) -> None:
        """Close the connections, so that no task waits for a reader."""
        for stream in tuple(self._streams):
            await trio.aclose_forcefully(stream)


class _PromptStream(trio.abc.HalfCloseableStream):
    """A stream that closes when its reader stalls: sending has a timeout of its own."""

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

    def __init__(self, watched: Iterable[Server | Client | Node], steps: Steps = NO_STEPS) -> None:
        self._watched = tuple(watched)
        self._steps = steps

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with their values now."""
        texts, samples = metric_texts(self._steps), read_samples(self._watched, self._steps)
        return (metric_family(texts[name], values) for name, values in samples.items())


def collectors(watched: Sequence[Watched], steps: Steps = NO_STEPS) -> tuple[Collector, ...]:
    """Return the collectors for the watched objects, and for the process.

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
    return (LibraryCollector(own, steps), *others, ProcessCollector(registry=None))


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

FILES: Final = "/page/"
"""The path of the files of the page."""

WITHOUT_TOKEN: Final = ("/healthz", "/readyz", "/")
"""Paths that need no token. The page itself is in every copy of this library."""


def _application(
    web: Web, watched: Sequence[Watched], sources: Sequence[Collector], page: "_Page | None"
) -> Application:
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
            *(page.routes() if page is not None else [Route("/", index)]),
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
    # could be sent or received.
    for family in families:
        yield generate_latest(_OneFamily(family))
        await trio.lowlevel.checkpoint()


HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"; ".join(
            (
                b"default-src 'none'",
                b"script-src 'self'",
                b"style-src 'self'",
                b"connect-src 'self'",
                b"img-src 'self' data:",
                b"base-uri 'none'",
                b"form-action 'none'",
                b"frame-ancestors 'none'",
            )
        ),
    ),
)
"""Headers of every response of the application. A page of this server runs only scripts of this
server. No other page can put it into a frame, read its responses, or get its address."""


def _guarded(application: Application, token: str | None) -> Application:
    """Return the application behind a check of the token, or of the host without a token."""
    expected = None if token is None else f"Bearer {token}".encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or ())
        if expected is not None:
            path = scope.get("path", "")
            is_allowed = path in WITHOUT_TOKEN or path.startswith(FILES)
            is_allowed = is_allowed or hmac.compare_digest(
                headers.get(b"authorization", b""), expected
            )
            refusal = PlainTextResponse("a token is needed\n", 401, {"WWW-Authenticate": "Bearer"})
        else:
            is_allowed = _names_loopback(headers.get(b"host", b"").decode("latin-1"))
            refusal = PlainTextResponse("the request names another host\n", 403)
        if _is_of_another_site(headers):
            is_allowed = False
            refusal = PlainTextResponse("the request comes from a page of another site\n", 403)

        async def send_with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await (application if is_allowed else refusal)(scope, receive, send_with_headers)

    return guarded


def _is_of_another_site(headers: Mapping[bytes, bytes]) -> bool:
    """Return True if ``Sec-Fetch-Site`` shows that a page of another site made a request.

    A page on another port of this host counts as another site. Following a link to the page is
    allowed, because the page with the link cannot read the response. Programs other than browsers
    do not send the header.
    """
    if headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin"):
        return False
    follows_link = (b"navigate", b"document")
    return (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) != follows_link


def _names_loopback(host: str) -> bool:
    """Return True if the header Host, with or without a port, is a name of this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.rstrip(".").lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


# The page

FRAME_PAUSE: Final = 0.25
"""Seconds between two states of a simulation for a browser, which interpolates between them."""

MOST_PLACES: Final = 200_000
"""The most places in one state of one peer."""

RECORD: Final = Struct("<IIQI")
"""The head of a state of one peer: the number of bytes that follow, the id, the step, and the
number of places. Behind the head are the ids as u32, and the places as three f32 each."""


class _Page:
    """The page, its status, and the states of a simulation."""

    def __init__(
        self,
        watched: Sequence[Watched],
        pattern: TopicPattern,
        steps: Steps,
        others: Sequence[Collector],
        config: Config,
    ) -> None:
        self._steps = steps
        self._others = others
        self._own = [one for one in watched if isinstance(one, Server | Client)]
        self.observer = ClusterObserver(
            [one for one in self._own if isinstance(one, Server)],
            [one for one in self._own if isinstance(one, Client)],
            steps,
            config,
        )
        self._pattern = pattern
        self._line = 0, b""
        self._files = {
            file.name: (file.read_bytes(), TYPES[file.name.rpartition(".")[2]])
            for file in files("sphtp.shell").joinpath("page").iterdir()
        }
        self._viewers = Viewers()
        # The last state of each peer, with a number that grows.
        self._states: dict[int, tuple[int, bytes]] = {}
        self._number = 0

    def routes(self) -> list[Route]:
        """Return the routes of the page."""
        return [
            Route("/", self._file),
            Route(f"{FILES}{{name}}", self._file),
            Route("/status", self._status),
            Route("/states", self._follow_states),
            Route("/peers/{number}/metrics", self._metrics),
        ]

    async def run(self) -> None:
        """Request status and states while a browser shows the page, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.observer.run)
            nursery.start_soon(self._viewers.work, self._keep_states)

    async def _file(self, request: Request) -> Response:
        found = self._files.get(request.path_params.get("name", "index.html"))
        if found is None:
            return PlainTextResponse("no such file\n", 404)
        content, kind = found
        return Response(content, media_type=kind)

    async def _status(self, request: Request) -> Response:
        if "follow" in request.query_params:
            return _Endless(self._lines(), media_type="application/x-ndjson")
        async with aclosing(self._lines()) as lines:
            # The first lines have no rates, which are differences between two rounds.
            for _ in range(4):
                last = await anext(lines)
        return Response(last, media_type="application/json")

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        """Yield the present document, and then each new one for which the reader is ready."""
        with self.observer.viewers.viewing():
            # At once, so that a page is not empty for a second.
            yield self._document()
            while True:
                await self.observer.changed.park()
                yield self._document()

    def _document(self) -> bytes:
        """Return the present document, which is encoded once for all browsers."""
        number, line = self._line
        if number != self.observer.number or not line:
            text = json.dumps(self.observer.status(), ensure_ascii=False, separators=(",", ":"))
            line = f"{text}\n".encode()
            self._line = self.observer.number, line
        return line

    async def _metrics(self, request: Request) -> Response:
        try:
            number = int(request.path_params["number"], 0)
        except ValueError:
            return PlainTextResponse("no id\n", 404)
        own = [one for one in self._own if one.id == number]
        if own:
            return JSONResponse([*metric_rows(own, self._steps), *_other_rows(self._others)])
        try:
            return JSONResponse(await self.observer.fetch_metrics(number))
        except SphtpError as error:
            return PlainTextResponse(f"{error}\n", 502)

    # The states of a simulation

    async def _follow_states(self, _: Request) -> Response:
        return _Endless(self._new_states(), media_type="application/octet-stream")

    async def _new_states(self) -> AsyncGenerator[bytes, None]:
        with self._viewers.viewing():
            sent = 0
            while True:
                new = [state for number, state in self._states.values() if number > sent]
                sent = self._number
                if new:
                    yield b"".join(new)
                await trio.sleep(FRAME_PAUSE)

    async def _keep_states(self) -> None:
        """Keep the newest state of each peer, by subscriptions of the observer's present client."""
        try:
            while True:
                if (client := self.observer.client) is not None:
                    # The client may close before the page does.
                    with suppress(trio.ClosedResourceError):
                        await self._subscribe(client)
                await trio.sleep(FRAME_PAUSE)
        finally:
            self._states.clear()

    async def _subscribe(self, client: Client) -> None:
        # Only the newest state counts, so that lost ones are not fetched.
        settings = StreamSettings(recover=False)
        async with client.subscribe(
            self._pattern.text, latest=True, late_join=1, settings=settings
        ) as states:
            async for item in states:
                peer_id = item.peer.id
                if isinstance(item, TopicLoss):
                    continue
                try:
                    record = encode_places_untrusted(peer_id, item.value)
                except RemoteError:
                    # The peer publishes other messages on this topic.
                    continue
                if peer_id not in client.peers:
                    continue
                self._number += 1
                self._states[peer_id] = self._number, record
                for gone in self._states.keys() - client.peers.keys():
                    del self._states[gone]


def _other_rows(sources: Iterable[Collector]) -> Iterator[list[Any]]:
    """Yield the metrics of the program and of its process, in rows as those of ``metric_rows``."""
    for family in chain.from_iterable(source.collect() for source in sources):
        for sample in family.samples:
            if not sample.name.endswith("_bucket") and isfinite(sample.value):
                yield [sample.name, sample.labels, sample.value]


class _Endless(StreamingResponse):
    """A response without an end. Its generator is closed when the connection ends."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        async with aclosing(cast("AsyncGenerator[bytes, None]", self.body_iterator)):
            await super().__call__(scope, receive, send)


TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""The types of the files of the page, by their endings."""


@untrusted
def encode_places_untrusted(peer_id: int, message: object) -> bytes:
    """Return the places in a message that a peer has published, in the format for browsers.

    The message is a map with the ``step``, and columns of bytes: ``id`` with a u32 for each place,
    and ``x`` with three f64 for each. Raises ``RemoteError`` for any other message.
    """
    if not isinstance(message, dict):
        raise WireError("a state is a map")
    step, ids, x = message.get("step"), message.get("id"), message.get("x")
    if type(step) is not int or not 0 <= step < 1 << 63:
        raise WireError("a state has a step")
    if not isinstance(ids, bytes) or not isinstance(x, bytes) or len(ids) % 4:
        raise WireError("a state has columns of bytes")
    count = len(ids) // 4
    if len(x) != 24 * count or count > MOST_PLACES:
        raise WireError("the columns of a state do not fit")
    places = array("d", x)
    if sys.byteorder == "big":
        places.byteswap()
    short = array("f", places)
    if not isfinite(sum(short)):
        raise WireError("a place of a state is too far away")
    if sys.byteorder == "big":
        short.byteswap()
    data = ids + short.tobytes()
    return RECORD.pack(RECORD.size - 4 + len(data), peer_id, step, count) + data
