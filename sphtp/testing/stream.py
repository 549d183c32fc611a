"""The parties of a ``Broadcast``: sources and receivers of streams, at simulated addresses.

A subscriber has a subscription, its items, and a history line. This line is the connection to the
history of its source, which is ordered and without loss, like TCP.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from sys import maxsize
from typing import NamedTuple

from sphtp.core.entropy import Secrets
from sphtp.core.stream.delivery import DeliveryState
from sphtp.core.stream.events import (
    ALL_RECEIVERS,
    Batch,
    Item,
    OutgoingBodies,
    SourceEvent,
    StreamEnd,
)
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.sealing import envelope
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceState, SourceTransport
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.core.stream.wire import (
    FEEDBACK_HEADER,
    STREAM_HEADER,
    Window,
    decode_feedback_header_untrusted,
    decode_stream_header_untrusted,
    feedback_header,
    stream_header,
)
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError, SettingsError
from sphtp.testing.network import Address, Flight


class Publisher:
    """A source on the simulated network, in the clear.

    ``is_on_air`` is true while its node exists. ``events`` are the events of the source.
    ``foreign`` counts datagrams of another session, from a wrong address, or malformed. Several
    publishers may share an address. With ``shared``, its receivers are a multicast group.
    """

    def __init__(
        self,
        secrets: Secrets,
        settings: StreamSettings,
        address: Address,
        *,
        now: float,
        topics: int = 1,
        first: int = 1,
        shared: bool = False,
    ) -> None:
        self.settings = settings
        self.address = address
        self.source = SourceTransport(
            secrets,
            settings,
            now=now,
            topics=topics,
            first=first,
            envelope=envelope(is_sealed=False),
            shared=shared,
        )
        self.is_on_air = True
        self.events: list[SourceEvent] = []
        self.foreign = 0
        self._topics = topics
        self._front = stream_header(self.source.session, 0)
        self._places: dict[int, Address] = {}
        self._joined = 0

    @property
    def session(self) -> int:
        """The id of the source's session."""
        return self.source.session

    @property
    def is_over(self) -> bool:
        """True if the source has ended."""
        return self.source.state is SourceState.CLOSED

    def places(self, receiver: int) -> Sequence[Address]:
        """Return the address of a receiver, or the distinct addresses of all."""
        if receiver != ALL_RECEIVERS:
            return (self._places[receiver],)
        return tuple(dict.fromkeys(self._places.values()))

    def join(self, now: float, place: Address) -> int:
        """Add a receiver; return its number."""
        self._joined += 1
        self._places[self._joined] = place
        self.source.handle_joined(now, self._joined)
        return self._joined

    def leave(self, now: float, receiver: int) -> None:
        """Remove a receiver."""
        del self._places[receiver]
        self.source.handle_left(now, receiver)

    def fetch_server(self) -> FetchServer:
        """Return a server of the source's history for one connection.

        It sends at ``repair_rate``, unlike a real source, whose rate is ``fetch_rate``.
        """
        source, rate = self.source, self.settings.repair_rate
        return FetchServer(source.history, source.session, self._topics, source.part, rate)

    def handle_datagram(self, now: float, sender: Address, datagram: bytes) -> None:
        """Handle a datagram of a receiver, or count it as ``foreign``."""
        try:
            session, receiver = decode_feedback_header_untrusted(datagram)
        except RemoteError:
            self.foreign += 1
            return
        if session != self.session or self._places.get(receiver) != sender:
            self.foreign += 1
            return
        self.source.handle_feedback_untrusted(now, receiver, datagram[FEEDBACK_HEADER.size :])

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due."""
        self.source.handle_timeout(now)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if there is none."""
        return self.source.poll_timeout() if self.is_on_air else None

    def poll_transmit(self, now: float) -> Iterator[OutgoingBodies]:
        """Yield the bodies to send, with their receivers, until no more may leave now."""
        while self.is_on_air and (outgoing := self.source.poll_transmit(now)) is not None:
            yield outgoing
        while (event := self.source.poll_event()) is not None:
            self.events.append(event)

    def datagrams(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return a datagram for each body: the header of the session, and then the body."""
        return [self._front + body for body in bodies]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFaults:
    """The faults and delays of connections to the history of a source.

    Raises ``SettingsError``, naming the field, when a value is out of range.

    Attributes:
        delay: seconds that every frame travels; opening a connection takes twice as long.
        refused: the share of connections that are refused.
        cut: the share of frames at whose arrival the connection breaks.
    """

    delay: float = 0.01
    refused: float = 0.0
    cut: float = 0.0

    def __post_init__(self) -> None:
        for name, most in (("delay", 3600.0), ("refused", 1.0), ("cut", 1.0)):
            if not 0 <= (value := getattr(self, name)) <= most:
                raise SettingsError(f"{name} is {value}; allowed is 0 to {most}")


OnArrival = Callable[[float], None]


@dataclass(slots=True, eq=False)
class _Call:
    """One connection; ``server`` is None while it is being made."""

    server: FetchServer | None = None
    under_way: Flight[OnArrival] = field(default_factory=Flight[OnArrival])


class HistoryLine:
    """The connection of a subscription to the history of a publisher, while it wants one."""

    def __init__(
        self,
        subscription: SubscriptionMachine,
        publisher: Publisher,
        faults: LineFaults,
        random: Random,
    ) -> None:
        self.calls = 0
        """The number of attempts to connect."""
        self._subscription = subscription
        self._publisher = publisher
        self._faults = faults
        self._random = random
        self._call: _Call | None = None

    def look(self, now: float) -> None:
        """Connect or disconnect as the subscription wants, and send its waiting requests."""
        subscription, call = self._subscription, self._call
        if not subscription.wants_connection:
            self.cut(now)
        elif call is None:
            self._dial(now)
        elif call.server is not None:
            for request in iter(subscription.poll_request, None):
                self._carry(now, call, self._ask, request)

    def cut(self, now: float) -> None:
        """Break the connection, if there is one; the next ``look`` may make another."""
        if self._call is not None:
            self._call = None
            self._subscription.handle_disconnected(now)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if there is none."""
        if self._call is None:
            return None
        server = self._call.server
        serves = None if server is None else server.poll_timeout()
        return earliest(self._call.under_way.next_time(), serves)

    def handle_timeout(self, now: float) -> None:
        """Deliver the frames that have arrived by now, and send the answers of the history."""
        call = self._call
        if call is None:
            return
        for arrive in call.under_way.take_due(now):
            # Frames that were under way when the connection broke do not arrive.
            if self._call is call:
                arrive(now)
        self._serve(now, call)

    def _dial(self, now: float) -> None:
        self.calls += 1
        self._call = call = _Call()
        call.under_way.add(now + 2 * self._faults.delay, self._connect)

    def _connect(self, now: float) -> None:
        call, publisher = self._call, self._publisher
        if call is None or not publisher.is_on_air or self._happens(self._faults.refused):
            self.cut(now)
        else:
            call.server = publisher.fetch_server()
            self._subscription.handle_connected(now)

    def _carry(
        self, now: float, call: _Call, take: Callable[[float, bytes], None], frame: bytes
    ) -> None:
        call.under_way.add(now + self._faults.delay, lambda then: take(then, frame))

    def _ask(self, now: float, frame: bytes) -> None:
        call = self._call
        if self._happens(self._faults.cut):
            self.cut(now)
        elif call is not None and call.server is not None:
            call.server.handle_frame_untrusted(frame)

    def _answer(self, now: float, frame: bytes) -> None:
        if self._happens(self._faults.cut):
            self.cut(now)
        else:
            self._subscription.handle_frame_untrusted(now, frame)

    def _serve(self, now: float, call: _Call) -> None:
        server = call.server
        if server is not None and self._publisher.is_on_air:
            while (frame := server.poll_transmit(now)) is not None:
                self._carry(now, call, self._answer, frame)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share


class SubscriberTerms(NamedTuple):
    """The terms of a subscriber, as arguments of ``SubscriptionMachine``."""

    topic: int = 0
    """The index of the topic at the source."""
    ordered: bool = True
    """True if messages come in the order of their sending."""
    late_join: int = 0
    """The most messages from before the join that it requests."""
    recover: bool = True
    """True if it fetches from the history the messages that the stream does not repair."""
    after: int | None = None
    """The number of the last message that it already has, instead of ``late_join``."""
    burst: int = maxsize
    """The most bytes that it can take at once, as the buffer of its socket."""


class Subscriber:
    """A receiver on the simulated network, in the clear.

    ``items`` are the items that it has read. While ``is_reading`` is false, it reads none, and
    items wait. ``foreign`` counts datagrams that are malformed, or of another session.
    """

    def __init__(
        self,
        random: Random,
        settings: StreamSettings,
        address: Address,
        publisher: Publisher,
        terms: SubscriberTerms,
        line: LineFaults,
        *,
        now: float,
    ) -> None:
        window = publisher.source.window
        self.settings = settings
        self.address = address
        self.publisher = publisher
        self.terms = terms
        self.joined_at = publisher.source.begins(terms.topic)
        """The number of the topic's first message that the source had not begun to send."""
        self.number = publisher.join(now, address)
        self.transport = Receiver(random, settings, now, window)
        self.subscription = SubscriptionMachine(
            settings,
            now,
            self.transport,
            publisher.session,
            terms.topic,
            self.joined_at,
            ordered=terms.ordered,
            late_join=terms.late_join,
            after=terms.after,
            recover=terms.recover,
            has_history=publisher.settings.retention > 0,
            reach=publisher.source.reach,
            burst=terms.burst,
        )
        self.line = HistoryLine(self.subscription, publisher, line, random)
        self.items: list[Item] = []
        self.is_reading = True
        self.foreign = 0
        self._front = feedback_header(publisher.session, self.number)

    @property
    def payloads(self) -> list[bytes]:
        """All messages that it has read."""
        batches = (item for item in self.items if isinstance(item, Batch))
        return [payload for batch in batches for payload in batch.payloads]

    @property
    def is_over(self) -> bool:
        """True if the stream has ended. Items may still wait if ``is_reading`` is false."""
        return self.subscription.state is DeliveryState.ENDED

    def admit(self, datagrams: Sequence[bytes]) -> list[bytes]:
        """Return the bodies of the datagrams of its session; count the others."""
        bodies = list[bytes]()
        for datagram in datagrams:
            try:
                session, _ = decode_stream_header_untrusted(datagram)
            except RemoteError:
                session = 0
            if session == self.publisher.session:
                bodies.append(datagram[STREAM_HEADER.size :])
            else:
                self.foreign += 1
        return bodies

    def handle_bodies(self, now: float, bodies: Sequence[bytes]) -> None:
        """Handle bodies from the source."""
        self.subscription.handle_bodies_untrusted(now, bodies)

    def handle_alive(self, now: float) -> None:
        """Handle evidence that the source's node is alive."""
        self.subscription.handle_alive(now)

    @property
    def end(self) -> StreamEnd | None:
        """The end of the stream; None until the subscriber has read it."""
        return self.items[-1] if self.items and isinstance(self.items[-1], StreamEnd) else None

    def handle_closing(self, now: float, window: Window, tails: Mapping[int, int]) -> None:
        """Handle the end of the source; ``tails`` are the next numbers of its topics."""
        self.subscription.handle_closing(now, window, tails[self.terms.topic])

    def handle_gone(self, now: float, *, anew: bool = False) -> None:
        """Handle the loss of the source's node, or the restart of the source if ``anew``."""
        self.line.cut(now)
        self.subscription.handle_gone(now, anew=anew)

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due."""
        self.line.handle_timeout(now)
        self.subscription.handle_timeout(now)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if there is none."""
        return earliest(self.subscription.poll_timeout(), self.line.poll_timeout())

    def poll_transmit(self, now: float) -> Iterator[bytes]:
        """Yield the bodies to send to the source."""
        self.line.look(now)
        return iter(lambda: self.subscription.poll_transmit(now), None)

    def read(self) -> list[Item]:
        """Read all waiting items."""
        polled = list[Item]()
        while (item := self.subscription.poll_item()) is not None:
            polled.append(item)
        self.items += polled
        return polled

    def datagram(self, body: bytes) -> bytes:
        """Return a body as a datagram."""
        return self._front + body
