"""Rows of datagrams of one size, as senders make them and as liars do."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from sphtp.core.channel.delivery import FLAG
from sphtp.core.channel.frames import DATA, DATA_FIRST, FRAGMENT_LAYOUT, RUN_LAYOUT, FrameKind
from sphtp.core.serial import wrap

ACK = 7
FRONT = DATA.size + FRAGMENT_LAYOUT.size


@dataclass(frozen=True)
class Script:
    """``number`` packets that follow one another, and what then becomes of some of them.

    ``sequence`` and ``message`` count from where the peer is to go on, ``ack`` from the first
    packet that it is sent. ``flips`` change one byte each of one packet, ``lies`` the same byte of
    all; ``order`` says which packets come, and in what order.
    """

    number: int
    sequence: int
    message: int
    kind: FrameKind
    length: int
    count: int = 1
    lane: int = 0
    total: int = 0
    offset: int = 0
    ack: int = 0
    bits: int = 0
    flips: list[tuple[int, int, int]] = field(default_factory=list)
    lies: list[tuple[int, int]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    cut: int = 0

    def datagrams(self, to: int, sequence: int, message: int) -> list[bytes]:
        """Encode them for a connection whose peer goes on with these.

        Both sides began with ``message``, as the id of a message and of a packet.
        """
        first = sequence + self.sequence, message + self.message, message + self.ack
        packets = [self._packet(number, to, *first) for number in range(self.number)]
        for place, change in self.lies:
            packets = [_flip(packet, place, change) for packet in packets]
        for which, place, change in self.flips:
            which %= self.number
            packets[which] = _flip(packets[which], place, change)
        row = [packets[number % self.number] for number in self.order] or packets
        row[-1] = row[-1][: len(row[-1]) - self.cut % len(row[-1])]
        return row

    def _packet(self, number: int, to: int, first: int, message: int, ack: int) -> bytes:
        header = DATA.pack(DATA_FIRST, to, wrap(first + number), wrap(ack), self.bits)
        if self.kind is FrameKind.FRAGMENT:
            offset, size = self.offset + number * self.length, self.length
            front = FRAGMENT_LAYOUT.pack(
                self.kind, self.lane, wrap(message), offset, self.total, size
            )
        else:
            message, size = message + number * self.count, self.count * self.length
            front = RUN_LAYOUT.pack(self.kind, self.lane, wrap(message), self.count, self.length)
        return header + front + bytes([65 + number % 26]) * size


def _flip(packet: bytes, place: int, change: int) -> bytes:
    place %= min(len(packet), FRONT + 2)
    if place == ACK:
        # How many packets were sent, acks with them, depends on how they were received.
        return packet
    return packet[:place] + bytes([packet[place] ^ change]) + packet[place + 1 :]


def _flips() -> st.SearchStrategy[list[tuple[int, int, int]]]:
    flip = st.tuples(st.integers(0, 39), st.integers(0, FRONT + 1), st.integers(1, 255))
    return st.lists(flip, max_size=3)


def _lies() -> st.SearchStrategy[list[tuple[int, int]]]:
    lie = st.tuples(st.integers(0, FRONT + 1) | st.sampled_from((0, 1)), st.integers(1, 255))
    return st.lists(lie, max_size=2)


def scripts() -> st.SearchStrategy[Script]:
    """Rows of all sorts: whole, with holes, repeats and lies, and cut short."""
    common: dict[str, Any] = {
        "number": st.integers(1, 40),
        "sequence": st.integers(-20, 60),
        "message": st.sampled_from((0, 0, 0, 1, 5, -3)),
        "lane": st.sampled_from((0, 0, 0, 1, FLAG, FLAG | 1, 70)),
        "ack": st.integers(0, 7) | st.just(5000),
        "bits": st.sampled_from((0, 1, 0b10110, 0xFFFFFFFF)),
        "flips": st.just([]) | _flips(),
        "lies": st.just([]) | _lies(),
        "order": st.just([]) | st.lists(st.integers(0, 39), max_size=40),
        "cut": st.just(0) | st.integers(0, 60),
    }
    fragments = st.builds(
        Script,
        kind=st.just(FrameKind.FRAGMENT),
        length=st.integers(1, 50),
        total=st.integers(1, 3000),
        offset=st.just(0) | st.integers(0, 500),
        **common,
    )
    messages = st.builds(
        Script,
        kind=st.just(FrameKind.RUN),
        length=st.integers(0, 20),
        count=st.integers(0, 5),
        **common,
    )
    return fragments | messages
