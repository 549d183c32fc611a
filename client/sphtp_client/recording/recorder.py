"""The recorder: a client that subscribes to topics, and a thread that writes their messages.

Theory of operation. A source waits for its slowest receiver, so a slow recorder would slow down the
programs that it records. Therefore the client takes messages as they arrive, undecoded, in batches,
and puts them in a queue. A thread decodes them, writes them as JSON, and waits for the disk. The
queue is bounded in bytes. When it is full, further messages are dropped. The recorder counts and
reports dropped messages and those that a stream has lost, and writes a record of each loss to the
file, if the queue has room for it. The thread finishes a chunk every second. So a kill loses the
last second at most, and what waited in the queue for a slow disk.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, cast

import trio

from sphtp import Client, Loss, StreamMessage
from sphtp.core.packing import MALFORMED, unpack, unpack_many
from sphtp.core.topics import TopicPattern
from sphtp.errors import StateError
from sphtp.messages import MessageCodec
from sphtp.shell.group_watch import (
    ContributionsSkipped,
    MemberContribution,
    NeighboursOnly,
    StepMembers,
    Watched,
    WatchedMember,
)
from sphtp.shell.lifetime import running
from sphtp.shell.topics import TopicSource, TopicSubscription
from sphtp_client.recording.mcap_file import NANOSECONDS, RecordingWriter
from sphtp_client.recording.values import encode_message, message_tree, schema_of

CHUNK_SECONDS: Final = 1.0
"""Seconds from the first message of a chunk to its end, if it is not full before."""

MOST_QUEUED: Final = 64 << 20
"""The most bytes of messages that wait for the disk."""

MOST_KNOWN: Final = 1024
"""The most changes of members that are remembered, so that each is written once."""

NOTE: Final = 512
"""The bytes for which a record of metadata counts in the queue."""

MOST_CHANNELS: Final = 65_535
"""The most channels of a file in MCAP."""

OVERHEAD: Final = 64
"""The bytes for which a message counts in the queue in addition to its payload."""

ABOUT: Final = "sphtp.recording"
LOST: Final = "sphtp.lost"
MEMBERS: Final = "sphtp.members"
NEIGHBOURS: Final = "sphtp.neighbours"
"""The names of the records of metadata."""


class RecordedOrigin(NamedTuple):
    """The sender of a message: the source of a topic, or a member of a group."""

    kind: str
    name: str
    peer: str
    peer_id: int
    session: int

    @property
    def topic(self) -> str:
        """The topic in the recording."""
        return f"{self.name}/{self.peer}"

    def properties(self) -> dict[str, str]:
        """Return the fields as text, for the metadata of a channel in the file."""
        return {name: str(value) for name, value in self._asdict().items()}


def peer_name(name: str, number: int) -> str:
    """Return the name of a peer; its id if it has none."""
    return name or f"{number:#010x}"


class LostMessages(NamedTuple):
    """Messages that are missing in the recording: their numbers, their count and the reason."""

    origin: RecordedOrigin
    first: int
    last: int
    amount: int
    reason: str


class _QueuedBatch(NamedTuple):
    """Undecoded messages of one origin that arrived together."""

    origin: RecordedOrigin
    time: int
    numbers: Sequence[int]
    payloads: Sequence[bytes]
    size: int


class _Note(NamedTuple):
    """A record of metadata."""

    name: str
    properties: Mapping[str, str]


class RecorderQueue:
    """The queue from the client to the thread that writes; the thread runs ``write``.

    ``most_queued`` is its limit in bytes. ``on_lost`` is called at each loss of a stream, and while
    the queue is full at the first dropped messages of each source.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        most_queued: int = MOST_QUEUED,
        on_lost: Callable[[LostMessages], None] = lambda _: None,
    ) -> None:
        self.error: OSError | None = None
        """The error that ended the writing early; None if there was none."""
        self.lost: Counter[str] = Counter()
        """The number of messages missing in the recording, for each reason."""
        self.undecodable = 0
        self.origins: set[RecordedOrigin] = set()
        self._writer = RecordingWriter(file)
        self._most_queued = most_queued
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._waiting = deque[_QueuedBatch | _Note]()
        self._queued = 0
        self._is_closed = False
        # What was dropped since the queue was full, and is not in the recording yet.
        self._dropped: dict[RecordedOrigin, LostMessages] = {}
        self._ids: dict[RecordedOrigin, int] = {}

    @property
    def messages(self) -> int:
        """The number of messages in the recording."""
        return self._writer.messages

    @property
    def size(self) -> int:
        """The size of the recording, in bytes."""
        return self._writer.size

    # The client's side: no method waits for the disk.

    def put(
        self, origin: RecordedOrigin, now: int, numbers: Sequence[int], payloads: Sequence[bytes]
    ) -> None:
        """Queue messages, or drop them if the queue is full or the writing has failed."""
        size = sum(map(len, payloads)) + OVERHEAD * len(payloads)
        self.origins.add(origin)
        with self._changed:
            if self.error is not None or self._queued + size > self._most_queued:
                is_first = origin not in self._dropped
                self._drop(origin, numbers)
            else:
                is_first = False
                self._note_dropped()
                self._waiting.append(_QueuedBatch(origin, now, numbers, payloads, size))
                self._queued += size
                self._changed.notify()
        if is_first:
            self._on_lost(self._dropped[origin])

    def lose(self, origin: RecordedOrigin, first: int, last: int, reason: str) -> None:
        """Queue a record of messages that were lost before they reached the recorder."""
        count = last - first + 1
        lost = LostMessages(origin, first, last, count, reason)
        self.lost[reason] += count
        self.note(LOST, _properties_of(lost))
        self._on_lost(lost)

    def note(self, name: str, properties: Mapping[str, str]) -> None:
        """Queue a record of metadata, if there is room for it and the writing has not failed."""
        with self._changed:
            if self.error is None and self._queued + NOTE <= self._most_queued:
                self._waiting.append(_Note(name, properties))
                self._queued += NOTE
                self._changed.notify()

    def close(self) -> None:
        """Close the queue: the thread writes the rest, and ends."""
        with self._changed:
            self._note_dropped()
            self._is_closed = True
            self._changed.notify()

    def _drop(self, origin: RecordedOrigin, numbers: Sequence[int]) -> None:
        reason = "the recorder was too slow" if self.error is None else "nothing can be written"
        self.lost[reason] += len(numbers)
        known = self._dropped.get(origin)
        first = numbers[0] if known is None else known.first
        count = len(numbers) + (0 if known is None else known.amount)
        self._dropped[origin] = LostMessages(origin, first, numbers[-1], count, reason)

    def _note_dropped(self) -> None:
        for lost in self._dropped.values():
            self._waiting.append(_Note(LOST, _properties_of(lost)))
            self._queued += NOTE
        self._dropped.clear()

    # The thread's side

    def write(self) -> None:
        """Write from the queue until it is closed and empty. Stores an ``OSError`` in ``error``."""
        try:
            self._write_all()
            self._writer.close()
        except OSError as error:
            with self._changed:
                self.error = error
                self._waiting.clear()

    def _write_all(self) -> None:
        due: float | None = None
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    if not self._changed.wait(None if due is None else due - time.monotonic()):
                        break
                batch = self._waiting.popleft() if self._waiting else None
                if batch is not None:
                    self._queued -= batch.size if isinstance(batch, _QueuedBatch) else NOTE
                is_over = self._is_closed and batch is None
            if isinstance(batch, _QueuedBatch):
                self._write_batch(batch)
            elif batch is not None:
                self._writer.add_metadata(*batch)
            if due is not None and time.monotonic() >= due:
                self._writer.finish_chunk()
            if not self._writer.pending:
                due = None
            elif due is None:
                due = time.monotonic() + CHUNK_SECONDS
            if is_over:
                return

    def _write_batch(self, batch: _QueuedBatch) -> None:
        values = unpack_many(batch.payloads)
        if values is None:
            values = [_unpack(payload) for payload in batch.payloads]
        for number, value in zip(batch.numbers, values, strict=True):
            try:
                data = encode_message(value)
            except (TypeError, ValueError, RecursionError):
                self.undecodable += 1
                continue
            channel = self._ids.get(batch.origin)
            if channel is None and len(self._ids) == MOST_CHANNELS:
                self.lost["the file has no room for another source"] += 1
                continue
            if channel is None:
                schema = schema_of(message_tree(value))
                channel = self._writer.add_channel(
                    batch.origin.topic, schema, batch.origin.properties()
                )
                self._ids[batch.origin] = channel
            self._writer.add_message(channel, number, batch.time, data)


