"""Events of channels for observers: an ``Instrument`` has one method for each."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from sphtp.core.channel.frames import (
    FLAG,
    FRAGMENT_FRONT,
    AckDelay,
    Close,
    Credit,
    Fragment,
    Frame,
    Messages,
    Packet,
    Padding,
    Ping,
    Skip,
    Unreliable,
)
from sphtp.core.channel.handshake import Refusal
from sphtp.core.channel.lifecycle import Closed
from sphtp.core.channel.receipts import Outcome
from sphtp.core.channel.settings import Delivery
from sphtp.core.datagrams import Address
from sphtp.core.serial import wrap


class Watched(Protocol):
    """The properties of a connection that an instrument can read."""

    peer_id: int
    address: Address | None

    @property
    def connection_id(self) -> int:
        """The id under which the peer sends to this side."""
        ...

    @property
    def is_dialled(self) -> bool:
        """True if this side opened the channel."""
        ...


class WatchedChannel:
    """The channel to which an event belongs.

    All events of a channel pass the same object, which can be a key of a dict. ``id`` is the 32-bit
    connection id that this side has chosen. ``is_dialled`` is true if this side opened the channel.
    """

    __slots__ = ("_connection", "id", "is_dialled")

    def __init__(self, connection: Watched) -> None:
        self._connection = connection
        self.id = connection.connection_id
        self.is_dialled = connection.is_dialled

    def __repr__(self) -> str:
        return f"<WatchedChannel {self.id:#010x}>"

    @property
    def peer_id(self) -> int:
        """The peer's id in the cluster; 0 while it has none or none is known."""
        return self._connection.peer_id

    @property
    def peer_address(self) -> Address | None:
        """The address from which the peer sends; None while none is known."""
        return self._connection.address


class FrameInfo(NamedTuple):
    """One frame of a packet: its kind, and the messages in it."""

    kind: str
    """Its name in the wire format, in lower case; a run of equal messages is ``messages``."""
    lane: int | None = None
    """The lane of its messages; None for a frame without messages."""
    messages: int = 0
    """The number of whole messages in it; 0 for a fragment."""
    size: int = 0
    """Bytes of messages in it."""
    message_id: int | None = None
    """The id of its first reliable message in its lane, cut to 16 bits."""
    offset: int = 0
    """For a fragment: the bytes of its message before it."""
    total: int = 0
    """For a fragment or a skip: the bytes of the whole message."""
    limits: tuple[int, int] | None = None
    """For a credit: the messages, modulo 2^32, and the bytes that it allows since the opening."""


class PacketInfo(NamedTuple):
    """A packet that was sent or accepted."""

    sequence: int
    """Its full packet number, of which the header carries 16 bits."""
    size: int
    """Bytes of its datagram."""
    frames: tuple[FrameInfo, ...]
    """Its frames; empty for a pure ack."""
    acked: tuple[tuple[int, int], ...] = ()
    """The packets of the other side that it acks, as ranges: the first and the last of each."""

    @property
    def messages(self) -> int:
        """The number of whole messages in it."""
        return sum(frame.messages for frame in self.frames)


class RoundTripInfo(NamedTuple):
    """The estimates of the round trip, in seconds, without the peer's ack delay."""

    latest: float
    smoothed: float
    deviation: float
    minimum: float


class CongestionInfo(NamedTuple):
    """The state of congestion control."""

    window: int
    """The congestion window, in bytes."""
    in_flight: int
    """Bytes in flight."""
    rate: float | None
    """The highest rate at which packets leave, in bytes/s; None before a round trip is known."""
    state: str
    """The phase of the controller: ``slow_start``, ``congestion_avoidance`` and the like."""


class SettledInfo(NamedTuple):
    """The outcome of a message with a receipt."""

    lane: int
    size: int
    """Its bytes, as packed."""
    outcome: Outcome
    latency: float
    """Seconds from the call that sent it until its outcome was known."""


class Drop(Enum):
    """The reason why a datagram was dropped."""

    MALFORMED = "the datagram does not have the form of this protocol"
    UNKNOWN = "no channel has the datagram's connection id"
    FOREIGN_ADDRESS = "the datagram does not come from the address of its channel's peer"
    FORGED_ACK = "the datagram acks a packet that was never sent"
    DUPLICATE = "the same packet arrived before"
    TOO_OLD = "the packet is so late that there is no record whether it arrived before"
    TOO_EARLY = "there is no room for a message of the packet, or its channel is not open yet"


