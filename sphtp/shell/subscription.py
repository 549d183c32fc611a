"""A subscription: its terms, the join of a stream, and the public class for its reader."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

import trio

from sphtp.core.entropy import Secrets
from sphtp.core.packing import READ_BYTES
from sphtp.core.stream.events import Batch, EndReason, Item, Loss, StreamEnd
from sphtp.core.stream.membership import Closing, Join, JoinRefused, StreamKey, Welcome
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.subscription import ALL_HISTORY, SubscriptionStatistics
from sphtp.errors import (
    RefusedError,
    RemoteError,
    SettingsError,
    SphtpError,
    UnreachableError,
)
from sphtp.shell.channel import Channel
from sphtp.shell.encoding import Encoding, check_limit
from sphtp.shell.hosted_streams import HostedSubscription
from sphtp.shell.lifetime import running
from sphtp.shell.stream_admission import GONE, receive_message_untrusted, send_message
from sphtp.shell.stream_dispatcher import StreamDispatcher
from sphtp.shell.stream_history import fetch
from sphtp.shell.udp import MulticastGroup, UdpSocket, open_receiver

if TYPE_CHECKING:
    # A class without its parameter carries anything: PEP 696, which Python has from 3.13 on.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a subscription. Raises ``SettingsError``, which names the wrong value."""

    late_join: bool | int = False
    """True to get all earlier messages that the source retains, or the number of them to get."""
    after: int | None = None
    """The number of a message: every later message is delivered, or its loss is reported.

    It is for a receiver that joins a source again, and it replaces ``late_join``.
    """
    settings: StreamSettings = field(default_factory=StreamSettings)
    """Timers and limits of this receiver."""

    def __post_init__(self) -> None:
        if self.after is not None and (self.late_join or self.after < -1):
            wrong = f"after is {self.after} and late_join {self.late_join}"
            raise SettingsError(f"{wrong}; allowed is one of them, and after -1 or more")
        if self.late_join < 0:
            raise SettingsError(f"late_join is {self.late_join}; allowed is 0 or more, or a bool")

    @property
    def wanted(self) -> int:
        """The most messages from before this side joined that it requests."""
        if isinstance(self.late_join, bool):
            return ALL_HISTORY if self.late_join else 0
        return self.late_join


AHEAD: Final = 64
"""The messages that are decoded together for a program that receives them one by one."""


class StreamMessage(NamedTuple, Generic[T]):
    """A message with its number, which the source's ``send`` has returned."""

    number: int
    value: T


