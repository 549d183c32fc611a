"""Events of a node and its channels for observers; ``Instrument`` has a method for each."""

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
        """The id to which the peer sends."""
        ...

    @property
    def is_dialled(self) -> bool:
        """True if this side dialled. Both sides may have dialled at once."""
        ...


class WatchedChannel:
    """The channel of an event: the same object in all events of a channel, usable as a dict key.

    ``id`` is the 32-bit connection id that this side chose when the channel began to open.
    ``is_dialled`` is true if this side dialled; both sides may have dialled at once.
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
        """The peer's id in the cluster, 0 if it has none.

        Before the parameters of the peer arrive, it is the id that this side dials, 0 for any peer.
        """
        return self._connection.peer_id

    @property
    def peer_address(self) -> Address | None:
        """The address of the peer; None until its first CONNECT or ACCEPT is handled."""
        return self._connection.address


class FrameInfo(NamedTuple):
    """One frame of a packet: its kind, and the messages in it."""

    kind: str
    """The name of the frame in the wire format, in lower case. Both frames with complete reliable
    messages are ``messages``."""
    lane: int | None = None
    """The lane of the frame; None for a frame that belongs to none."""
    messages: int = 0
    """The number of complete messages in the frame; 0 for a fragment."""
    size: int = 0
    """Bytes of message content in the frame."""
    message_id: int | None = None
    """The lower 16 bits of the id of the frame's first reliable message; None if there is none."""
    offset: int = 0
    """Of a fragment: the bytes of its message before it."""
    total: int = 0
    """Of a fragment or a skip: the bytes of the whole message."""
    limits: tuple[int, int] | None = None
    """Of a credit: the messages, modulo 2^32, and the bytes that the receiver of the frame may
    send, both counted from the opening; None for other frames."""


class PacketInfo(NamedTuple):
    """A packet that was sent or accepted."""

    sequence: int
    """The full packet number; only its lower 16 bits travel."""
    size: int
    """Bytes of the packet, without those that sealing adds."""
    frames: tuple[FrameInfo, ...]
    """The frames of the packet except ACK_DELAY; empty for a pure ack."""
    acked: tuple[tuple[int, int], ...] = ()
    """The packets of the other side that this one acks, as ranges: the first and the last number of
    each. Of pure acks that arrived in a row, the last one may have the ranges of all."""

    @property
    def messages(self) -> int:
        """The number of complete messages in the packet."""
        return sum(frame.messages for frame in self.frames)


class RoundTripInfo(NamedTuple):
    """The estimates of the round trip, in seconds, without the peer's ack delay.

    They are the latest sample, the smoothed round trip, its mean deviation, and the minimum.
    """

    latest: float
    smoothed: float
    deviation: float
    minimum: float


class CongestionInfo(NamedTuple):
    """The state of congestion control."""

    window: int
    """The congestion window, in bytes."""
    in_flight: int
    """Bytes of packets that are neither acked nor declared lost."""
    rate: float | None
    """The pacing rate, in bytes/s; None before the first round trip, unless it is fixed."""
    state: str
    """The phase of the controller: ``slow_start``, ``congestion_avoidance`` and the like."""


class SettledInfo(NamedTuple):
    """The outcome of a message with a receipt, or of one that was sent once."""

    lane: int
    size: int
    """Bytes of the packed message."""
    outcome: Outcome
    latency: float
    """Seconds from the call that sent the message until its outcome."""


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
    """The reason why a packet was declared lost."""

    PACKETS = "packets that left well after the lost one were acked"
    TIME = "a later packet was acked, and the lost one has waited for more than a round trip"


class Obstacle(Enum):
    """The limit that keeps messages from leaving."""

    CREDIT = "the credit of the peer is used up"
    WINDOW = "as much is in flight as congestion control allows"
    PACING = "the pacer delays the next packet"
    SEQUENCES = "so many packets are in flight that a further sequence number would be ambiguous"
    LANE = "a lane's oldest message is not acked, and too many messages were sent after it"


def describe(
    sequence: int, size: int, frames: Iterable[Frame], acked: tuple[tuple[int, int], ...] = ()
) -> PacketInfo:
    """Return the description of a packet with this sequence and size, these frames and acks."""
    infos = [DESCRIBERS[type(frame)](frame) for frame in frames if type(frame) is not AckDelay]
    return PacketInfo(sequence, size, tuple(infos), acked)


