"""The nodes that are besieged, what is asked of each, and the application that lives on one.

Whatever takes rows of datagrams and gives rows of datagrams can be one: to have another, add its
line to ``SUBJECTS``.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.security import Security
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.errors import LocalError

SETTINGS: Final = ChannelSettings(
    max_datagram=9000,
    max_message=100_000,
    send_buffer=256,
    send_buffer_bytes=400_000,
    receive_buffer=256,
    receive_buffer_bytes=400_000,
    unreliable_buffer=32,
    backlog=8,
    lanes=(Lane(), Lane(priority=1), Lane(ordered=False)),
)
"""Limits so small that they are met."""

MOST_ROWS: Final = 4096
"""No node has more to say at once: it would never end."""

MOST_CHANNELS: Final = 8
"""An application has no more channels than this, and aborts the oldest for a new one."""


class Node(Protocol):
    """What an ``Endpoint`` has, and whatever wraps one."""

    @property
    def connections(self) -> tuple[Connection, ...]: ...
    def dial(self, now: float, candidates: Sequence[Address], wanted: int = 0) -> Connection: ...
    def touch(self, connection: Connection) -> None: ...
    def close(self, now: float, why: str) -> None: ...
    def handle_datagrams_untrusted(self, now: float, row: Datagrams) -> None: ...
    def handle_rows_untrusted(self, now: float, rows: Sequence[Datagrams]) -> None: ...
    def handle_too_large(self, now: float, address: Address, size: int) -> None: ...
    def handle_timeout(self, now: float) -> None: ...
    def poll_transmit(self, now: float, most: int = 0) -> Datagrams | None: ...
    def poll_active(self) -> Connection | None: ...
    def poll_incoming(self) -> Connection | None: ...
    def poll_timeout(self) -> float | None: ...


@dataclass(frozen=True)
class Subject:
    """``make`` gives a node; of one that ``is_sealed``, forgeries reach no application."""

    make: Callable[[Secrets, ChannelSettings, int], Node]
    is_sealed: bool = False


def _watched(secrets: Secrets, settings: ChannelSettings, peer_id: int) -> Node:
    return Endpoint(secrets, settings, peer_id, observer=Instrument())


def _sealed(secrets: Secrets, settings: ChannelSettings, peer_id: int) -> Node:
    return Endpoint(secrets, settings, peer_id, security=Security())


SUBJECTS: Final[Mapping[str, Subject]] = {
    "clear": Subject(Endpoint),
    "watched": Subject(_watched),
    "sealed": Subject(_sealed, is_sealed=True),
}


def make_node(subject: Subject, name: str, peer_id: int) -> Node:
    """A node that draws what it draws from its name."""
    return subject.make(Random(name), SETTINGS, peer_id)


class Application:
    """Holds the channels of a node, reads what comes, and sends what it shall.

    ``told`` is called with every message and its channel.
    """

    def __init__(self, node: Node, told: Callable[[Connection, bytes], None]) -> None:
        self.node = node
        self.channels: deque[Connection] = deque()
        self._told = told

    def open(self, now: float, candidates: Sequence[Address]) -> Connection:
        """Dial, and keep the channel."""
        channel = self.node.dial(now, candidates)
        self._keep(now, channel)
        return channel

    def transmissions(self, now: float) -> Iterator[Datagrams]:
        """All that the node has to send by now; it must come to an end."""
        for _ in range(MOST_ROWS):
            row = self.node.poll_transmit(now)
            if row is None:
                return
            yield row
        raise AssertionError(f"still talking after {MOST_ROWS} rows at {now} s")

    def look(self, now: float, *, reads: bool = True) -> None:
        """Take in what is new: channels, events, receipts, and messages where it ``reads``."""
        while (incoming := self.node.poll_incoming()) is not None:
            self._keep(now, incoming)
        while (channel := self.node.poll_active()) is not None:
            while channel.poll_event() is not None:
                pass
            while channel.port.poll_settled() is not None:
                pass
            if reads:
                self.read(channel)

    def read(self, channel: Connection) -> None:
        """Take every message that is there, and tell of each."""
        while payloads := channel.port.receive_many(64):
            for payload in payloads:
                self._told(channel, payload)
            # What only reading makes room for has to be told.
            self.node.touch(channel)

    def send(self, now: float, channel: Connection, payload: bytes, wish: "Wish") -> bool:
        """Send a message, if it can be by now."""
        ticket = Ticket(now, wish.lane, wish.deadline, wish.copies)
        try:
            is_once = wish.delivery is not Delivery.RELIABLE
            fits = is_once or channel.port.room_for([len(payload)], wish.lane) > 0
            if fits:
                channel.port.send(payload, ticket, wish.delivery)
        except LocalError:
            # The channel is over, or the message too large for a packet.
            return False
        self.node.touch(channel)
        return fits

    def _keep(self, now: float, channel: Connection) -> None:
        self.channels.append(channel)
        if len(self.channels) > MOST_CHANNELS:
            oldest = self.channels.popleft()
            oldest.abort(now)
            self.node.touch(oldest)


@dataclass(frozen=True)
class Wish:
    """How a message shall be sent."""

    delivery: Delivery = Delivery.RELIABLE
    lane: int = 0
    deadline: float | None = None
    copies: int = 0
