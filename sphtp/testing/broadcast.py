"""A simulation of sources and receivers of streams on one network."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from random import Random
from typing import Any, Final

from sphtp.core.stream.events import Item, OutgoingBodies
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.timers import TimerQueue, earliest
from sphtp.errors import SettingsError
from sphtp.testing.network import Address, DeliveredDatagram, Faults, Flight, Simulation
from sphtp.testing.stream import LineFaults, Publisher, Subscriber, SubscriberTerms

STATION: Final[Address] = ("10.2.0.1", 1000)
"""The default address of sources."""
GROUP: Final[Address] = ("239.2.0.1", 1000)
"""The address of the multicast group of a ``shared`` broadcast."""
MOST: Final = 65_000
"""The most receivers that a broadcast can begin with."""

Party = Publisher | Subscriber


class Observer:
    """The base class of observers of a broadcast's traffic. Its methods do nothing.

    A body is the content of a datagram behind its header.
    """

    def bodies_sent(self, now: float, publisher: Publisher, outgoing: OutgoingBodies) -> None:
        """Handle bodies that a source sends to all receivers or to one."""

    def bodies_received(self, now: float, subscriber: Subscriber, bodies: Sequence[bytes]) -> None:
        """Handle bodies that a subscriber receives from its source."""

    def feedback_sent(self, now: float, subscriber: Subscriber, body: bytes) -> None:
        """Handle a NAK or STATUS that a subscriber sends."""

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        """Handle items that a subscriber reads."""


class Broadcast(Simulation):
    """A simulation of a ``publisher``, and of ``subscribers`` that joined before it sent anything.

    Further sources and receivers may join and leave. Each receiver loses datagrams independently,
    as in unicast, and a repair goes to the receiver that requested it. With ``shared``, all
    receivers share losses and repairs, as behind one link to a multicast group, and have the
    settings for groups. Nothing is sealed. ``line`` has the faults of TCP connections to the
    history of a source. Joining and leaving have an effect at once. The end of a source reaches its
    receivers without loss, after the delay of ``line``. Raises ``SettingsError`` unless there are 0
    to 65,000 receivers and 1 to 64 topics.
    """

    def __init__(
        self,
        seed: int,
        receivers: int = 1,
        faults: Faults | None = None,
        settings: StreamSettings | None = None,
        *,
        shared: bool = False,
        topics: int = 1,
        first: int = 1,
        line: LineFaults | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        if not 0 <= receivers <= MOST:
            raise SettingsError(f"receivers is {receivers}; allowed is 0 to {MOST}")
        super().__init__(seed, faults)
        self.settings = settings or StreamSettings()
        self.line = line or LineFaults()
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self._shared = shared
        self._observers = tuple(observers)
        self._timers = TimerQueue[Party]()
        self._notices = Flight[partial[None]]()
        self._parties: dict[Address, list[Party]] = {}
        # Subscribers to which the notice of their source's end was sent.
        self._informed = set[Subscriber]()
        self._drawn = 0
        self.publisher = self.open_source(topics=topics, first=first)
        for _ in range(receivers):
            self.join()

    # Sources and receivers

    def open_source(
        self,
        address: Address = STATION,
        *,
        topics: int = 1,
        first: int = 1,
        **changes: Any,
    ) -> Publisher:
        """Open a source, with ``changes`` of the settings. Several sources may share an address."""
        publisher = Publisher(
            self._random("publisher"),
            replace(self.settings, **changes),
            address,
            now=self.now,
            topics=topics,
            first=first,
            shared=self._shared,
        )
        self.publishers.append(publisher)
        self._enter(publisher, address)
        return publisher

    def join(
        self,
        publisher: Publisher | None = None,
        terms: SubscriberTerms | None = None,
        *,
        address: Address | None = None,
        **changes: Any,
    ) -> Subscriber:
        """Add a receiver to a source, by default to the first one; ``changes`` are of its settings.

        By default the receiver has an address of its own.
        """
        settings = replace(self.settings, **changes)
        number = len(self.subscribers)
        subscriber = Subscriber(
            self._random("subscriber"),
            settings.for_group() if self._shared else settings,
            address or (f"10.3.{number >> 8}.{number & 255}", 1000),
            publisher or self.publisher,
            terms or SubscriberTerms(),
            self.line,
            now=self.now,
        )
        self.subscribers.append(subscriber)
        self._enter(subscriber, GROUP if self._shared else subscriber.address)
        self.touch(subscriber.publisher)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a receiver, and notify its source."""
        self.vanish(subscriber)
        subscriber.publisher.leave(self.now, subscriber.number)
        self.touch(subscriber.publisher)

    def vanish(self, subscriber: Subscriber) -> None:
        """Remove a receiver without a notice to its source."""
        subscriber.line.cut(self.now)
        self._exit(subscriber, GROUP if self._shared else subscriber.address)

    def close(self, publisher: Publisher | None = None) -> None:
        """Close a source, by default the first one.

        When the source has sent all its data, its receivers get a notice of its end. The source
        repairs losses until no receiver needs a repair, for its linger at most.
        """
        publisher = publisher or self.publisher
        publisher.source.close(self.now)
        self.touch(publisher)

    def crash(self, publisher: Publisher, *, unnoticed: bool = False, anew: bool = False) -> None:
        """End the node of a source, which sends nothing more.

        Its receivers get a notice of the loss, unless it is ``unnoticed``. With ``anew``, the
        notice shows that another source has its place.
        """
        publisher.is_on_air = False
        self._exit(publisher, publisher.address)
        for subscriber in self.subscribers:
            if subscriber.publisher is publisher:
                subscriber.line.cut(self.now)
                self.touch(subscriber)
                if not unnoticed:
                    notice = partial(self._notify_gone, subscriber, anew=anew)
                    self._notices.add(self.now + self.line.delay, notice)

    # Messages

    def send(
        self, payloads: Sequence[bytes], publisher: Publisher | None = None, *, topic: int = 0
    ) -> int:
        """Send messages by a source, by default the first one; return the first message's number.

        Raises as ``SourceTransport.send_many``: ``LocalError`` if there is no room for them.
        """
        publisher = publisher or self.publisher
        number = publisher.source.send_many(self.now, topic, payloads)
        self.touch(publisher)
        return number

    def touch(self, party: Party) -> None:
        """Send the output of a command to a party, and update its timer.

        Call it after each command to ``publisher.source`` or ``subscriber.subscription``.
        """
        if isinstance(party, Publisher):
            self._attach_publisher(party)
        elif party in self._parties.get(GROUP if self._shared else party.address, ()):
            self._attach_subscriber(party)
        else:
            return
        self._timers.set(party, party.poll_timeout())

    # Events

    def _next_time(self) -> float | None:
        return earliest(
            self.network.next_time(), self._timers.next_due(), self._notices.next_time()
        )

    def _happen(self) -> None:
        now = self.now
        arrived = self.network.take_due(now)
        for (sender, place), group in groupby(arrived, attrgetter("source", "destination")):
            self._deliver(sender, place, list(group))
        for party in list(self._timers.take_due(now)):
            if isinstance(party, Subscriber) and party.publisher.is_on_air and not self._shared:
                party.handle_alive(now)
            party.handle_timeout(now)
            self.touch(party)
        for notice in self._notices.take_due(now):
            notice()

    def _flush(self) -> None:
        """Do nothing, because ``touch`` has sent all datagrams that may leave."""

    def _deliver(self, sender: Address, place: Address, group: Sequence[DeliveredDatagram]) -> None:
        datagrams = [delivery.datagram for delivery in group]
        for party in tuple(self._parties.get(place, ())):
            if isinstance(party, Subscriber):
                bodies = party.admit(datagrams)
                for observer in self._observers:
                    observer.bodies_received(self.now, party, bodies)
                party.handle_bodies(self.now, bodies)
            else:
                for datagram in datagrams:
                    party.handle_datagram(self.now, sender, datagram)
            self.touch(party)

    def _attach_publisher(self, publisher: Publisher) -> None:
        now, address = self.now, publisher.address
        for outgoing in publisher.poll_transmit(now):
            for observer in self._observers:
                observer.bodies_sent(now, publisher, outgoing)
            datagrams = publisher.datagrams(outgoing.bodies)
            for place in [GROUP] if self._shared else publisher.places(outgoing.receiver):
                for datagram in datagrams:
                    self.network.send(now, address, place, datagram)
        if publisher.source.is_closing and publisher.is_on_air:
            self._inform(publisher)
        if publisher.is_over and publisher.is_on_air:
            self.crash(publisher)

    def _inform(self, publisher: Publisher) -> None:
        """Send the notice of a source's end to the receivers that have not got it."""
        for subscriber in self.subscribers:
            if subscriber.publisher is publisher and subscriber not in self._informed:
                self._informed.add(subscriber)
                notice = partial(self._notify_closing, subscriber)
                self._notices.add(self.now + self.line.delay, notice)

    def _attach_subscriber(self, subscriber: Subscriber) -> None:
        now, address = self.now, subscriber.address
        if subscriber.is_reading and (items := subscriber.read()):
            for observer in self._observers:
                observer.items_delivered(now, subscriber, items)
        for body in subscriber.poll_transmit(now):
            for observer in self._observers:
                observer.feedback_sent(now, subscriber, body)
            self.network.send(now, address, subscriber.publisher.address, subscriber.datagram(body))

    def _notify_closing(self, subscriber: Subscriber) -> None:
        source = subscriber.publisher.source
        subscriber.handle_closing(self.now, source.window, dict(source.tails))
        self.touch(subscriber)

    def _notify_gone(self, subscriber: Subscriber, *, anew: bool) -> None:
        subscriber.handle_gone(self.now, anew=anew)
        self.touch(subscriber)

    # Places

    def _random(self, purpose: str) -> Random:
        self._drawn += 1
        return Random(f"{self.seed} {purpose} {self._drawn}")

    def _enter(self, party: Party, place: Address) -> None:
        self._parties.setdefault(place, []).append(party)
        self.touch(party)

    def _exit(self, party: Party, place: Address) -> None:
        self._parties[place].remove(party)
        self._timers.set(party, None)
