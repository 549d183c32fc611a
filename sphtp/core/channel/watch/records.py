"""What instruments are told of: channels, packets, and reasons."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from sphtp.core.channel.delivery import FLAG
from sphtp.core.channel.frames import (
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
from sphtp.core.channel.receipts import Outcome
from sphtp.core.datagrams import Address
from sphtp.core.serial import wrap


class Watched(Protocol):
    """What is told of a connection."""

    peer_id: int
    address: Address | None

    @property
    def connection_id(self) -> int:
        """The id under which the peer sends to this side."""
        ...

    @property
    def is_dialled(self) -> bool:
        """Whether this side wanted it first."""
        ...


class WatchedChannel:
    """The channel that something is told of: the same object every time, fit as a key.

    ``id`` is the connection id that this side has chosen for it, 32 bits; ``is_dialled`` tells
    whether this side wanted it first.
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
        """The peer's id in the cluster, 0 when it has none, or none is known yet."""
        return self._connection.peer_id

    @property
    def peer_address(self) -> Address | None:
        """Where the peer sends from; None before it answered."""
        return self._connection.address


class FrameInfo(NamedTuple):
    """One frame of a packet: what it is, and how much of whose messages it carries."""

    kind: str
    """Its name in the wire format, in lower case; a run of equal messages counts as messages."""
    lane: int | None = None
    """The lane of its messages; None for a frame that carries none."""
    messages: int = 0
    """How many messages it carries whole; 0 for a fragment."""
    size: int = 0
    """Bytes of messages in it."""
    message_id: int | None = None
    """The id of its first reliable message in its lane, in the 16 bits that travel."""
    offset: int = 0
    """Of a fragment, the bytes of its message that come before it."""
    total: int = 0
    """Of a fragment or a skip, the bytes of its whole message."""
    limits: tuple[int, int] | None = None
    """Of a credit, the messages, modulo 2^32, and the bytes that it allows since the opening."""


class PacketInfo(NamedTuple):
    """A packet that was sent or accepted."""

    sequence: int
    """Its number, in full; 16 bits of it travel."""
    size: int
    """Bytes of its datagram."""
    frames: tuple[FrameInfo, ...]
    """What it carries beside its acks: nothing, for a packet that only acks."""
    acked: tuple[tuple[int, int], ...] = ()
    """The packets of the other side that it acks: the first and the last of each row of them."""

    @property
    def messages(self) -> int:
        """How many messages it carries whole."""
        return sum(frame.messages for frame in self.frames)


class RoundTripInfo(NamedTuple):
    """The round trip as it is known, in seconds, without the time that the peer kept an ack."""

    latest: float
    smoothed: float
    deviation: float
    minimum: float


class CongestionInfo(NamedTuple):
    """What congestion control allows."""

    window: int
    """Bytes that may be in flight."""
    in_flight: int
    """Bytes that are."""
    rate: float | None
    """Bytes per second at which packets leave, at most; None before a round trip is known."""
    state: str
    """What the controller is up to: ``slow_start``, ``congestion_avoidance`` and the like."""


class SettledInfo(NamedTuple):
    """A message that somebody follows, at its end."""

    lane: int
    size: int
    """Bytes of it, as packed."""
    outcome: Outcome
    latency: float
    """Seconds from its sending until this was known."""


class Drop(Enum):
    """Why a datagram was thrown away."""

    MALFORMED = "no datagram of this protocol looks like it"
    UNKNOWN = "no channel has its connection id"
    FOREIGN_ADDRESS = "it comes from elsewhere than its channel's peer"
    FORGED_ACK = "it acks a packet that was never sent"
    DUPLICATE = "its packet came before"
    TOO_OLD = "it is so late that nobody can tell whether it came before"
    TOO_EARLY = "there is no room for a message in it, or its channel is not open yet"


class LostBy(Enum):
    """How it was noticed that a packet is lost."""

    PACKETS = "packets that left well after it were acked"
    TIME = "one that left after it was acked, and it has waited for more than a round trip"


class Obstacle(Enum):
    """What keeps messages from leaving."""

    CREDIT = "the peer has told of no more room"
    WINDOW = "as much is in flight as congestion control allows"
    PACING = "the next packet has to wait its turn"
    SEQUENCES = "more packets are on their way than sequences can tell apart"
    LANE = "a lane's oldest message is not acked, and too many came after it"


def describe(
    sequence: int, size: int, frames: Iterable[Frame], acked: tuple[tuple[int, int], ...] = ()
) -> PacketInfo:
    """Describe a packet."""
    infos = [DESCRIBERS[type(frame)](frame) for frame in frames if type(frame) is not AckDelay]
    return PacketInfo(sequence, size, tuple(infos), acked)


def acked_ranges(newest: int, bits: int) -> tuple[tuple[int, int], ...]:
    """Name the packets that a header acks: bit n stands for the packet n before the newest."""
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
    """Describe a packet, or those of a batch, each with its share of what they carry together.

    Packets with content are a batch only if they ack the same; acks alone are put together, and
    what they ack is told with the last of them.
    """
    number = packet.number
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
    """What the packet ``at`` carries of a frame that ``number`` packets carry together."""
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
