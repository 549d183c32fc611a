"""Two nodes' desks with a stream between them, and a forger who sends datagrams to both.

Whatever comes, they raise nothing, come to an end with what they say, and hold no more than their
settings allow. A stream that is sealed brings what its source sent and nothing else.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, cast

import trio

from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.stream.events import Batch
from sphtp.core.stream.membership import Join, StreamKey
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.sealing import SealCounters, SubscriptionCounters
from sphtp.core.stream.subscription import SubscriptionMachine
from sphtp.shell.channel import Channel
from sphtp.shell.hosted_streams import FanOutSocket, HostedSource, HostedSubscription
from sphtp.shell.stream_dispatcher import StreamDispatcher
from sphtp.shell.udp import UdpSocket
from sphtp.testing.network import DeliveredDatagram, rows
from tests.fuzz.choices import Choices
from tests.fuzz.mutations import mutate
from tests.fuzz.speaker import SETTINGS, WAITS

SOURCE: Final[Address] = ("10.0.0.1", 1000)
READER: Final[Address] = ("10.0.0.2", 2000)
STRANGER: Final[Address] = ("10.0.0.9", 9)
TOPIC: Final = "positions"
KEPT: Final = 64
PATIENCE: Final = 64


class Socket:
    """Keeps what it is given to send."""

    def __init__(self) -> None:
        self.sent: deque[Datagrams] = deque()
        self.too_large: list[Any] = []

    def send(self, waiting: deque[Datagrams]) -> bool:
        self.sent.extend(waiting)
        waiting.clear()
        return True

    def send_to_all(self, data: bytes, size: int, addresses: list[Address]) -> None:
        self.sent.extend(Datagrams(address, data, size) for address in addresses)
        addresses.clear()


class Line:
    """What is known of a channel: who is at its other end."""

    def __init__(self, peer_address: Address) -> None:
        self.peer_address = peer_address


def make_channel(peer: Address) -> Channel:
    """What a stream asks of the channel by which its receiver joined."""
    return cast("Channel", Line(peer))


def make_hosting(socket: Socket, *, is_sealed: bool) -> HostedSource:
    """A source on its node; in here Trio has to run."""
    outlet = FanOutSocket(cast("UdpSocket", socket))
    seals = SealCounters()
    return HostedSource(
        Random(1), SETTINGS, [TOPIC], outlet, lambda: None, seals, is_sealed=is_sealed
    )


def make_attendance(hosting: HostedSource, now: float, *, late_join: int = 0) -> HostedSubscription:
    """A receiver on another node, which has been let in."""
    welcome = hosting.welcome(now, Join(TOPIC), make_channel(READER))
    receiver = Receiver(Random(2), SETTINGS, now, welcome.window)
    subscription = SubscriptionMachine(
        SETTINGS,
        now,
        receiver,
        welcome.session,
        welcome.topic,
        welcome.next,
        late_join=late_join,
        recover=False,
        reach=welcome.reach,
    )
    counters = SubscriptionCounters()
    return HostedSubscription(
        TOPIC, welcome, make_channel(SOURCE), subscription, lambda: None, counters
    )


class Stand:
    """A source, a receiver and the forger; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self.now = trio.current_time()
        self._choices = choices
        self._is_sealed = choices.below(2) > 0
        self._sockets = {SOURCE: Socket(), READER: Socket()}
        self._dispatchers = {
            place: StreamDispatcher(cast("UdpSocket", socket))
            for place, socket in self._sockets.items()
        }
        self._hosting = make_hosting(self._sockets[SOURCE], is_sealed=self._is_sealed)
        self._attendance = make_attendance(self._hosting, self.now)
        self._dispatchers[SOURCE].host(self._hosting)
        self._dispatchers[READER].attend(self._attendance)
        self._heard: deque[bytes] = deque(maxlen=KEPT)
        self._keys: deque[StreamKey] = deque()
        self._sent = self._read = 0
        self._settle()

    def step(self) -> None:
        """Let one thing happen, and see that both are well."""
        self._choices.pick(HAPPENINGS)(self)
        self._settle()

    # What may happen

    def talk(self) -> None:
        """The source sends messages, each of which holds its number."""
        for _ in range(1 + self._choices.below(20)):
            if self._hosting.source.room:
                payload = self._sent.to_bytes(8, "little") * self._choices.pick((1, 10, 100))
                self._hosting.source.send_many(self.now, 0, [payload])
                self._sent += 1

    def throw(self) -> None:
        """Datagrams come to one of both, from the other one or from elsewhere."""
        choices = self._choices
        to = choices.pick((SOURCE, READER))
        address = choices.pick((SOURCE, READER, STRANGER))
        thrown = [self._forge() for _ in range(1 + choices.below(8))]
        self._deliver(address, to, thrown)

    def rekey(self) -> None:
        """Somebody else joins and leaves, and the receiver is told of the new key some day."""
        other = self._hosting.welcome(self.now, Join(TOPIC), make_channel(STRANGER))
        self._hosting.remove_receiver(self.now, other.receiver)
        if (key := self._hosting.renew_key()) is not None:
            self._keys.append(key)

    def learn(self) -> None:
        """The receiver is told of the next key."""
        if self._keys:
            self._attendance.learn(self._keys.popleft())

    def wait(self) -> None:
        """Time passes."""
        self.now += self._choices.pick(WAITS[:-2])
        for dispatcher in self._dispatchers.values():
            dispatcher.handle_timeout(self.now)

    # How it happens

    def _forge(self) -> bytes:
        choices = self._choices
        if not self._heard or not choices.below(8):
            return bytes([0x1C + choices.below(2)]) + choices.some_bytes(60)
        said = choices.pick(self._heard)
        return mutate(choices, said, self._heard) if choices.below(3) else said

    def _deliver(self, address: Address, to: Address, datagrams: Sequence[bytes]) -> None:
        for row in _rows(address, to, datagrams):
            for left in self._dispatchers[to].take_own_untrusted(self.now, row):
                assert left.data[:1] not in (b"\x1c", b"\x1d")

    def _settle(self) -> None:
        for _ in range(PATIENCE):
            for dispatcher in self._dispatchers.values():
                dispatcher.send(self.now)
            said = [(place, list(it.sent)) for place, it in self._sockets.items()]
            if not any(sent for _, sent in said):
                break
            for place, sent in said:
                self._sockets[place].sent.clear()
                for row in sent:
                    self._heard.extend(row.datagrams)
                    if row.address in self._dispatchers:
                        self._deliver(place, row.address, row.datagrams)
        else:
            raise AssertionError(f"still talking at {self.now} s")
        for item in iter(self._attendance.subscription.poll_item, None):
            if self._is_sealed and isinstance(item, Batch):
                self._believe(item)

    def _believe(self, batch: Batch) -> None:
        assert batch.first >= self._read, "a message came twice"
        self._read = batch.first + len(batch.payloads)
        for number, payload in enumerate(batch.payloads, batch.first):
            assert payload[:8] == number.to_bytes(8, "little"), "a forgery was believed"


def _rows(address: Address, to: Address, datagrams: Sequence[bytes]) -> Iterator[Datagrams]:
    for _, row in rows([DeliveredDatagram(address, to, datagram) for datagram in datagrams]):
        yield row


_SHARES: Final[Mapping[Callable[[Stand], None], int]] = {
    Stand.talk: 3,
    Stand.throw: 6,
    Stand.rekey: 1,
    Stand.learn: 2,
    Stand.wait: 2,
}

HAPPENINGS: Final = tuple(it for it, share in _SHARES.items() for _ in range(share))
