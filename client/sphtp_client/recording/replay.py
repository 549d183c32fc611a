"""The verb ``sphtp replay``: publish the messages of a recording again.

For each peer in the recording, the replay opens a client with the peer's name, which publishes the
peer's topics. So a subscriber receives the recorded messages from peers with the recorded names.
"""

import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import click
import trio

from sphtp import Client, Source
from sphtp.core.topics import LONGEST_NAME, TopicPattern
from sphtp.errors import SettingsError, SphtpError
from sphtp_client.connection import ConnectionOptions, ConnectionSettings
from sphtp_client.options import REPLAY_OPTIONS, with_options
from sphtp_client.program import ExitStatus, run_until_stopped
from sphtp_client.recording.events import (
    RecordingCut,
    ReplayStarted,
    ReplaySummary,
    Show,
    StepsSummary,
    complain,
    shown_as,
)
from sphtp_client.recording.mcap_file import (
    NANOSECONDS,
    RecordedChannel,
    RecordedMessage,
    Recording,
    read_recording,
)
from sphtp_client.recording.schedule import Schedule
from sphtp_client.recording.steps import RecordedSteps, replay_steps
from sphtp_client.recording.values import RecordingError
from sphtp_server.client_config import CONTEXT

Send = Callable[[RecordedChannel, Any], Awaitable[object]]
Open = Callable[..., AbstractAsyncContextManager[Client]]


class Place(NamedTuple):
    """A source of the replay: the name of its peer, and its topic."""

    peer: str
    topic: str


def place_of(channel: RecordedChannel) -> Place:
    """Return the source that sends the messages of a channel of the recording."""
    return Place(channel.peer, channel.name)


def selected(
    channels: Iterable[RecordedChannel], patterns: Iterable[str]
) -> dict[int, RecordedChannel]:
    """Return the channels, by id, whose topics a pattern selects; without patterns, of all topics.

    Groups are left out.
    """
    wanted = [TopicPattern(pattern) for pattern in patterns]
    return {
        channel.id: channel
        for channel in channels
        if channel.kind != "group"
        and (not wanted or any(pattern.matches(channel.name) for pattern in wanted))
    }


def span(recording: Recording, first: float, last: float | None) -> tuple[int, int]:
    """Return begin and end of a part of a recording, in nanoseconds of the cluster's time.

    ``first`` and ``last`` are in seconds from the beginning of the recording. If ``last`` is None,
    the part ends with the recording.
    """
    begin = recording.begin + round(first * NANOSECONDS)
    end = recording.end if last is None else recording.begin + round(last * NANOSECONDS)
    return begin, min(end, max(recording.end, begin))


class Player:
    """The sender of the messages of a recording, each at the time when it is due."""

    def __init__(
        self, recording: Recording, channels: Mapping[int, RecordedChannel], schedule: Schedule
    ) -> None:
        self.sent = 0
        self.laps = 0
        self.unreadable = 0
        self.latest = 0.0
        """The longest delay of a message behind its schedule, in seconds."""
        self._recording = recording
        self._channels = channels
        self._schedule = schedule

    async def play(self, send: Send, laps: int | None = 1) -> None:
        """Send the messages ``laps`` times; with None, until cancelled.

        Returns early after a lap in which no message was sent.
        """
        start = trio.current_time()
        for lap in range(laps) if laps is not None else count():
            known = self.sent
            for at, message in self._schedule.lap(lap, self._messages()):
                late = trio.current_time() - (start + at)
                if late < 0:
                    await trio.sleep_until(start + at)
                elif self._schedule.speed is not None:
                    self.latest = max(self.latest, late)
                await self._send(send, message)
            self.laps += 1
            if self.sent == known:
                return

    async def _send(self, send: Send, message: RecordedMessage) -> None:
        try:
            value = message.value()
        except RecordingError:
            self.unreadable += 1
            await trio.lowlevel.checkpoint()
            return
        await send(message.channel, value)
        self.sent += 1

    def _messages(self) -> Iterator[RecordedMessage]:
        messages = self._recording.messages(self._schedule.begin, self._schedule.end)
        return (message for message in messages if message.channel.id in self._channels)