def acked_ranges(newest: int, bits: int) -> tuple[tuple[int, int], ...]:
    """Return the packets that a header acks, as ranges: the first and the last number of each.

    Bit n of ``bits`` stands for the packet n before ``newest``.
    """
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
    """Return the description of a packet, or of each packet of a batch that was decoded as one.

    Packets of a batch that carry content all have the same acks. In a batch of pure acks, the last
    one is described with all acks, and the others with none.
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
    """Return the part of a joint frame that packet ``at`` of ``number`` packets carried."""
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
    """The base class of observers of a node and its channels, like ``trio.abc.Instrument``.

    Derive from it and override the methods that you need. The methods of this class do nothing. A
    method runs while the channel handles the event. It must be quick, cannot wait, and must not use
    the node or its channels. ``now`` is ``trio.current_time()``, in seconds, or the time of a
    simulation; it never decreases. Sizes are in bytes. Sizes of packets exclude the bytes that
    sealing adds.
    """

    # The node

    def node_opened(self, now: float, address: Address) -> None:
        """A node has opened its socket at an address, a host and a port."""

    def node_closed(self, now: float) -> None:
        """The node has closed. This is its last event."""

    def datagram_dropped(
        self, now: float, channel: WatchedChannel | None, address: Address, size: int, why: Drop
    ) -> None:
        """A datagram of ``size`` bytes from ``address`` was dropped.

        ``channel`` is None if the datagram belongs to no channel.
        """

    def channel_refused(self, now: float, address: Address, why: Refusal) -> None:
        """This side refused a channel that a peer at ``address`` tried to open.

        ``why`` is FULL, WRONG_PEER, GONE, SCHEMA, VERSION or CLEAR. Refusals for another reason are
        not reported, nor is the refusal of a GREET that was made for another key.
        """

    # Channels

    def channel_opening(self, now: float, channel: WatchedChannel) -> None:
        """A channel begins to open, dialled by this side or by the peer."""

    def channel_opened(self, now: float, channel: WatchedChannel) -> None:
        """A channel is open: the handshake of this side is complete, and messages may leave."""

    def channel_closed(self, now: float, channel: WatchedChannel, closed: Closed) -> None:
        """A channel has ended, or failed to open; ``closed`` has the reason. Called once.

        If the peer has closed the channel, packets with acks of its CLOSE may still follow.
        """

    # Packets

    def packet_sent(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """A packet leaves."""

    def packet_received(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """A packet was accepted. The events of the acks in it were called before."""

    def packet_acked(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """The peer has acked a packet."""

    def packet_lost(self, now: float, channel: WatchedChannel, sequence: int, by: LostBy) -> None:
        """A packet is declared lost.

        This side retransmits its reliable content, unless another packet carries that, too.
        """

    def loss_was_spurious(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """The ack of a packet arrived that was declared lost. Its ``packet_acked`` follows."""

    def probe_sent(self, now: float, channel: WatchedChannel, unanswered: int) -> None:
        """The probe timeout has expired without an ack, so a probe leaves.

        ``unanswered`` is the number of probes since the last ack, including this one.
        """

    # Estimates

    def round_trip_changed(self, now: float, channel: WatchedChannel, trip: RoundTripInfo) -> None:
        """An ack has changed the estimates of the round trip."""

    def congestion_changed(
        self, now: float, channel: WatchedChannel, congestion: CongestionInfo
    ) -> None:
        """The congestion window has changed, or the state of the controller."""

    def path_mtu_changed(self, now: float, channel: WatchedChannel, size: int) -> None:
        """Packets with data have at most ``size`` bytes from now on."""

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
        """The application has queued ``messages`` messages of ``size`` bytes together in a lane.

        Called once for all messages of a lane and a kind of delivery that were queued since packets
        were last polled. A message in shared memory counts with the 34 bytes of its descriptor.
        """

    def message_settled(self, now: float, channel: WatchedChannel, message: SettledInfo) -> None:
        """The outcome of a message is known.

        It is reported for each message with a receipt, which ``post`` and ``post_nowait`` return,
        and for each message that any call sends once.
        """

    def credit_sent(self, now: float, channel: WatchedChannel, messages: int, size: int) -> None:
        """A CREDIT leaves. The peer may send so many messages and bytes.

        Both are counted from the opening.
        """

    def credit_received(
        self, now: float, channel: WatchedChannel, messages: int, size: int
    ) -> None:
        """A CREDIT arrived. This side may send so many messages and bytes.

        Both are counted from the opening, messages modulo 2^32.
        """

    def send_blocked(
        self, now: float, channel: WatchedChannel, why: Obstacle, lanes: tuple[int, ...]
    ) -> None:
        """Messages wait in ``lanes``, and none of them may leave, because of ``why``.

        Called again when ``why`` changes.
        """

    def send_unblocked(self, now: float, channel: WatchedChannel) -> None:
        """No message waits to leave any more: all have left, or expired."""
