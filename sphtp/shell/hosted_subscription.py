"""A receiver on its node: the machine of one subscription, its seals, and its source's address."""

from collections.abc import Callable

import trio

from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.stream.membership import Closing, Join, StreamKey, Welcome
from sphtp.core.stream.sealing import FeedbackSeal, StreamUnsealer, SubscriptionCounters
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.shell.channel import Channel


class HostedSubscription:
    """One subscription to a source of another node.

    ``changed`` wakes tasks that wait for changes; ``touched`` makes the node look after it.
    """

    def __init__(
        self,
        topic: str,
        welcome: Welcome,
        channel: Channel,
        subscription: SubscriptionMachine,
        touched: Callable[[], None],
        counters: SubscriptionCounters,
    ) -> None:
        self.topic = topic
        self.welcome = welcome
        self.channel = channel
        self.subscription = subscription
        self.counters = counters
        self.changed = trio.lowlevel.ParkingLot()
        self.count_unread: Callable[[], int] = int
        """Counts the bytes of messages that were polled and that the reader has not read."""
        self._touched = touched
        self._is_linked = True
        self._is_sealed = welcome.key is not None
        self._unsealer = StreamUnsealer(welcome.key, self.counters)
        self._feedback = FeedbackSeal(welcome.session, welcome.receiver, welcome.receiver_key)

    @property
    def session(self) -> int:
        """The session's id."""
        return self.welcome.session

    # Membership

    def learn(self, key: StreamKey) -> None:
        """Take the key with which the source seals from now on."""
        self._unsealer.learn(key)

    def handle_closing(self, closing: Closing) -> None:
        """Note that the source ends."""
        self.subscription.handle_closing(trio.current_time(), *closing)
        self.touch()

    def handle_gone(self, *, anew: bool = False) -> None:
        """Note that the source is gone, or began ``anew``."""
        self.subscription.handle_gone(trio.current_time(), anew=anew)
        self.touch()

    def unlink(self) -> None:
        """Note that the channel to the source's node broke: datagrams show whether it lives."""
        self._is_linked = False

    @property
    def join(self) -> Join:
        """Return the JOIN by which it comes back."""
        return Join(self.topic, self.session, self.subscription.settled)

    def relink(self, welcome: Welcome, channel: Channel) -> None:
        """Note that this side rejoined the same session, over another channel."""
        if welcome.key is not None:
            self._unsealer.learn(welcome.key)
        self.welcome, self.channel, self._is_linked = welcome, channel, True
        self._feedback = FeedbackSeal(welcome.session, welcome.receiver, welcome.receiver_key)
        now = trio.current_time()
        self.subscription.handle_rejoined(now, welcome.window, welcome.next)
        self.touch()

    def touch(self) -> None:
        """Wake the tasks that wait, and the node."""
        self.changed.unpark_all()
        self._touched()

    # Datagrams and times

    def handle_row_untrusted(self, now: float, row: Datagrams) -> None:
        """Take datagrams that came together."""
        if not self._is_from_source(row.address):
            self.counters.foreign += row.number
            return
        bodies = self._unsealer.open(row.data, row.size)
        self.subscription.handle_bodies_untrusted(now, bodies)
        self.changed.unpark_all()

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due.

        A source is alive as long as its channel lives. But a group may be silent all the same:
        networks may carry the one and not the other.
        """
        if not self.welcome.group and self._is_linked:
            self.subscription.handle_alive(now)
        self.subscription.handle_timeout(now)
        self.changed.unpark_all()

    def poll_timeout(self) -> float | None:
        """The time at which ``handle_timeout`` is due."""
        return self.subscription.poll_timeout()

    def poll_transmit(self, now: float) -> Datagrams | None:
        """Return the next NAK or STATUS, sealed; None if there is none."""
        address = self.channel.peer_address
        self.subscription.unread = self.count_unread()
        body = self.subscription.poll_transmit(now)
        if body is None or address is None:
            return None
        return Datagrams.of(address, self._feedback.seal(body))

    def _is_from_source(self, address: Address) -> bool:
        source = self.channel.peer_address
        if source is None or not self.welcome.group:
            return address == source
        # What is sent to a group comes from a socket of its own, perhaps on another network.
        return self._is_sealed or address[0] == source[0]
