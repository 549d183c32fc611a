"""The status of servers and of clients: its documents, and the requests for them.

A server answers requests on the bus, and a client over a channel of the service ``status``.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from resource import RUSAGE_SELF, getpagesize, getrusage
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import trio

from sphtp.core.control.client_messages import StatusRequest
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.lists import Assembly
from sphtp.core.control.outputs import topic
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.server_messages import StatusReply
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import EVERYBODY, draw_client_id
from sphtp.core.packing import PLAIN
from sphtp.core.printable import printable
from sphtp.core.schema import Schema
from sphtp.errors import MessageTooLargeError, StateError, WireError, untrusted
from sphtp.shell.bus_dialing import BusArrival, PubSocket, SubSocket
from sphtp.shell.channel import ServiceChannel
from sphtp.shell.config import DEFAULTS, Config, decisions
from sphtp.shell.driver import Wakeup
from sphtp.shell.lifetime import running
from sphtp.shell.probe import FaultKind, ServerFault, ServerWait, find_fault
from sphtp.shell.services import Service
from sphtp.shell.stream_admission import GONE
from sphtp.shell.tls import require_tls
from sphtp.shell.vouching import Vouching, vouching

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection
    from sphtp.core.group.steps import StepStatistics, TimeHistogram
    from sphtp.shell.client import Client
    from sphtp.shell.hosted_streams import HostedSource, HostedSubscription

REPEAT: Final = 0.25
"""Seconds between two requests: the first answer may come before the subscription is in force."""

MOST_NESTED: Final = 16
"""The most levels of nested lists and mappings; a server uses four."""

MAX_STATUS_PARTS: Final = 256
"""The most messages of one answer of a server."""


async def fetch_status(
    address: str | ServerAddress, *, config: Config = DEFAULTS
) -> dict[str, Any]:
    """Return the status of a server: its view, clients and counters.

    A status request uses ``cluster`` and ``timers`` of ``config``. If ``cluster.server_keys`` are
    given, the key that signs the answer has to be one of them, or be certified by one.

    Raises:
        UnreachableError: the server did not answer; the message has the cause. It is raised within
            a second if no program listens, or the secret, a key of a server or a certificate is
            wrong, else after ``timers.answer_timeout``.
        SettingsError: the address, a key or a file is invalid, or the files do not fit the address.
    """
    address = ServerAddress.parse(address) if isinstance(address, str) else address
    cluster, tls = config.cluster, config.cluster.tls
    require_tls([address], tls)
    timers = config.timers or ControlTimers()
    server_wait = ServerWait(timers.answer_timeout, missing=f"no answer from {address}")
    wakeup = Wakeup()
    number = draw_client_id(decisions(None))
    with (
        SubSocket(on_connected=wakeup.wake, tls=tls) as subscriber,
        PubSocket(buffer=1, on_connected=wakeup.wake, tls=tls) as publisher,
    ):
        # Without an answer, messages for all clients show whether the secret is the cause.
        for each in (number, EVERYBODY):
            subscriber.subscribe(topic(each))
        subscriber.dial(address.pub)
        publisher.dial(address.sub)
        trust = vouching(cluster.secret, cluster.server_keys)
        answer = _StatusAnswer(trust)

        async def look_for_trouble() -> None:
            await trio.sleep(server_wait.first_look)
            while True:
                answer.fault = await find()
                server_wait.note(answer.fault)
                await trio.sleep(server_wait.pause)

        async def find() -> ServerFault | None:
            if trust.secret_fault is not None:
                return ServerFault(FaultKind.PERMANENT, trust.secret_fault)
            if subscriber.connections and publisher.connections:
                return None
            return await find_fault([address], tls)

        ask_at = trio.current_time() + REPEAT
        async with running(look_for_trouble):
            with trio.CancelScope(deadline=server_wait.deadline):
                while answer.document is None:
                    with wakeup.waiting(ask_at):
                        answer.add(await subscriber.receive_arrivals())
                        continue
                    wakeup.clear()
                    publisher.send(trust.mark(StatusRequest(number).encode()))
                    ask_at = trio.current_time() + REPEAT
    if answer.document is None:
        fault = answer.fault
        raise server_wait.give_up("it is silent" if fault is None else fault.text)
    return answer.document


class _StatusAnswer:
    """The answer of a server, joined from its parts. A malformed part is ignored."""

    def __init__(self, trust: Vouching) -> None:
        self.document: dict[str, Any] | None = None
        self.fault: ServerFault | None = None
        self._trust = trust
        self._counters = ControlCounters()
        self._intake = MessageReader(self._counters, for_client=True)
        self._parts = Assembly[bytes](self._counters)

    def add(self, batch: list[BusArrival]) -> None:
        for arrival in batch:
            verified = self._trust.check(arrival, self._counters)
            message = None if verified is None else self._intake.take(verified.data)
            if isinstance(message, StatusReply) and message.part.count <= MAX_STATUS_PARTS:
                texts = self._parts.add(message.part, [message.text])
                self.document = self.document or read_untrusted(texts)


def read_untrusted(texts: list[bytes] | None) -> dict[str, Any] | None:
    """Return the document of a server from its parts; None if it is malformed or not complete."""
    try:
        document = json.loads(b"".join(texts or ()))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and _is_shallow(document) else None


def _is_shallow(document: dict[str, Any]) -> bool:
    """Return True if lists and mappings are nested at most ``MOST_NESTED`` levels deep."""
    level: list[dict[str, Any] | list[Any]] = [document]
    for _ in range(MOST_NESTED):
        level = [inner for outer in level for inner in _nested_in(outer)]
    return not level


def _nested_in(outer: dict[str, Any] | list[Any]) -> list[Any]:
    values = outer.values() if isinstance(outer, dict) else outer
    return [value for value in values if isinstance(value, dict | list)]


# The status of a client
#
# A client serves its status on separate channels, so that the types of its messages and its
# requests do not matter. A request is a text, the kind of the wanted document. An answer is a list
# of this kind and the document. Nothing is counted for the status alone: an answer is made from the
# statistics when a request arrives.

VERSION: Final = 1
"""The version of the documents. A document may get new keys without a new version."""

STATUS_KIND: Final = "status"
METRICS_KIND: Final = "metrics"

MOST_OBSERVERS: Final = 16
"""The most channels of observers that a client keeps open."""

MOST_OF_PEER: Final = 4
"""The most of these channels of one peer: a page, its requests for metrics, and ``sphtp top``."""

LONGEST_IDLE: Final = 60.0
"""The most seconds from one request to the next, including the time to send the answer."""

MOST_CHANNELS: Final = 1024
"""The most channels in one document."""


OBSERVER_DATA: Final = {"watches": "cluster"}
"""The data of a client that only observes, for a page. Pages leave it out of their picture."""


class ChannelStatus(TypedDict):
    """The status of a channel at one side; times in seconds, counts since it opened."""

    peer: int
    service: str
    channel: int
    sent: int
    received: int
    lost: int
    resent: int
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    messages_received: int
    waiting: int
    unread: int
    rtt: float | None
    loss: float
    bandwidth: float | None
    window: int


class TimeSum(TypedDict):
    """The number of measured times, and their sum in seconds."""

    count: int
    seconds: float


class WaitStatus(TypedDict):
    """The number and the time of the exchanges in which the member ``name`` was the last one."""

    name: str
    count: int
    seconds: float


class StepsStatus(TypedDict):
    """The steps of a group in lock step, or of a simulation, at one member.

    ``steps`` are the times from step to step. ``exchanges`` are the parts of these times in which
    this member waited for others.
    """

    name: str
    step: int
    members: int
    steps: TimeSum
    exchanges: TimeSum
    waits: list[WaitStatus]


class ReceiverStatus(TypedDict):
    """A receiver of a source, and the number of datagrams that it is ``behind``."""

    peer: int
    behind: int


class SourceStatus(TypedDict):
    """The status of a source of a stream."""

    topics: list[str]
    messages_sent: int
    repairs_sent: int
    receivers: list[ReceiverStatus]


class TopicStatus(TypedDict):
    """A subscription: its messages delivered and lost, and the datagrams that are missing now."""

    peer: int
    topic: str
    delivered: int
    lost: int
    missing: int


class ClientStatus(TypedDict):
    """The status of a client at ``time``, which is in seconds of the client's own clock."""

    version: int
    time: float
    id: int
    name: str
    state: str
    servers: list[int]
    channels: list[ChannelStatus]
    sources: list[SourceStatus]
    subscriptions: list[TopicStatus]
    steps: list[StepsStatus]


