"""Subscriptions to topics of all peers, present and future.

Theory of operation. Peers announce the topics of their sources to the servers, and a client has
them as ``Peer.topics``. A subscription follows that list. For each source with a topic that its
pattern selects, one task joins the source's stream, and passes its items to the reader. When the
stream has ended and the peer no longer announces the topic, the task ends, and publishes an event.
Until then it joins the stream again. If it is the same session, the subscription continues after
the last message that it has. After an attempt that failed, the pause before the next one doubles.

A slow reader holds up the sources, by the flow control of their streams: at most ``AHEAD`` items
wait for the reader. With ``latest`` it holds up no source. Then one message of each source and
topic waits, and a newer one replaces and counts it.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

import trio

from sphtp.core.control.outputs import ClientEvent, PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.records import Peer
from sphtp.core.control.vocabulary import Reason
from sphtp.core.fsm import Name
from sphtp.core.stream.events import EndReason, Loss
from sphtp.core.topics import TopicPattern
from sphtp.errors import RefusedError, SphtpError
from sphtp.shell.feed import Feed, Listener
from sphtp.shell.stream_admission import GONE
from sphtp.shell.subscription import StreamMessage, Subscription

if TYPE_CHECKING:
    # As in ``subscription``: without its parameter it carries anything.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

AHEAD: Final = 256
"""The most items that wait for the reader; with more, the sources are held up."""

BATCH: Final = 64
"""The most items that are taken from a stream at once."""

RETRY: Final = 0.1
LONGEST_RETRY: Final = 5.0
"""Seconds until the next attempt to join a source: the first pause, which doubles, and the longest.
"""


class TopicMessage(NamedTuple, Generic[T]):
    """A message of one of the sources."""

    peer: Peer
    """The peer whose source sent the message."""
    topic: str
    """The topic of the message."""
    number: int
    """The number that the source's ``send`` returned for the message.

    If the peer opens its source again, the numbers begin again.
    """
    value: T
    """The message itself."""
    skipped: int = 0
    """With ``latest``: the number of messages, since the last one that was read, that newer ones
    replaced or that are lost.
    """


class TopicLoss(NamedTuple):
    """Lost messages of one of the sources."""

    peer: Peer
    """The peer whose source sent the messages."""
    topic: str
    """The topic of the messages."""
    loss: Loss
    """The numbers of the messages, and the reason of the loss."""


class TopicSource(NamedTuple):
    """A source that a subscription follows."""

    peer_id: int
    """The id of the source's peer."""
    nonce: int
    """A random number that distinguishes this holder of the id from earlier and later ones."""
    topic: str
    """The topic of the source."""


class SourceEndReason(Name):
    """The reason why a subscription no longer follows a source."""

    CLOSED = "the peer is still in the cluster, and no longer announces the topic"
    LEFT = "the peer has left the cluster, or this client no longer watches it"
    DIED = "the peer is gone without having left"


@dataclass(frozen=True, slots=True)
class TopicSourceEnded:
    """The event that a source has ended. Some of its items may still wait for the reader."""

    peer: Peer
    """The peer whose source has ended."""
    topic: str
    """The topic of the source."""
    reason: SourceEndReason
    """The reason of the end."""


@dataclass(frozen=True, slots=True)
class TopicSourceFailed:
    """The event that an announced source cannot be joined at present.

    The subscription tries again. The event comes for the first failure, for each with another cause
    than the one before, and again if the source was joined in between.
    """

    peer: Peer
    """The peer of the source."""
    topic: str
    """The topic of the source."""
    why: str
    """The cause: the peer cannot be reached, for example, or has other types of messages."""


@dataclass(slots=True)
class _FollowedSource:
    """The position in a source: its session, and the number of the last item for the reader."""

    peer: Peer

    is_joined: bool = False
    failure: str | None = None
    session: int = 0
    last: int | None = None
    lost: int = 0
    """With ``latest``, the number of messages that were lost since the last one that arrived."""
    reason: SourceEndReason | None = None
    """The reason of the end; None as long as the peer announces the topic."""
    ended: trio.Event = field(default_factory=trio.Event)
    was_closed: bool = False
    """True if the source closed the last stream."""


Join = Callable[..., AbstractAsyncContextManager[Subscription[Any]]]
"""A function that joins a topic of a peer for the length of a block: ``Client.subscribe_to``."""