def _properties_of(lost: LostMessages) -> dict[str, str]:
    origin, first, last, amount, reason = lost
    numbers = {"first": str(first), "last": str(last), "count": str(amount), "reason": reason}
    return {**origin.properties(), **numbers}


def _unpack(payload: bytes) -> Any:
    """Return the value of a payload; for a malformed one an object that has no JSON form."""
    try:
        return unpack(payload)
    except MALFORMED:
        return object()


class _Undecoded:
    """A codec that leaves messages as they are."""

    compression = None

    @staticmethod
    def describe() -> Sequence[str]:
        return ()

    @staticmethod
    def decode_many_untrusted(payloads: Sequence[bytes]) -> list[Any]:
        return list(payloads)

    @staticmethod
    def encode(value: Any, *, compress: bool | None = None) -> bytes:
        raise NotImplementedError

    encode_many = encode


UNDECODED: Final = cast("MessageCodec", _Undecoded())
"""The codec for ``Config.messages`` of a node that only receives, and does not decode."""


class RecordedTopics(TopicSubscription[Any]):
    """A subscription to a pattern that passes all items to a recorder at once."""

    def __init__(
        self, client: Client, pattern: str, queue: RecorderQueue, *, late_join: bool | int
    ) -> None:
        super().__init__(
            self._attach,
            TopicPattern(pattern),
            client.peers,
            client.events,
            lambda peer, topic, **begin: client.subscribe_to(peer, topic, numbered=True, **begin),
            late_join,
        )
        self._queue = queue
        self._clock = cluster_clock(client)

    def _attach(self, run: Callable[[], Awaitable[None]]) -> None:
        self.run = run

    async def _hand_on(
        self,
        source: TopicSource,
        peer: Any,
        followed: Any,
        items: Sequence[StreamMessage[Any] | Loss],
    ) -> None:
        name = peer_name(peer.name, peer.id)
        origin = RecordedOrigin("topic", source.topic, name, peer.id, followed.session)
        put_items(self._queue, origin, self._clock(), items)
        last = items[-1]
        followed.last = last.last if isinstance(last, Loss) else last.number
        await trio.lowlevel.checkpoint()