def client_status(
    client: "Client", steps: "Mapping[str, StepStatistics[Any]] | None" = None
) -> ClientStatus:
    """Return the status of a client.

    ``steps`` are the statistics of steps that the program makes without a group, by a name for its
    work.
    """
    node, now = client.node, trio.current_time()
    dispatcher = node.streams.dispatcher
    groups = [one.group for one in client.admissions.values() if one.group is not None]
    return {
        "version": VERSION,
        "time": now,
        "id": client.id,
        "name": client.name,
        "state": client.state.value,
        "servers": sorted(client.servers),
        "channels": [
            _channel_status(connection, node.services.name_of(connection))
            for connection in islice(node.connections, MOST_CHANNELS)
        ],
        "sources": [_source_status(source, now) for source in dispatcher.sources],
        "subscriptions": [_topic_status(each) for each in dispatcher.subscriptions],
        "steps": [
            *(
                _steps_status(group.name, group.step, len(group.members), group.statistics)
                for group in groups
            ),
            *(
                _steps_status(name, sum(each.exchanges.counts), 0, each)
                for name, each in (steps or {}).items()
            ),
        ],
    }


_OF_CHANNEL: Final = (
    *("sent", "received", "resent", "bytes_sent", "bytes_received", "messages_sent"),
    *("messages_received", "waiting", "unread", "rtt", "loss", "bandwidth", "window"),
)