class LostBy(Enum):
    """The evidence by which a packet was declared lost."""

    PACKETS = "packets that left well after the lost one were acked"
    TIME = "a later packet was acked, and the lost one has waited for more than a round trip"


class Obstacle(Enum):
    """The limit that keeps messages from leaving."""

    CREDIT = "the credit of the peer is used up"
    WINDOW = "as much is in flight as congestion control allows"
    PACING = "the next packet has to wait its turn"
    SEQUENCES = "so many packets are in flight that a further sequence number would be ambiguous"
    LANE = "a lane's oldest message is not acked, and too many messages were sent after it"


def describe(
    sequence: int, size: int, frames: Iterable[Frame], acked: tuple[tuple[int, int], ...] = ()
) -> PacketInfo:
    """Describe a packet by its sequence, size, frames and acks."""
    infos = [DESCRIBERS[type(frame)](frame) for frame in frames if type(frame) is not AckDelay]
    return PacketInfo(sequence, size, tuple(infos), acked)


def acked_ranges(newest: int, bits: int) -> tuple[tuple[int, int], ...]:
    """Return the packets that a header acks, as ranges; bit n is the packet n before ``newest``."""
    ranges: list[tuple[int, int]] = []
    for sequence in range(newest - bits.bit_length() + 1, newest + 1):
        if bits >> newest - sequence & 1:
            is_next = ranges and ranges[-1][1] == sequence - 1
            first = ranges.pop()[0] if is_next else sequence
            ranges.append((first, sequence))
    return tuple(ranges)


def describe_received(
    sequence: int, packet: Packet, acked: tuple[tuple[int, int], ...]
) -> list[PacketInfo]:
    """Describe a packet, or each packet of a batch with its part of the joint content.

    Packets with content form a batch only if they ack the same. Pure acks are joined, and their
    acks are reported with the last of them.
    """
    number = packet.number
    if number == len(packet.content) > 1:
        # Large packets, with one fragment each.
        return [
            describe(at, FRAGMENT_FRONT.size + len(frame.payload), (frame,), acked)
            for at, frame in enumerate(packet.content, sequence)
            if isinstance(frame, Fragment)
        ]
    whole = describe(sequence, packet.size, packet.frames, acked)
    if number == 1:
        return [whole]
    return [
        PacketInfo(
            sequence + at,
            packet.size // number,
            tuple(_share(frame, number, at) for frame in whole.frames),
            acked if whole.frames or at == number - 1 else (),
        )
        for at in range(number)
    ]


def _share(frame: FrameInfo, number: int, at: int) -> FrameInfo:
    """Return the part of packet ``at`` in a frame that ``number`` packets carry together."""
    messages, size = frame.messages // number, frame.size // number
    message_id = frame.message_id
    if message_id is not None:
        message_id = wrap(message_id + at * messages)
    offset = frame.offset + at * size if frame.total else frame.offset
    return frame._replace(messages=messages, size=size, message_id=message_id, offset=offset)


def _describe_messages(frame: Messages) -> FrameInfo:
    size = sum(map(len, frame.payloads))
    return FrameInfo("messages", frame.lane & ~FLAG, len(frame.payloads), size, frame.first_id)


def _describe_unreliable(frame: Unreliable) -> FrameInfo:
    size = sum(map(len, frame.payloads))
    return FrameInfo("unreliable", frame.lane & ~FLAG, len(frame.payloads), size)


def _describe_fragment(frame: Fragment) -> FrameInfo:
    place = frame.message_id, frame.offset, frame.total
    return FrameInfo("fragment", frame.lane & ~FLAG, 0, len(frame.payload), *place)


def _describe_skip(frame: Skip) -> FrameInfo:
    return FrameInfo("skip", frame.lane & ~FLAG, message_id=frame.message_id, total=frame.size)


def _describe_credit(frame: Credit) -> FrameInfo:
    return FrameInfo("credit", limits=(frame.messages, frame.size))


def _describe_plain(kind: str) -> Callable[[Frame], FrameInfo]:
    info = FrameInfo(kind)
    return lambda _: info