class Subscription(trio.abc.ReceiveChannel[T | Loss]):
    """The messages of another node's source on one topic: each once, or a ``Loss`` in its place.

    ``async for item in subscription`` yields messages. In place of lost messages it yields a
    ``Loss`` with their range and the reason; messages that cannot be decoded are only counted, in
    ``undecodable``. The iteration ends when the source has closed. It raises
    ``trio.BrokenResourceError`` if the source vanished or was started again; ``ended`` has the
    reason. Made by ``Client.subscribe_to`` and ``Node.subscribe``.

    Type checkers take the type of messages from an annotation: ``subscription: Subscription[Step]``
    yields ``Step | Loss``, and a numbered one is a ``Subscription[StreamMessage[Step]]``.
    """

    def __init__(
        self,
        topic: str,
        hosted: HostedSubscription,
        encoding: Encoding,
        *,
        is_numbered: bool = False,
    ) -> None:
        self._topic = topic
        self._hosted = hosted
        self._encoding = encoding
        # The decoded items; the payloads of the present batch that are not decoded; and the item
        # behind the batch, if it was polled.
        self._items = deque[T | Loss]()
        self._batch: Iterator[bytes] = iter(())
        self._item: Item | None = None
        # The numbers of messages that were taken and not decoded yet, and that of the next one.
        self._numbers = list[int]() if is_numbered else None
        self._next = 0
        # The bytes and the number of the decoded items when they were last counted, and the bytes
        # of the payloads that are not decoded.
        self._decoded_bytes = self._decoded_items = self._batch_bytes = 0
        hosted.count_unread = self._count_unread
        self._ended: StreamEnd | None = None
        self._is_closed = False
        self._undecodable = 0

    @property
    def topic(self) -> str:
        """The topic of the subscription."""
        return self._topic

    @property
    def session(self) -> int:
        """The id of the source's session. A source that is started again has another session."""
        return self._hosted.session

    @property
    def ended(self) -> StreamEnd | None:
        """The end of the stream; None until the program has received all items before it."""
        return None if self._items else self._ended

    @property
    def undecodable(self) -> int:
        """The number of messages that were dropped because they cannot be decoded."""
        return self._undecodable

    def statistics(self) -> SubscriptionStatistics:
        """Return the statistics of this subscription since it joined."""
        return self._hosted.subscription.statistics()

    async def receive(self) -> T | Loss:
        """Wait for the next message or ``Loss``.

        Raises:
            trio.EndOfChannel: the source has closed, and all items were received.
            trio.BrokenResourceError: the source vanished or was started again, and all known items
                were received; ``ended`` and the error have the reason.
            trio.ClosedResourceError: this subscription was closed.
        """
        return (await self.receive_many(1))[0]

    async def receive_many(self, limit: int = 4096) -> list[T | Loss]:
        """Wait for items, and return at least one and at most ``limit`` of those that have arrived.

        Raises as ``receive``, and ``LocalError`` if ``limit`` is less than 1.
        """
        check_limit(limit)
        await trio.lowlevel.checkpoint()
        self._check_open()
        while not (items := self._take(limit)):
            self._check_going_on()
            await self._hosted.changed.park()
            self._check_open()
        return items

    def receive_nowait(self) -> T | Loss:
        """Take the next message or ``Loss``.

        Raises as ``receive``, and ``trio.WouldBlock`` if there is none now.
        """
        self._check_open()
        if items := self._take(1):
            return items[0]
        self._check_going_on()
        raise trio.WouldBlock

    async def aclose(self) -> None:
        """Stop receiving. Tasks in ``receive`` get ``trio.ClosedResourceError``.

        The end of the block in which the subscription was opened leaves the stream.
        """
        self._is_closed = True
        self._hosted.changed.unpark_all()
        await trio.lowlevel.checkpoint()

    def _take(self, limit: int) -> list[T | Loss]:
        """Take up to ``limit`` items that have arrived."""
        items = self._items
        if len(items) < limit:
            self._fill(limit if items else max(limit, AHEAD))
        if len(items) > limit:
            return [items.popleft() for _ in range(limit)]
        taken = list(items)
        items.clear()
        return taken

    def _fill(self, most: int) -> None:
        """Take items that have arrived and decode them, those of several datagrams together."""
        items, most = self._items, min(most, self._encoding.most_at_once)
        had, size, unread = len(items), 0, self._count_decoded()
        while len(items) < most and size < READ_BYTES:
            if payloads := self._take_payloads(most - len(items)):
                size += sum(map(len, payloads))
                items.extend(self._decode(payloads))
            elif isinstance(self._item, Loss):
                items.append(self._item)
                self._item = None
            else:
                if type(self._item) is StreamEnd:
                    self._ended = self._item
                break
        self._decoded_bytes, self._decoded_items = unread + size, len(items)
        if len(items) > had and self._hosted.subscription.handle_read(trio.current_time()):
            self._hosted.touch()

    def _take_payloads(self, most: int) -> list[bytes]:
        """Take payloads up to the next item that is not a message."""
        poll_item = self._hosted.subscription.poll_item
        payloads = list(islice(self._batch, most))
        self._count(len(payloads))
        size = sum(map(len, payloads))
        self._batch_bytes -= size
        while len(payloads) < most and size < READ_BYTES:
            if self._item is None:
                self._item = poll_item()
            if type(self._item) is not Batch:
                break
            had, self._next = len(payloads), self._item.first
            batch, self._item = self._item.payloads, None
            self._batch = iter(batch)
            more = list(islice(self._batch, most - had))
            self._count(len(more))
            taken = sum(map(len, more))
            size += taken
            payloads += more
            self._batch_bytes = sum(map(len, batch)) - taken
        return payloads

    def _count_unread(self) -> int:
        """Return the approximate bytes of messages that were polled and not received."""
        return self._count_decoded() + self._batch_bytes

    def _count_decoded(self) -> int:
        # An estimate from the average size, because the size of each item is not kept.
        return self._decoded_bytes * len(self._items) // max(self._decoded_items, 1)

    def _count(self, taken: int) -> None:
        """Record the numbers of messages that were taken, if the subscription is numbered."""
        if self._numbers is not None:
            self._numbers += range(self._next, self._next + taken)
            self._next += taken

    def _decode(self, payloads: Sequence[bytes]) -> Sequence[Any]:
        values: Sequence[Any] = self._encoding.decode_many_untrusted(payloads)
        self._undecodable += len(payloads) - len(values)
        if self._numbers is not None:
            values = self._number(payloads, values)
            self._numbers.clear()
        return values

    def _number(self, payloads: Sequence[bytes], values: Sequence[Any]) -> list[StreamMessage[Any]]:
        numbers, decode = self._numbers or (), self._encoding.decode_many_untrusted
        if len(values) == len(numbers):
            return list(map(StreamMessage, numbers, values))
        # Some payloads are malformed. Decode them one by one to find which.
        return [
            StreamMessage(number, value)
            for number, payload in zip(numbers, payloads, strict=True)
            for value in decode([payload])
        ]

    def _check_going_on(self) -> None:
        if self._ended is None:
            return
        if self._ended.reason is EndReason.CLOSED:
            raise trio.EndOfChannel(self._ended.reason.value)
        raise trio.BrokenResourceError(self._ended.reason.value)

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this stream is closed")