def _channel_status(connection: "Connection", service: str) -> ChannelStatus:
    statistics = connection.port.statistics()
    # Without the packets that arrived after they were declared lost.
    lost = statistics.lost - statistics.lost_in_appearance
    status: Any = {name: getattr(statistics, name) for name in _OF_CHANNEL}
    status |= {"peer": connection.peer_id, "service": service, "lost": max(lost, 0)}
    status["channel"] = connection.connection_id
    # A link has all bytes, whether they travel in packets or by shared memory.
    status["bytes_sent"] += statistics.shared_memory_bytes_sent
    status["bytes_received"] += statistics.shared_memory_bytes_received
    return status  # type: ignore[no-any-return]


def _source_status(source: "HostedSource", now: float) -> SourceStatus:
    statistics = source.source.statistics()
    return {
        "topics": list(source.topics),
        "messages_sent": statistics.messages_sent,
        "repairs_sent": statistics.repairs_sent,
        "receivers": [
            {"peer": receiver.peer_id, "behind": receiver.behind}
            for _, receiver in source.numbered_receivers(now)
        ],
    }


def _topic_status(subscription: "HostedSubscription") -> TopicStatus:
    statistics = subscription.subscription.statistics()
    return {
        "peer": subscription.channel.peer_id,
        "topic": subscription.topic,
        "delivered": statistics.delivery.delivered,
        "lost": statistics.delivery.lost,
        "missing": statistics.transport.pending,
    }


def _steps_status(
    name: str, step: int, members: int, statistics: "StepStatistics[Any]"
) -> StepsStatus:
    return {
        "name": name,
        "step": step,
        "members": members,
        "steps": _time_sum(statistics.steps),
        "exchanges": _time_sum(statistics.exchanges),
        "waits": [
            {"name": str(member), **_time_sum(times)} for member, times in statistics.waits.items()
        ],
    }


def _time_sum(times: "TimeHistogram") -> TimeSum:
    return {"count": sum(times.counts), "seconds": times.total}


STATUS_SCHEMA: Final = Schema(["sphtp.Status: version 1"])


def status_service(admit: Callable[[ServiceChannel], None]) -> Service:
    """Return the service over which clients request the status of a client."""
    return Service(STATUS_SCHEMA, admit, PLAIN, name="status")


def is_status_served(client: "Client") -> bool:
    """Return True if ``serve_status`` runs for a client."""
    return client.node.services.has(STATUS_SCHEMA)