async def replay_topics(
    player: Player,
    channels: Iterable[RecordedChannel],
    connect: Open,
    *,
    laps: int | None,
    gather: float,
    begun: Callable[[], None] = lambda: None,
) -> None:
    """Open a client and a source for each peer, wait for receivers, and play the recording.

    The wait ends when each source has a receiver, after ``gather`` seconds at the latest. Then
    ``begun`` is called.
    """
    topics = defaultdict[str, list[str]](list)
    for peer, topic in sorted({place_of(channel) for channel in channels}):
        topics[peer].append(topic)
    sources: dict[Place, Source] = {}

    async def keep(
        peer: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(None, name=_name(peer)))
            source = await stack.enter_async_context(client.publish(*topics[peer]))
            sources.update({Place(peer, topic): source for topic in topics[peer]})
            task_status.started()
            await done.wait()

    async def send(channel: RecordedChannel, value: Any) -> None:
        await sources[place_of(channel)].send(value, topic=channel.name)

    done = trio.Event()
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as opening:
            for peer in topics:
                opening.start_soon(nursery.start, keep, peer)
        with trio.move_on_after(gather):
            async with trio.open_nursery() as waiting:
                for source in set(sources.values()):
                    waiting.start_soon(source.wait_for_receivers)
        begun()
        await player.play(send, laps)
        done.set()


def _name(peer: str) -> str:
    """Return the name of the client for a peer of a recording; empty if it has no allowed name."""
    is_name = not peer.startswith("0x") and len(peer) <= LONGEST_NAME and peer.isprintable()
    return peer if is_name else ""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(ConnectionOptions):
    """The options of ``sphtp replay``, from the command line, the environment and the file."""

    file: Path
    topic: tuple[str, ...]
    speed: float | None
    begin: float
    end: float | None
    loop: int
    gather: float
    group: str | None
    changed: str | None
    on_death: str
    json: bool


@click.command(short_help="Publish the messages of a recording again.", context_settings=CONTEXT)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@with_options(REPLAY_OPTIONS)
def replay(**values: Any) -> None:
    """Publish the messages of the recording FILE again, with the recorded intervals.

    The replay opens a client for each recorded peer, with the same name and the same topics.
    If FILE is cut off, the replay ends at the last complete record, and reports that.

    With --group and --changed, the replay tests a new version of one program against a recorded
    run in lock step. Start that program as usual, with the name of the member --changed. The replay
    joins the group in place of all other members, and contributes their recorded values. At each
    step it compares the contribution of the program with the recorded contribution of the member,
    and prints the steps that differ.

    Exit codes: 0 the messages were sent or no step differs, 1 a step differs, 2 usage or
    configuration, 3 no server replied, or FILE cannot be read, 130 after Ctrl-C, 143 after SIGTERM.
    """
    options = ReplayOptions(begin=values.pop("from"), end=values.pop("to"), **values)
    try:
        status = _replay(options, shown_as(json=options.json))
    except* (SphtpError, OSError) as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        complain(error, json=options.json)
        status = ExitStatus.USAGE if isinstance(error, SettingsError) else ExitStatus.FAILED
    sys.exit(status.code)


def _replay(options: ReplayOptions, show: Show) -> ExitStatus:
    connection = options.connection()
    recording = read_recording(options.file)
    if recording.cut is not None:
        show(RecordingCut(text_of_cut=recording.cut))
    if options.group is not None or options.changed is not None:
        return _replay_steps(options, connection, recording, show)
    channels = selected(recording.channels.values(), options.topic)
    begin, end = span(recording, options.begin, options.end)
    schedule = Schedule(begin=begin, end=end, speed=options.speed)
    player = Player(recording, channels, schedule)
    laps = options.loop or None

    def begun() -> None:
        topics = sorted({channel.name for channel in channels.values()})
        show(ReplayStarted(file=str(options.file), topics=topics, seconds=schedule.seconds))

    work = partial(
        replay_topics,
        player,
        channels.values(),
        connection.open,
        laps=laps,
        gather=options.gather,
        begun=begun,
    )
    known = recording.cut
    stopped = trio.run(run_until_stopped, work)
    if recording.cut is not None and recording.cut != known:
        show(RecordingCut(text_of_cut=recording.cut))
    show(
        ReplaySummary(
            messages=player.sent,
            laps=player.laps,
            unreadable=player.unreadable,
            latest=player.latest,
        )
    )
    return stopped or ExitStatus.FINISHED


def _replay_steps(
    options: ReplayOptions, connection: ConnectionSettings, recording: Recording, show: Show
) -> ExitStatus:
    if options.group is None or options.changed is None:
        raise SettingsError("--group and --changed belong together")
    steps = RecordedSteps(recording, options.group)
    summaries = list[StepsSummary]()

    async def work() -> None:
        assert options.group is not None
        assert options.changed is not None
        summary = await replay_steps(
            steps,
            options.group,
            options.changed,
            connection.open,
            show,
            file=str(options.file),
            on_death=options.on_death,
        )
        summaries.append(summary)
        show(summary)

    stopped = trio.run(run_until_stopped, work)
    if stopped is not None:
        return stopped
    (summary,) = summaries
    return ExitStatus.FINISHED if summary.equal == summary.steps else ExitStatus.MISMATCH