DESCRIBERS: dict[type, Callable[[Any], FrameInfo]] = {
    Messages: _describe_messages,
    Unreliable: _describe_unreliable,
    Fragment: _describe_fragment,
    Skip: _describe_skip,
    Ping: _describe_plain("ping"),
    Padding: _describe_plain("padding"),
    Credit: _describe_credit,
    Close: _describe_plain("close"),
}


class Instrument:
    """The base of observers of a node and its channels, like ``trio.abc.Instrument``.

    Derive from it and override the methods that you need; those here do nothing. A method runs
    while the channel handles the event: it must be quick, cannot wait, and must not use the node or
    its channels. ``now`` is in seconds, ``trio.current_time()`` in a program, and never goes back.
    Sizes are in bytes.
    """

    # The node

    def node_opened(self, now: float, address: Address) -> None:
        """A node has opened its socket at an address, a host and a port."""

    def node_closed(self, now: float) -> None:
        """The node has closed. No further event follows."""

    def datagram_dropped(
        self, now: float, channel: WatchedChannel | None, address: Address, size: int, why: Drop
    ) -> None:
        """A datagram from ``address`` was dropped; ``channel`` is None if it matched none."""

    def channel_refused(self, now: float, address: Address, why: Refusal) -> None:
        """A peer tried to open a channel, and this side refused."""

    # Channels

    def channel_opening(self, now: float, channel: WatchedChannel) -> None:
        """This side or the peer begins to open a channel."""

    def channel_opened(self, now: float, channel: WatchedChannel) -> None:
        """A channel is open: its handshake is complete, and messages flow."""

    def channel_closed(self, now: float, channel: WatchedChannel, closed: Closed) -> None:
        """A channel has ended, or failed to open; ``closed`` gives the reason. Called once.

        Some packets may still be sent and received after it, to complete the close of the peer.
        """

    # Packets

    def packet_sent(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """A packet leaves."""

    def packet_received(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """A packet was accepted. The events of the acks in it came before."""

    def packet_acked(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """The peer has acked a packet."""

    def packet_lost(self, now: float, channel: WatchedChannel, sequence: int, by: LostBy) -> None:
        """A packet is declared lost, and its reliable content will be retransmitted."""

    def loss_was_spurious(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """A packet that was declared lost has arrived. Its ``packet_acked`` follows."""

    def probe_sent(self, now: float, channel: WatchedChannel, unanswered: int) -> None:
        """The probe timeout expired without an ack, so a probe leaves.

        ``unanswered`` is the number of probes since the last ack, this one included.
        """

    # Estimates

    def round_trip_changed(self, now: float, channel: WatchedChannel, trip: RoundTripInfo) -> None:
        """An ack has changed the estimates of the round trip."""

    def congestion_changed(
        self, now: float, channel: WatchedChannel, congestion: CongestionInfo
    ) -> None:
        """The congestion window has changed, or the state of the controller."""

    def path_mtu_changed(self, now: float, channel: WatchedChannel, size: int) -> None:
        """Datagrams have at most ``size`` bytes from now on."""

    # Messages

    def messages_queued(
        self,
        now: float,
        channel: WatchedChannel,
        lane: int,
        delivery: Delivery,
        messages: int,
        size: int,
    ) -> None:
        """``messages`` messages, of ``size`` bytes together, wait in a lane.

        Called once per lane and kind of delivery, for all messages queued since the last poll of
        packets.
        """

    def message_settled(self, now: float, channel: WatchedChannel, message: SettledInfo) -> None:
        """The outcome of a message is known: one with a receipt, or an unreliable one."""

    def credit_sent(self, now: float, channel: WatchedChannel, messages: int, size: int) -> None:
        """A CREDIT leaves: the messages and bytes that the peer may send since the opening."""

    def credit_received(
        self, now: float, channel: WatchedChannel, messages: int, size: int
    ) -> None:
        """A CREDIT arrived: the messages, modulo 2^32, and bytes that this side may send in all."""

    def send_blocked(
        self, now: float, channel: WatchedChannel, why: Obstacle, lanes: tuple[int, ...]
    ) -> None:
        """Messages wait in ``lanes``, and the limit ``why`` keeps them there.

        Called again when the limit changes.
        """

    def send_unblocked(self, now: float, channel: WatchedChannel) -> None:
        """All waiting messages have left."""