async def serve_status(
    client: "Client",
    *,
    steps: "Mapping[str, StepStatistics[Any]] | None" = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Send the status and the metrics of a client to peers that request them, until cancelled.

    So the page and ``sphtp top`` at any member of the cluster show this client's channels, streams
    and steps. Without requests this costs nothing.

    Args:
        client: the client.
        steps: statistics of steps that the program makes without a group, by a name for its work.
        task_status: for ``await nursery.start(serve_status, client)``.

    Raises ``StateError`` if the client's status is served already. Raises ``SettingsError`` if a
    name in ``steps`` would give a metric the name of another one, as ``group`` would.
    """
    if steps:
        from sphtp.shell.metrics import check_steps

        check_steps(steps)
    if is_status_served(client):
        raise StateError("the status of this client is served already")
    # By peer, so that no peer uses up the channels of the others.
    open_channels = Counter[int]()

    async def keep(channel: ServiceChannel, peer_id: int) -> None:
        try:
            with suppress(*GONE):
                async with channel:
                    await answer(channel)
        finally:
            open_channels[peer_id] -= 1
            if not open_channels[peer_id]:
                del open_channels[peer_id]

    async def answer(channel: ServiceChannel) -> None:
        while True:
            with trio.move_on_after(LONGEST_IDLE):
                kind = await channel.receive()
                # ``==`` of an array would compare its items.
                if type(kind) is not str:
                    channel.abort("a request for a status is a text")
                    return
                try:
                    await channel.send([kind, make(kind)])
                except MessageTooLargeError:
                    # The peer has a low limit, or its request is too long. Only its channel ends.
                    channel.abort("the answer is larger than this channel takes")
                    return
                continue
            channel.abort("no request came on this channel for a minute")
            return

    def make(kind: Any) -> Any:
        if kind == STATUS_KIND:
            return client_status(client, steps)
        return _metrics_document(client, steps) if kind == METRICS_KIND else None

    def admit(channel: ServiceChannel) -> None:
        peer_id = channel.peer_id
        if open_channels.total() >= MOST_OBSERVERS or open_channels[peer_id] >= MOST_OF_PEER:
            channel.abort("too many channels for the status of this client are open")
        else:
            open_channels[peer_id] += 1
            nursery.start_soon(keep, channel, peer_id)

    async with trio.open_nursery() as nursery:
        services, service = client.node.services, status_service(admit)
        services.add(service)
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            services.remove(service)


def _metrics_document(
    client: "Client", steps: "Mapping[str, StepStatistics[Any]] | None"
) -> list[list[Any]]:
    from sphtp.shell.metrics import metric_rows

    return [*metric_rows([client], steps or {}), *process_rows()]


def process_rows() -> list[list[Any]]:
    """Return CPU time and, on Linux, memory of this process, by their usual names in Prometheus."""
    usage = getrusage(RUSAGE_SELF)
    rows = [["process_cpu_seconds_total", {}, usage.ru_utime + usage.ru_stime]]
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        resident = float(file.read().split()[1]) * getpagesize()
        rows.append(["process_resident_memory_bytes", {}, resident])
    return rows


# The answer of a client, as its reader takes it

MOST_ITEMS: Final = 2048
"""The most items of a list in the status that a peer sends."""


@untrusted
def read_client_status_untrusted(value: object) -> ClientStatus:
    """Return the status in the answer of a peer. Raises ``RemoteError`` if it is malformed."""
    return cast("ClientStatus", _read(ClientStatus, value))


@untrusted
def read_metrics_untrusted(value: object) -> list[list[Any]]:
    """Return the metrics in the answer of a peer. Raises ``RemoteError`` if they are malformed."""
    if not isinstance(value, list):
        raise WireError("the metrics of a peer are no list")
    rows = []
    for row in value:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[1], dict):
            raise WireError("a row of the metrics of a peer has other columns")
        name, labels, number = row
        named = {_read(str, key): _read(str, each) for key, each in labels.items()}
        rows.append([_read(str, name), named, _read(float, number)])
    return rows


MOST_AMOUNT: Final = 1e18
"""The largest number in a peer's answer that is no count or id. Sums and rates of such numbers stay
finite, as JSON requires."""


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    """Return a value of a type of the documents, without keys that the type does not have."""
    if is_typeddict(kind):
        if isinstance(value, dict):
            return {name: _read(each, value.get(name)) for name, each in _hints(kind).items()}
    elif get_origin(kind) is list:
        if isinstance(value, list) and len(value) <= MOST_ITEMS:
            return [_read(get_args(kind)[0], item) for item in value]
    elif isinstance(kind, UnionType):
        return None if value is None else _read(get_args(kind)[0], value)
    elif kind is str:
        if isinstance(value, str):
            return printable(value, 255)
    elif kind is int:
        if type(value) is int and 0 <= value < 1 << 64:
            return value
    elif type(value) in (int, float) and abs(value) <= MOST_AMOUNT:  # so it is no NaN either
        return float(value)
    raise WireError(f"the status of a peer has a wrong value: {value!r:.40}")
