"""The sources and subscriptions of a node, each with its machine of the core and its seals.

A source also has its socket and its receivers; a subscription has the channel to its source.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.stream.events import ALL_RECEIVERS
from sphtp.core.stream.membership import Closing, Join, StreamKey, Welcome
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.sealing import (
    FeedbackSeal,
    FeedbackUnsealer,
    SealCounters,
    SourceSeal,
    StreamUnsealer,
    SubscriptionCounters,
    draw_key,
    envelope,
)
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceState, SourceTransport
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.errors import RemoteError
from sphtp.shell.channel import Channel
from sphtp.shell.udp import MulticastGroup, UdpSocket, largest_datagram, open_sender


@contextmanager
def open_fan_out(udp: UdpSocket, group: MulticastGroup | None) -> Iterator["FanOutSocket"]:
    """Open the socket of a source for the length of the block.

    Raises ``UdpAddressError`` for an unknown interface.
    """
    if group is None:
        yield FanOutSocket(udp)
        return
    with open_sender(group) as own:
        yield FanOutSocket(own, group)


class FanOutSocket:
    """A socket that sends each datagram of a stream to several addresses, or to a group."""

    def __init__(self, udp: UdpSocket, group: MulticastGroup | None = None) -> None:
        self._udp = udp
        self._group = group
        # Rows, each with the size of its datagrams and the addresses to which it has not left.
        self._unsent: deque[tuple[bytes, int, list[Address]]] = deque()
        # The rest of a row for one address: the socket had no room, or it takes several calls.
        self._refused: deque[Datagrams] = deque()

    @property
    def group(self) -> Address:
        """The address of the group; an empty host and the port 0 without a group."""
        return self._group.address if self._group else ("", 0)

    @property
    def loopback_datagram(self) -> int:
        """The bytes of the largest datagram if the socket reaches only this machine, else 0."""
        return largest_datagram(self._udp.address)

    def put(self, rows: Sequence[tuple[bytes, int]], addresses: Sequence[Address]) -> None:
        """Queue rows, each with the size of its datagrams, to each of these addresses.

        With a group, the rows go to the group instead.
        """
        if self._group is not None:
            addresses = (self._group.address,)
        for data, size in rows:
            self._unsent.append((data, size, [*addresses]))

    def send(self) -> bool:
        """Send the queued rows. Return False if the socket has no room for all of them.

        As long as the socket has room, each address costs only a system call.
        """
        udp, unsent = self._udp, self._unsent
        while unsent or self._refused:
            if self._refused:
                if not udp.send(self._refused):
                    return False
                # A datagram that the host refuses for its size, which is a setting, counts as lost.
                udp.too_large.clear()
            if unsent:
                data, size, addresses = unsent[0]
                udp.send_to_all(data, size, addresses)
                if addresses:
                    self._refused.append(Datagrams(addresses.pop(), data, size))
                if not addresses:
                    unsent.popleft()
        return True


class StreamReceiver(NamedTuple):
    """The state of one receiver at a source.

    ``peer_id`` is the receiver's id in the cluster, 0 if it has none, and ``address`` its address.
    ``behind`` is the number of sent datagrams whose arrival it has not reported. ``room`` is the
    number of bytes for which it had room at its last report, which was ``silence`` seconds ago. If
    it made no progress for too long, ``is_left_behind`` is true, and the source does not wait for
    it.
    """

    peer_id: int
    address: Address | None
    behind: int
    room: int
    silence: float
    is_left_behind: bool


@dataclass(slots=True, eq=False)
class HostedReceiver:
    """The source node's record of a receiver: its channel, and the seal of its feedback."""

    channel: Channel
    unsealer: FeedbackUnsealer
    key: bytes = field(repr=False)


