"""A receiver of a stream at its address: a subscription, its history line, and its items."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from sys import maxsize
from typing import NamedTuple

from sphtp.core.stream.delivery import DeliveryState
from sphtp.core.stream.events import Batch, Item, StreamEnd
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.core.stream.wire import (
    STREAM_HEADER,
    Window,
    decode_stream_header_untrusted,
    feedback_header,
)
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError
from sphtp.testing.history_line import HistoryLine, LineFaults
from sphtp.testing.network import Address
from sphtp.testing.publisher import Publisher


class SubscriberTerms(NamedTuple):
    """The terms of a subscriber, see ``SubscriptionMachine``, and how much it reads at once."""

    topic: int = 0
    ordered: bool = True
    late_join: int = 0
    recover: bool = True
    after: int | None = None
    burst: int = maxsize


class Subscriber:
    """A subscription on the network, in the clear, with the given ``settings``.

    ``items`` are what it has read. While ``is_reading`` is false it reads nothing, and items wait.
    ``foreign`` counts datagrams of another session.
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
        """The number of the topic's first message of which nothing had left."""
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
        """True if the stream has ended, and all its items were read."""
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
        """Handle a sign of life of the source's node."""
        self.subscription.handle_alive(now)

    @property
    def end(self) -> StreamEnd | None:
        """The end of the stream; None if that was not read yet."""
        return self.items[-1] if self.items and isinstance(self.items[-1], StreamEnd) else None

    def handle_closing(self, now: float, window: Window, tails: Mapping[int, int]) -> None:
        """Handle that the source closes; ``tails`` are the last numbers of its topics."""
        self.subscription.handle_closing(now, window, tails[self.terms.topic])

    def handle_gone(self, now: float, *, anew: bool = False) -> None:
        """Handle that the source's node vanished, or that the source started ``anew``."""
        self.line.cut(now)
        self.subscription.handle_gone(now, anew=anew)

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        self.line.handle_timeout(now)
        self.subscription.handle_timeout(now)

    def poll_timeout(self) -> float | None:
        """Return when ``handle_timeout`` is due; None if never."""
        return earliest(self.subscription.poll_timeout(), self.line.poll_timeout())

    def poll_transmit(self, now: float) -> Iterator[bytes]:
        """Yield the bodies to send to the source."""
        self.line.look(now)
        return iter(lambda: self.subscription.poll_transmit(now), None)

    def read(self) -> list[Item]:
        """Read all waiting items."""
        told = list[Item]()
        while (item := self.subscription.poll_item()) is not None:
            told.append(item)
        self.items += told
        return told

    def datagram(self, body: bytes) -> bytes:
        """Return a body as a datagram."""
        return self._front + body