class RecordedGroup:
    """The receiver of the events that the members of a group send to a watcher."""

    def __init__(self, group: str, queue: RecorderQueue, clock: Callable[[], int]) -> None:
        self._group = group
        self._queue = queue
        self._clock = clock
        # All members report the same changes; each is written once.
        self._known: set[StepMembers] = set()

    def take(self, event: Watched) -> None:
        """Queue an event, without waiting."""
        match event:
            case MemberContribution(member, step, payload):
                self._queue.put(self._origin(member), self._clock(), [step], [payload])
            case ContributionsSkipped(member, first, last):
                self._queue.lose(self._origin(member), first, last, "the recorder was too slow")
            case StepMembers(step, members) if event not in self._known:
                if len(self._known) == MOST_KNOWN:
                    self._known.clear()
                self._known.add(event)
                about = {"step": str(step), "members": json.dumps(members)}
                self._queue.note(MEMBERS, {"group": self._group, **about})
            case NeighboursOnly(_, step):
                self._queue.note(NEIGHBOURS, {"group": self._group, "step": str(step)})

    def _origin(self, member: WatchedMember) -> RecordedOrigin:
        name = peer_name(member.name, member.id)
        return RecordedOrigin("group", self._group, name, member.id, member.incarnation)


def put_items(
    queue: RecorderQueue,
    origin: RecordedOrigin,
    now: int,
    items: Sequence[StreamMessage[Any] | Loss],
) -> None:
    """Queue the items of a stream: runs of messages, and single losses."""
    numbers, payloads = list[int](), list[bytes]()
    for item in items:
        if not isinstance(item, Loss):
            numbers.append(item.number)
            payloads.append(item.value)
            continue
        if numbers:
            queue.put(origin, now, numbers, payloads)
            numbers, payloads = [], []
        queue.lose(origin, item.first, item.last, item.reason.value)
    if numbers:
        queue.put(origin, now, numbers, payloads)


def cluster_clock(client: Client) -> Callable[[], int]:
    """Return a function that returns the cluster's time in nanoseconds.

    Until a server has sent the time, its time begins at zero with the first call.
    """
    start: list[int] = []

    def now() -> int:
        try:
            return round(client.clock.now() * NANOSECONDS)
        except StateError:
            if not start:
                start.append(time.monotonic_ns())
            return time.monotonic_ns() - start[0]

    return now


@asynccontextmanager
async def writing(queue: RecorderQueue) -> AsyncIterator[None]:
    """Run the thread that writes for the length of the block, and let it empty the queue."""
    # A cancellation does not reach the thread: it ends when the queue is closed and empty.
    async with running(partial(trio.to_thread.run_sync, queue.write)):
        try:
            yield
        finally:
            queue.close()