class HostedSource:
    """One source of a node, with its topics. ``touched`` makes the node send its output."""

    def __init__(
        self,
        secrets: Secrets,
        settings: StreamSettings,
        topics: Sequence[str],
        outlet: FanOutSocket,
        touched: Callable[[], None],
        seals: SealCounters,
        *,
        is_sealed: bool,
    ) -> None:
        self.topics = tuple(topics)
        self.touched = touched
        self.seals = seals
        self.source = SourceTransport(
            secrets,
            settings,
            now=trio.current_time(),
            topics=len(topics),
            envelope=envelope(is_sealed=is_sealed),
            shared=bool(outlet.group[1]),
        )
        self.changed = trio.lowlevel.ParkingLot()
        # A task for each receiver waits for this event. ``changed`` would wake them too often.
        self._all_sent = trio.Event()
        self.history_port = 0
        self._settings = settings
        self._secrets = secrets
        self._is_sealed = is_sealed
        self._outlet = outlet
        self._seal = SourceSeal(self.source.session, secrets if is_sealed else None)
        self._receivers: dict[int, HostedReceiver] = {}
        self._is_stale = False
        self.is_abandoned = False
        """True if the node was closed before the source."""
        self._scopes: set[trio.CancelScope] = set()
        self._connections: dict[int, trio.CancelScope] = {}

    @property
    def session(self) -> int:
        """The id of the source's session."""
        return self.source.session

    @property
    def hosted_receivers(self) -> Sequence[HostedReceiver]:
        """The receivers that have joined and not left."""
        return tuple(self._receivers.values())

    @property
    def is_grouped(self) -> bool:
        """True if the source sends to a group, by a socket of its own."""
        return bool(self._outlet.group[1])

    @property
    def is_full(self) -> bool:
        """True if the source has ``max_receivers``."""
        return len(self._receivers) >= self._settings.max_receivers

    def find(self, receiver: int) -> HostedReceiver | None:
        """Return a receiver by its number; None if there is none with it."""
        return self._receivers.get(receiver)

    # Membership

    def welcome(self, now: float, join: Join, channel: Channel) -> Welcome:
        """Add a receiver. Return the WELCOME for it."""
        receiver = self._new_id()
        key = draw_key(self._secrets) if self._is_sealed else b""
        self._receivers[receiver] = HostedReceiver(channel, FeedbackUnsealer(key, self.seals), key)
        number, source = self.topics.index(join.topic), self.source
        is_back = join.session == self.session
        source.handle_joined(now, receiver, join.settled if is_back else None)
        self.changed.unpark_all()
        group, port = self._outlet.group
        return Welcome(
            session=self.session,
            receiver=receiver,
            topic=number,
            window=source.window,
            next=dict(source.tails)[number] if is_back else source.begins(number),
            reach=source.reach,
            history=self.history_port,
            group=group,
            port=port,
            key=self._seal.key,
            receiver_key=key,
        )

    def receivers(self, now: float) -> tuple[StreamReceiver, ...]:
        """Return the receivers, with their lag."""
        return tuple(receiver for _, receiver in self.numbered_receivers(now))

    def numbered_receivers(self, now: float) -> Iterator[tuple[int, StreamReceiver]]:
        """Return the receivers with their numbers."""
        for number, known in self._receivers.items():
            channel = known.channel
            pace = self.source.pace(now, number)
            yield number, StreamReceiver(channel.peer_id, channel.peer_address, *pace)

    async def closing(self, topic: str) -> Closing:
        """Wait until all data has left. Return the END for a receiver of a topic."""
        await self._all_sent.wait()
        return self.closing_now(topic)

    def closing_now(self, topic: str) -> Closing:
        """Return the END of a topic of a source that sends nothing more."""
        return Closing(self.source.window, self.source.end(self.topics.index(topic)))

    def remove_receiver(self, now: float, receiver: int) -> bool:
        """Remove a receiver. Return True if ``renew_key`` is due now and was not before."""
        del self._receivers[receiver]
        self.source.handle_left(now, receiver)
        if (connection := self._connections.pop(receiver, None)) is not None:
            connection.cancel()
        self.changed.unpark_all()
        was_stale, self._is_stale = self._is_stale, True
        return not was_stale

    def renew_key(self) -> StreamKey | None:
        """Seal with another key from now on, unless the source is over or in the clear.

        Return the key if there is a receiver to send it to.
        """
        self._is_stale = False
        if self.is_over:
            return None
        # Even without receivers: the next one must not share a key with those that have left.
        key = self._seal.renew()
        return key if self._receivers else None

    def fetch_server(self) -> FetchServer:
        """Return a server for one connection to the history."""
        source, rate = self.source, self._settings.fetch_rate
        return FetchServer(source.history, self.session, len(self.topics), source.part, rate)

    @contextmanager
    def until_over(self) -> Iterator[None]:
        """Cancel the block when the source is over."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    @contextmanager
    def only_connection_of(self, receiver: int) -> Iterator[None]:
        """Cancel the block when the receiver opens another connection, or leaves.

        Raises ``RemoteError`` if it has left already.
        """
        if receiver not in self._receivers:
            raise RemoteError("it has left meanwhile")
        if (before := self._connections.pop(receiver, None)) is not None:
            before.cancel()
        with trio.CancelScope() as scope:
            self._connections[receiver] = scope
            try:
                yield
            finally:
                if self._connections.get(receiver) is scope:
                    del self._connections[receiver]

    def close(self, now: float) -> None:
        """Close the source: it sends waiting data, repairs for the linger, and ends."""
        self.source.close(now)

    @property
    def is_over(self) -> bool:
        """True if the source has ended."""
        return self.is_abandoned or self.source.state is SourceState.CLOSED

    def abandon(self) -> None:
        """End the source because its node is closed, so that no further datagram leaves."""
        self.is_abandoned = True
        self.end()

    def end(self) -> None:
        """Have the END sent to all receivers, remove them, and wake the tasks that wait."""
        for scope in self._scopes:
            scope.cancel()
        self.changed.unpark_all()

    # Datagrams and times

    def handle_feedback_untrusted(self, now: float, receiver: int, row: Datagrams) -> bool:
        """Handle feedback. Return False if no receiver has that number and address."""
        known = self._receivers.get(receiver)
        if known is None or known.channel.peer_address != row.address:
            return False
        for body in known.unsealer.open(row.data, row.size):
            self.source.handle_feedback_untrusted(now, receiver, body)
        return True

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due."""
        self.source.handle_timeout(now)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` or ``send`` is due; None if neither is."""
        return self.source.poll_timeout()

    def send(self, now: float) -> bool:
        """Send the datagrams that may leave. Return False if the socket has no room for more."""
        while self._outlet.send():
            outgoing = self.source.poll_transmit(now)
            if outgoing is None:
                if self.source.is_closing:
                    self._all_sent.set()
                if self.changed and (self.source.has_much_room or self.source.is_closing):
                    self.changed.unpark_all()
                return True
            places = self._places(outgoing.receiver)
            self._outlet.put(self._seal.seal(outgoing.bodies), places)
        return False

    def _places(self, receiver: int) -> list[Address]:
        """Return the distinct addresses of a receiver, or of all: one socket gets one copy."""
        those = (
            self._receivers.values() if receiver == ALL_RECEIVERS else [self._receivers[receiver]]
        )
        places = (known.channel.peer_address for known in those)
        return list(dict.fromkeys(place for place in places if place is not None))

    def _new_id(self) -> int:
        while True:
            receiver = self._secrets.getrandbits(32)
            if receiver and receiver not in self._receivers:
                return receiver


class HostedSubscription:
    """One subscription to a source of another node.

    ``changed`` wakes the tasks that wait for changes. ``touched`` makes the node send its output.
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
        """The function that counts the bytes of messages that were polled and not read."""
        self._touched = touched
        self._is_linked = True
        self._is_sealed = welcome.key is not None
        self._unsealer = StreamUnsealer(welcome.key, self.counters)
        self._feedback = FeedbackSeal(welcome.session, welcome.receiver, welcome.receiver_key)

    @property
    def session(self) -> int:
        """The id of the source's session."""
        return self.welcome.session

    # Membership

    def learn(self, key: StreamKey) -> None:
        """Handle the next key of the source."""
        self._unsealer.learn(key)

    def handle_closing(self, closing: Closing) -> None:
        """Handle the END of the source."""
        self.subscription.handle_closing(trio.current_time(), *closing)
        self.touch()

    def handle_gone(self, *, anew: bool = False) -> None:
        """Handle the loss of the source, or with ``anew`` its restart."""
        self.subscription.handle_gone(trio.current_time(), anew=anew)
        self.touch()

    def unlink(self) -> None:
        """Handle the loss of the channel to the source's node.

        Until ``relink``, only datagrams show that the source is alive.
        """
        self._is_linked = False

    @property
    def join(self) -> Join:
        """The JOIN with which this side joins the same session again."""
        return Join(self.topic, self.session, self.subscription.settled)

    def relink(self, welcome: Welcome, channel: Channel) -> None:
        """Handle the WELCOME of the same session over another channel."""
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
        """Handle datagrams that came together."""
        if not self._is_from_source(row.address):
            self.counters.foreign += row.number
            return
        bodies = self._unsealer.open(row.data, row.size)
        self.subscription.handle_bodies_untrusted(now, bodies)
        self.changed.unpark_all()

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due.

        Without a group, a source counts as alive as long as its channel is. With a group it does
        not, because a network may carry unicast and no multicast.
        """
        if not self.welcome.group and self._is_linked:
            self.subscription.handle_alive(now)
        self.subscription.handle_timeout(now)
        self.changed.unpark_all()

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if it is not."""
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
        # Datagrams to a group come from another socket of the source, perhaps on another network.
        return self._is_sealed or address[0] == source[0]