class TopicSubscription(trio.abc.ReceiveChannel[TopicMessage[T] | TopicLoss]):
    """The messages of all sources whose topics a pattern selects, and their losses.

    ``async for item in subscription`` yields a ``TopicMessage`` for each message, and a
    ``TopicLoss`` for lost messages. With ``latest`` it yields only the newest message of each
    source and topic, and no ``TopicLoss``. The items of one source and topic come in the order of
    the source, unless ``ordered`` is False in the settings of the subscription. The iteration goes
    on until the subscription is closed, because new sources may appear. Made by
    ``Client.subscribe``.
    """

    def __init__(
        self,
        attach: Callable[[Callable[[], Awaitable[None]]], None],
        pattern: TopicPattern,
        peers: Mapping[int, Peer],
        events: Callable[[], Listener[ClientEvent]],
        join: Join,
        late_join: bool | int,
        *,
        is_latest: bool = False,
    ) -> None:
        # The opener of the subscription runs the task that follows the sources.
        attach(self._run)
        self._pattern = pattern
        self._peers = peers
        self._events = events
        self._join = join
        self._late_join = late_join
        self._is_latest = is_latest
        self._nursery: trio.Nursery | None = None
        self._followed: dict[TopicSource, _FollowedSource] = {}
        # The keys of ``_followed`` by peer: a peer may change a hundred times a second, and most
        # peers are not followed.
        self._sources_of: dict[int, set[TopicSource]] = {}
        # One of the two is in use: all items, or the newest message of each source, both in the
        # order of arrival.
        self._waiting = deque[TopicMessage[T] | TopicLoss]()
        self._newest: dict[TopicSource, TopicMessage[T]] = {}
        self._overtaken = 0
        self._arrived = trio.lowlevel.ParkingLot()
        self._has_room = trio.lowlevel.ParkingLot()
        self._feed: Feed[TopicSourceEnded | TopicSourceFailed] = Feed()
        self._is_closed = False

    @property
    def pattern(self) -> str:
        """The pattern that selects the topics."""
        return self._pattern.text

    @property
    def sources(self) -> tuple[TopicSource, ...]:
        """The sources whose streams this subscription has joined at present."""
        return tuple(source for source, it in self._followed.items() if it.is_joined)

    @property
    def failures(self) -> Mapping[TopicSource, str]:
        """The announced sources that cannot be joined now, each with the cause as text."""
        failures = {source: it.failure for source, it in self._followed.items()}
        return {source: why for source, why in failures.items() if why is not None}

    @property
    def overtaken(self) -> int:
        """With ``latest``, the number of messages that newer ones replaced before a read."""
        return self._overtaken

    def events(self) -> Listener[TopicSourceEnded | TopicSourceFailed]:
        """Return an async iterator over the ends of sources, and failures to join, from now on.

        It ends with the subscription. The end of ``with subscription.events() as events:`` closes
        it. A reader that is 1024 events behind misses further ones.
        """
        return self._feed.listen()

    async def receive(self) -> TopicMessage[T] | TopicLoss:
        """Wait for the next item.

        Raises ``trio.ClosedResourceError`` if this subscription, or its client, was closed before
        the call or during it.
        """
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self.receive_nowait()
            except trio.WouldBlock:
                await self._arrived.park()

    def receive_nowait(self) -> TopicMessage[T] | TopicLoss:
        """Take the next item. Raises as ``receive``, and ``trio.WouldBlock`` if there is none."""
        if self._is_closed:
            raise trio.ClosedResourceError("this subscription is closed")
        if self._newest:
            return self._newest.pop(next(iter(self._newest)))
        if not self._waiting:
            raise trio.WouldBlock
        item = self._waiting.popleft()
        if len(self._waiting) < AHEAD:
            self._has_room.unpark_all()
        return item

    async def aclose(self) -> None:
        """Leave all sources. Tasks in ``receive`` get ``trio.ClosedResourceError``."""
        self._is_closed = True
        self._arrived.unpark_all()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()

    async def _run(self) -> None:
        """Follow the sources until closed or cancelled."""
        try:
            with self._events() as events:
                async with trio.open_nursery() as self._nursery:
                    self._look_at_all()
                    await self._watch(events)
                    # The client was closed: no source can be joined again.
                    self._nursery.cancel_scope.cancel()
        finally:
            self._is_closed = True
            self._feed.close()
            self._arrived.unpark_all()

    async def _watch(self, events: Listener[ClientEvent]) -> None:
        missed = events.missed
        async for event in events:
            if isinstance(event, PeerEntered | PeerChanged):
                self._look_at(event.peer)
            elif isinstance(event, PeerLeft):
                has_left = event.reason is Reason.LEFT
                self._end_all(
                    event.peer, SourceEndReason.LEFT if has_left else SourceEndReason.DIED
                )
            if events.missed != missed:
                # This listener missed events, because thousands came at once.
                missed = events.missed
                self._look_at_all()

    def _look_at_all(self) -> None:
        for peer in tuple(self._peers.values()):
            self._look_at(peer)
        for followed in tuple(self._followed.values()):
            if self._peers.get(followed.peer.id) != followed.peer:
                # This listener missed the event with the reason, so that it is estimated.
                reason = SourceEndReason.LEFT if followed.was_closed else SourceEndReason.DIED
                self._end_all(followed.peer, reason)

    def _look_at(self, peer: Peer) -> None:
        """Follow the selected sources of a peer, and end those that the peer has closed."""
        for topic in peer.topics:
            source = TopicSource(peer.id, peer.nonce, topic)
            followed = self._followed.get(source)
            if followed is not None:
                followed.peer = peer
                if followed.reason is not None:
                    # The peer closed it, and opened it again before the task noticed the end.
                    followed.reason, followed.ended = None, trio.Event()
            elif self._pattern.matches(topic) and self._nursery is not None:
                self._followed[source] = followed = _FollowedSource(peer)
                self._sources_of.setdefault(peer.id, set()).add(source)
                self._nursery.start_soon(self._follow, source, followed)
        self._end_all(peer, SourceEndReason.CLOSED, but=peer.topics)

    def _end_all(self, peer: Peer, reason: SourceEndReason, but: Container[str] = ()) -> None:
        """Note that the sources of a peer have ended, except those of the topics ``but``."""
        for source in self._sources_of.get(peer.id, ()):
            followed = self._followed[source]
            if followed.peer == peer and source.topic not in but:
                followed.reason = reason
                followed.ended.set()

    async def _follow(self, source: TopicSource, followed: "_FollowedSource") -> None:
        """Receive from a source, and join it again, as long as its peer announces it."""
        pause = RETRY
        while followed.reason is None:
            try:
                await self._take_part(source, followed.peer, followed)
                pause = RETRY
            except RefusedError as error:
                if error.reason == "session":
                    # The source was started again: the rest of the former session is lost.
                    followed.last = None
                    continue
                self._note_failure(source, followed, str(error))
            except (SphtpError, OSError, *GONE) as error:
                self._note_failure(source, followed, str(error))
            with trio.move_on_after(pause):
                await followed.ended.wait()
            pause = min(2 * pause, LONGEST_RETRY)
        # No checkpoint lies between the last check of the reason and here. So a peer that announces
        # the topic again is followed again.
        del self._followed[source]
        self._sources_of[source.peer_id].discard(source)
        if not self._sources_of[source.peer_id]:
            del self._sources_of[source.peer_id]
        self._feed.publish(TopicSourceEnded(followed.peer, source.topic, followed.reason))

    def _note_failure(self, source: TopicSource, followed: "_FollowedSource", why: str) -> None:
        if why != followed.failure:
            followed.failure = why
            self._feed.publish(TopicSourceFailed(followed.peer, source.topic, why))

    async def _take_part(
        self, source: TopicSource, peer: Peer, followed: "_FollowedSource"
    ) -> None:
        """Pass the items of a stream to the reader until the stream ends."""
        begin: dict[str, Any] = {"late_join": self._late_join}
        if followed.last is not None:
            begin = {"session": followed.session, "after": followed.last}
        async with self._join(source.peer_id, source.topic, **begin) as stream:
            followed.failure, followed.is_joined, followed.session = None, True, stream.session
            try:
                with suppress(*GONE):
                    while True:
                        items = await stream.receive_many(BATCH)
                        await self._hand_on(source, peer, followed, items)
            finally:
                followed.is_joined = False
            end = stream.ended
            followed.was_closed = end is not None and end.reason is EndReason.CLOSED
            if followed.was_closed:
                followed.last = None

    async def _hand_on(
        self,
        source: TopicSource,
        peer: Peer,
        followed: "_FollowedSource",
        items: Sequence[StreamMessage[T] | Loss],
    ) -> None:
        if self._is_latest:
            self._replace(source, peer, followed, items)
            return
        for item in items:
            while len(self._waiting) >= AHEAD:
                await self._has_room.park()
            if isinstance(item, Loss):
                self._waiting.append(TopicLoss(peer, source.topic, item))
                followed.last = item.last
            else:
                self._waiting.append(TopicMessage(peer, source.topic, *item))
                followed.last = item.number
            self._arrived.unpark_all()

    def _replace(
        self,
        source: TopicSource,
        peer: Peer,
        followed: "_FollowedSource",
        items: Sequence[StreamMessage[T] | Loss],
    ) -> None:
        """Keep the newest message of a source in place of unread ones."""
        for item in items:
            if isinstance(item, Loss):
                followed.lost += item.last + 1 - item.first
                followed.last = item.last
                continue
            unread = self._newest.get(source)
            skipped = followed.lost + (0 if unread is None else 1 + unread.skipped)
            self._overtaken += unread is not None
            self._newest[source] = TopicMessage(peer, source.topic, *item, skipped)
            followed.last, followed.lost = item.number, 0
        if source in self._newest:
            self._arrived.unpark_all()
