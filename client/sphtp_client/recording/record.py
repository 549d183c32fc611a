"""The verb ``sphtp record``: record the messages of a cluster in a file."""

import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import click
import trio

import sphtp
from sphtp import Client
from sphtp.core.topics import TopicPattern, check_group, check_topic
from sphtp.errors import SettingsError, SphtpError
from sphtp.shell.group_watch import watch_group
from sphtp.shell.lifetime import running
from sphtp.shell.stream_admission import GONE
from sphtp.streams import TopicSourceFailed
from sphtp_client.connection import ConnectionOptions, ConnectionSettings
from sphtp_client.options import RECORD_OPTIONS, with_options
from sphtp_client.program import ExitStatus, run_until_stopped
from sphtp_client.recording.events import (
    MessagesLost,
    OriginFailed,
    OriginJoined,
    RecordingStarted,
    RecordingSummary,
    Show,
    complain,
    shown_as,
)
from sphtp_client.recording.recorder import (
    ABOUT,
    UNDECODED,
    LostMessages,
    RecordedGroup,
    RecordedOrigin,
    RecordedTopics,
    RecorderQueue,
    cluster_clock,
    peer_name,
    put_items,
    writing,
)
from sphtp_server.client_config import CONTEXT

ALL_TOPICS: Final = "**"
RETRY: Final = 1.0
"""Seconds from the end of a stream, or from a failed join, to the next attempt."""


class StreamPlace(NamedTuple):
    """The address of a source that belongs to no cluster, and one of its topics."""

    host: str
    port: int
    topic: str

    @classmethod
    def parse(cls, text: str) -> "StreamPlace":
        """Parse ``HOST:PORT/TOPIC``. Raises ``SettingsError`` if it is malformed."""
        address, slash, topic = text.partition("/")
        host, colon, port = address.rpartition(":")
        if not (slash and colon and host and port.isascii() and port.isdecimal()):
            raise SettingsError(f"--stream = {text!r}; allowed is HOST:PORT/TOPIC")
        return cls(host.removeprefix("[").removesuffix("]"), int(port), check_topic(topic))


@dataclass(frozen=True)
class RecordingPlan:
    """The topics, streams and groups to record, and the length in seconds; None for no limit."""

    topics: tuple[str, ...]
    streams: tuple[StreamPlace, ...]
    groups: tuple[str, ...] = ()
    late_join: bool = False
    seconds: float | None = None