PATIENCE: Final = 5.0
"""The most seconds from a JOIN to the WELCOME of the source."""

RETRY: Final = 0.25
"""Seconds between two attempts to join a source again."""

BATCH: Final = 256
"""The datagrams taken from a group's socket before other tasks have their turn."""

Dial = Callable[[], AbstractAsyncContextManager[Channel[Any]]]
"""A function that opens a channel to the source's node for the length of a block."""


async def join(channel: Channel[Any], wanted: Join, *, is_sealed: bool) -> Welcome:
    """Send a JOIN and wait for the WELCOME. Raises ``RefusedError`` or ``UnreachableError``."""
    try:
        with trio.fail_after(PATIENCE):
            await send_message(channel, wanted)
            answer = await receive_message_untrusted(channel)
    except (*GONE, trio.TooSlowError, RemoteError) as error:
        raise UnreachableError(f"no answer about the topic {wanted.topic!r}: {error}") from error
    match answer:
        # A stream is sealed if, and only if, its channel is.
        case Welcome() if is_sealed == (answer.key is not None):
            return answer
        case JoinRefused(text):
            raise RefusedError(text, "topic")
        case _:
            raise UnreachableError(f"the answer about the topic {wanted.topic!r} is malformed")


@asynccontextmanager
async def taking_part(
    dispatcher: StreamDispatcher,
    hosted: HostedSubscription,
    interface: str,
    udp: UdpSocket,
    secrets: Secrets,
    dial: Dial,
) -> AsyncIterator[None]:
    """Take part in a stream for the length of the block; ``udp`` is the node's socket."""
    dispatcher.attend(hosted)
    try:
        async with (
            running(partial(_stay_joined, hosted, dial)),
            running(partial(fetch, hosted, secrets)),
            _group_socket(dispatcher, hosted, interface, udp),
        ):
            hosted.touch()
            yield
    finally:
        dispatcher.unattend(hosted)


async def _stay_joined(hosted: HostedSubscription, dial: Dial) -> None:
    """Stay joined: receive keys and the END, and join again when the channel breaks.

    Return when the source has ended, was silent for ``activity_timeout``, or has closed the
    channel.
    """
    await _follow(hosted)
    while hosted.channel.has_vanished and not hosted.subscription.is_over:
        hosted.unlink()
        with suppress(*GONE, OSError, SphtpError):
            async with dial() as channel:
                await _rejoin(hosted, channel)
        await trio.sleep(RETRY)
    hosted.handle_gone()


async def _rejoin(hosted: HostedSubscription, channel: Channel[Any]) -> None:
    is_sealed, known = hosted.welcome.key is not None, hosted.channel.peer_key
    welcome = await join(channel, hosted.join, is_sealed=is_sealed)
    # Only the holder of the same key continues a session.
    if welcome.session == hosted.session and channel.peer_key == known:
        hosted.relink(welcome, channel)
        await _follow(hosted)
    else:
        hosted.handle_gone(anew=True)


async def _follow(hosted: HostedSubscription) -> None:
    """Receive keys and the END over the channel until it ends."""
    with suppress(*GONE, RemoteError):
        while True:
            message = await receive_message_untrusted(hosted.channel)
            if isinstance(message, StreamKey):
                hosted.learn(message)
            elif isinstance(message, Closing):
                hosted.handle_closing(message)


def _group_socket(
    dispatcher: StreamDispatcher, hosted: HostedSubscription, interface: str, udp: UdpSocket
) -> AbstractAsyncContextManager[None]:
    """Receive the datagrams of a stream's multicast group, if any, for the length of the block."""
    welcome = hosted.welcome
    if not welcome.group:
        return nullcontext()
    try:
        group = MulticastGroup(welcome.group, welcome.port, interface)
    except SettingsError as error:
        raise UnreachableError(f"the source names an invalid multicast group: {error}") from error
    own = open_receiver(udp, group)
    return running(partial(_receive_group, dispatcher, hosted, own))


async def _receive_group(
    dispatcher: StreamDispatcher, hosted: HostedSubscription, udp: UdpSocket
) -> None:
    with udp:
        while True:
            await udp.wait_readable()
            now = trio.current_time()
            for row in udp.receive_batch(BATCH):
                for _ in dispatcher.take_own_untrusted(now, row):
                    dispatcher.counters.stream_malformed += 1
            hosted.touch()
            await trio.lowlevel.checkpoint()
