"""Datagrams of streams: from the socket to sources and subscriptions, and back."""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import trio

from sphtp.core.datagrams import Address, Datagrams, Kind, split_by_front
from sphtp.core.stream.sealing import SubscriptionCounters
from sphtp.core.stream.wire import (
    FEEDBACK_HEADER,
    STREAM_HEADER,
    decode_feedback_header_untrusted,
    decode_stream_header_untrusted,
    is_of_stream,
)
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError, StateError
from sphtp.shell.instruments import LimitLog
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    # Every node has a dispatcher; few have a source or a subscription.
    from sphtp.shell.hosted_streams import HostedSource, HostedSubscription

MOST: Final = 4 << 20
"""The most bytes of early datagrams that are kept for all sources. Further ones are dropped, and
repaired later.
"""
OVERHEAD: Final = 512
"""The approximate bytes of a row beside its data, so that the bound holds for small rows, too."""


class EarlyDatagrams:
    """The rows that arrive while this node joins their source, by session."""

    def __init__(self) -> None:
        self._expected = Counter[Address]()
        self._size = 0
        self._kept: dict[int, list[Datagrams]] = {}

    @property
    def is_expecting(self) -> bool:
        """True if a source is being joined."""
        return bool(self._expected)

    @contextmanager
    def expecting(self, address: Address) -> Iterator[None]:
        """Keep rows from this address for the length of the block. Call ``take`` inside it."""
        self._expected[address] += 1
        try:
            yield
        finally:
            self._expected -= Counter([address])
            if not self._expected:
                self._kept.clear()
                self._size = 0

    def keep(self, session: int, row: Datagrams) -> bool:
        """Keep a row. Return False if its address is not expected, or there are too many bytes."""
        size = self._size + _size(row)
        if row.address not in self._expected or size > MOST:
            return False
        self._size = size
        self._kept.setdefault(session, []).append(row)
        return True

    def take(self, session: int) -> list[Datagrams]:
        """Return the rows of a session, in order."""
        rows = self._kept.pop(session, [])
        self._size -= sum(map(_size, rows))
        return rows


def _size(row: Datagrams) -> int:
    return OVERHEAD + len(row.data)


RETRY: Final = 0.001
"""Seconds after which a group's socket usually has room again."""


@dataclass(slots=True)
class StreamCounters:
    """Counts of stream datagrams that reached no source or subscription here."""

    stream_malformed: int = 0
    stream_unknown: int = 0


class HasTimeouts(Protocol):
    """An object with a timer."""

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if there is none."""

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due."""