class Recorder:
    """The recording of a plan in a file; ``show`` prints its events."""

    def __init__(self, plan: RecordingPlan, path: Path, file: BinaryIO, show: Show) -> None:
        self.queue = RecorderQueue(file, on_lost=self._show_lost)
        self._plan = plan
        self._path = path
        self._show = show
        self._shown = set[RecordedOrigin]()

    async def run(self, connection: ConnectionSettings) -> None:
        """Record until the time of the plan is over, or until cancelled.

        Raises ``OSError`` if the file cannot be written, and as ``open_client``.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(writing(self.queue))
            client = await stack.enter_async_context(
                connection.open(None, name="recorder", messages=UNDECODED)
            )
            for pattern in self._plan.topics:
                topics = RecordedTopics(client, pattern, self.queue, late_join=self._plan.late_join)
                await stack.enter_async_context(running(topics.run))
                await stack.enter_async_context(running(partial(self._show_failures, topics)))
            for place in self._plan.streams:
                work = partial(self._follow, cluster_clock(client), place)
                await stack.enter_async_context(running(work))
            for group in self._plan.groups:
                recorded = RecordedGroup(group, self.queue, cluster_clock(client))
                work = partial(watch_group, client, group, recorded.take)
                await stack.enter_async_context(running(work))
            await stack.enter_async_context(running(self._look))
            self._begin(client)
            with trio.move_on_after(self._plan.seconds or float("inf")):
                await trio.sleep_forever()

    def summary(self) -> RecordingSummary:
        """Return the figures of the recording."""
        queue = self.queue
        return RecordingSummary(
            file=str(self._path),
            messages=queue.messages,
            bytes=queue.size,
            lost=dict(queue.lost),
            undecodable=queue.undecodable,
        )

    def _begin(self, client: Client) -> None:
        about = {
            "version": "1",
            "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "cluster_time": str(cluster_clock(client)()),
        }
        self.queue.note(ABOUT, about)
        self._show(RecordingStarted(file=str(self._path), id=client.id))

    async def _look(self) -> None:
        """Show each new origin. Raises ``OSError`` when the file cannot be written."""
        while self.queue.error is None:
            for origin in self.queue.origins - self._shown:
                self._shown.add(origin)
                self._show(OriginJoined(kind=origin.kind, name=origin.name, peer=origin.peer))
            await trio.sleep(0.1)
        raise self.queue.error

    def _show_lost(self, lost: LostMessages) -> None:
        self._show(
            MessagesLost(
                kind=lost.origin.kind,
                name=lost.origin.name,
                peer=lost.origin.peer,
                first=lost.first,
                last=lost.last,
                count=lost.amount,
                reason=lost.reason,
            )
        )

    async def _show_failures(self, topics: RecordedTopics) -> None:
        async for event in topics.events():
            if isinstance(event, TopicSourceFailed):
                peer = peer_name(event.peer.name, event.peer.id)
                self._show(OriginFailed(kind="topic", name=event.topic, peer=peer, why=event.why))

    async def _follow(self, clock: Any, place: StreamPlace) -> None:
        """Record a stream at an address, and join it again whenever it has ended."""
        host, port, topic = place
        failure = ""
        config = sphtp.Config(messages=UNDECODED)
        async with sphtp.open_node("::" if ":" in host else "0.0.0.0", config=config) as node:  # noqa: S104 # it dials, and admits nobody
            while True:
                try:
                    async with node.subscribe(
                        host, port, topic, late_join=self._plan.late_join, numbered=True
                    ) as stream:
                        failure = ""
                        origin = RecordedOrigin(
                            "stream", topic, f"{host}:{port}", 0, stream.session
                        )
                        while True:
                            items = await stream.receive_many()
                            put_items(self.queue, origin, clock(), items)
                except (SphtpError, OSError) as error:
                    if (why := str(error)) != failure:
                        failure, peer = why, f"{host}:{port}"
                        self._show(OriginFailed(kind="stream", name=topic, peer=peer, why=why))
                except GONE:
                    pass  # it has ended, or was cut off
                await trio.sleep(RETRY)


@dataclass(frozen=True, kw_only=True)
class RecordOptions(ConnectionOptions):
    """The options of ``sphtp record``, from the command line, the environment and the file."""

    file: Path
    topic: tuple[str, ...]
    stream: tuple[str, ...]
    group: tuple[str, ...]
    late_join: bool
    seconds: float | None
    force: bool
    json: bool

    def plan(self) -> RecordingPlan:
        """Return the plan for these values. Raises ``SettingsError`` if one is malformed."""
        streams = tuple(map(StreamPlace.parse, self.stream))
        topics = self.topic or (() if streams or self.group else (ALL_TOPICS,))
        for pattern in topics:
            TopicPattern(pattern)
        groups = tuple(map(check_group, self.group))
        return RecordingPlan(topics, streams, groups, self.late_join, self.seconds)


@click.command(short_help="Record the messages of a cluster.", context_settings=CONTEXT)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@with_options(RECORD_OPTIONS)
def record(**values: Any) -> None:
    """Record the messages of a cluster in FILE, in MCAP, until Ctrl-C.

    Foxglove and PlotJuggler open the file, and `sphtp replay` publishes its messages again. Without
    --topic, --stream and --group, the command records all topics of all clients. The sources do not
    wait for the disk. Messages that the command cannot write in time are missing in FILE; it
    reports them.

    It writes to FILE once a second, so that a kill loses at most the last second, unless the disk
    is too slow.

    Exit codes: 0 --seconds are over, 2 usage or configuration, or FILE exists or cannot be opened,
    3 no server replied, or FILE could not be written to the end, 130 after Ctrl-C, 143 after
    SIGTERM; after both signals FILE is complete.
    """
    options = RecordOptions(**values)
    try:
        status = _record(options)
    except (SphtpError, OSError) as error:
        complain(error, json=options.json)
        status = ExitStatus.USAGE if isinstance(error, SettingsError) else ExitStatus.FAILED
    sys.exit(status.code)


def _record(options: RecordOptions) -> ExitStatus:
    plan, connection = options.plan(), options.connection()
    show = shown_as(json=options.json)
    with _opened(options.file, is_replaced=options.force) as file:
        recorder = Recorder(plan, options.file, file, show)
        stopped = trio.run(run_until_stopped, partial(recorder.run, connection))
        if recorder.queue.error is not None:
            raise recorder.queue.error
    show(recorder.summary())
    return stopped or ExitStatus.FINISHED


@contextmanager
def _opened(path: Path, *, is_replaced: bool) -> Iterator[BinaryIO]:
    try:
        file = path.open("wb" if is_replaced else "xb")
    except FileExistsError:
        raise SettingsError(f"{path} exists; --force replaces it") from None
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    with file:
        yield file