class StreamDispatcher:
    """The path of stream datagrams between the socket and the node's sources and subscriptions.

    ``counters`` count datagrams for no source or subscription of this node, ``seals`` count
    rejected ones. ``is_busy`` is true if there is a source, a subscription, a join under way, or
    output that waits for the socket. ``is_blocked`` is true if the socket had no room for all
    datagrams.
    """

    def __init__(self, udp: UdpSocket, limits: LimitLog | None = None) -> None:
        self.counters = StreamCounters()
        self.seals = SubscriptionCounters()
        self._limits = limits or LimitLog()
        self._udp = udp
        self._hosted: dict[int, HostedSource] = {}
        self._subscribed: dict[int, list[HostedSubscription]] = {}
        self.is_busy = self.is_blocked = False
        self._early = EarlyDatagrams()
        self._feedback: deque[Datagrams] = deque()
        # The time of the next attempt to send to a group whose socket had no room.
        self._retry: float | None = None

    # Sources and subscriptions

    def host(self, hosted: "HostedSource") -> None:
        """Add a source. Raises ``StateError`` if one of its topics has a source already."""
        for topic in hosted.topics:
            self.check_free(topic)
        self._hosted[hosted.session] = hosted
        self._note_parties()
        self._limits.watch(hosted.source.counters)

    def check_free(self, topic: str) -> None:
        """Raise ``StateError`` if a source here has this topic."""
        if self.find_topic(topic) is not None:
            raise StateError(f"this node has a source of the topic {topic!r} already")

    def unhost(self, hosted: "HostedSource") -> None:
        """Remove a source."""
        del self._hosted[hosted.session]
        self._note_parties()
        self._limits.forget(trio.current_time(), hosted.source.counters)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of all sources here."""
        return tuple(topic for hosted in self._hosted.values() for topic in hosted.topics)

    @property
    def sources(self) -> "tuple[HostedSource, ...]":
        """The sources here."""
        return tuple(self._hosted.values())

    @property
    def subscriptions(self) -> "tuple[HostedSubscription, ...]":
        """The subscriptions here."""
        return tuple(self._subscriptions())

    def find_topic(self, topic: str) -> "HostedSource | None":
        """Return the source here that has a topic, or None."""
        return next((one for one in self._hosted.values() if topic in one.topics), None)

    def find_session(self, session: int) -> "HostedSource | None":
        """Return the source here whose session has this id, or None."""
        return self._hosted.get(session)

    def close(self) -> None:
        """Abandon all sources, because the node is closing."""
        for hosted in self._hosted.values():
            hosted.abandon()

    @contextmanager
    def joining(self, address: Address) -> Iterator[None]:
        """Keep early datagrams from this address for the block. Call ``attend`` inside it."""
        try:
            with self._early.expecting(address):
                self._note_parties()
                yield
        finally:
            self._note_parties()

    def attend(self, subscription: "HostedSubscription") -> None:
        """Add a subscription, and pass it the early datagrams of its session."""
        self._subscribed.setdefault(subscription.session, []).append(subscription)
        self._note_parties()
        for row in self._early.take(subscription.session):
            subscription.handle_row_untrusted(trio.current_time(), row)

    def unattend(self, subscription: "HostedSubscription") -> None:
        """Remove a subscription."""
        others = self._subscribed[subscription.session]
        others.remove(subscription)
        if not others:
            del self._subscribed[subscription.session]
            self._note_parties()

    def _note_parties(self) -> None:
        has_any = self._hosted or self._subscribed or self._early.is_expecting
        self.is_busy = bool(has_any) or self.is_blocked

    # Received datagrams

    def take_own_untrusted(self, now: float, row: Datagrams) -> Iterator[Datagrams]:
        """Handle the stream datagrams of a row. Yield the others."""
        for part in split_by_front(row, 1):
            if is_of_stream(part.data):
                self.handle_row_untrusted(now, part)
            else:
                yield part

    def handle_row_untrusted(self, now: float, row: Datagrams) -> None:
        """Handle datagrams of one kind that came together. Count those without a receiver here."""
        is_stream = row.data[0] & 0x0F == Kind.STREAM
        front = STREAM_HEADER if is_stream else FEEDBACK_HEADER
        handle = self._handle_stream_untrusted if is_stream else self._handle_feedback_untrusted
        for part in split_by_front(row, front.size):
            try:
                handle(now, part)
            except RemoteError:
                self.counters.stream_malformed += part.number

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due."""
        for one in self._parties():
            due = one.poll_timeout()
            if due is not None and due <= now:
                one.handle_timeout(now)

    def _handle_stream_untrusted(self, now: float, row: Datagrams) -> None:
        session, _ = decode_stream_header_untrusted(row.data)
        subscriptions = self._subscribed.get(session)
        if subscriptions is None:
            if not self._early.keep(session, row):
                self.counters.stream_unknown += row.number
            return
        for subscription in subscriptions:
            subscription.handle_row_untrusted(now, row)

    def _handle_feedback_untrusted(self, now: float, row: Datagrams) -> None:
        session, receiver = decode_feedback_header_untrusted(row.data)
        hosted = self._hosted.get(session)
        if hosted is None or not hosted.handle_feedback_untrusted(now, receiver, row):
            self.counters.stream_unknown += row.number

    # Sent datagrams

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if there is none."""
        due = self._retry
        for one in self._parties():
            due = earliest(due, one.poll_timeout())
        return due

    def send(self, now: float) -> bool:
        """Send the datagrams that may leave. Return False if the node's socket lacks room.

        If the socket of a group lacks room, ``poll_timeout`` has the time of the next attempt.
        """
        for subscription in self._subscriptions():
            while (row := subscription.poll_transmit(now)) is not None:
                self._feedback.append(row)
        self.is_blocked, self._retry = not self._send_feedback(), None
        for hosted in self._hosted.values():
            if hosted.send(now):
                continue
            if hosted.is_grouped:
                self._retry = now + RETRY
            else:
                self.is_blocked = True
        self._note_parties()
        return not self.is_blocked

    def _send_feedback(self) -> bool:
        while self._feedback:
            # One by one, because they are few, and for different nodes.
            if not self._udp.send(deque([self._feedback[0]])):
                return False
            self._feedback.popleft()
        return True

    def _subscriptions(self) -> "Iterator[HostedSubscription]":
        return chain.from_iterable(self._subscribed.values())

    def _parties(self) -> Iterator[HasTimeouts]:
        yield from self._hosted.values()
        yield from self._subscriptions()
