"""Datagrams by somebody who hears everything that goes to a node, and writes in its peer's name."""

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from sphtp.core.channel.frames import (
    DATA,
    DATA_FIRST,
    FLAG,
    AckDelay,
    Close,
    Credit,
    Fragment,
    Frame,
    Messages,
    Padding,
    Ping,
    Skip,
    Unreliable,
    encode_frames,
)
from sphtp.core.datagrams import FRONT
from sphtp.core.serial import MASK
from tests.fuzz.choices import Choices
from tests.fuzz.mutations import mutate

REMEMBERED: Final = 256
LONGEST_ROW: Final = 64
LANES: Final = (0, 0, 0, 1, 2, 2 | FLAG, FLAG, 63, 64, 0xFF)
SIZES: Final = (0, 1, 1, 2, 16, 100, 1000)
TOTALS: Final = (1, 2, 100, 5000, 100_000, 100_001, 2**32 - 1)


class Forger:
    """Remembers the last datagrams to one node, and makes others of them."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._openings: deque[bytes] = deque(maxlen=REMEMBERED)
        self._packets: deque[bytes] = deque(maxlen=REMEMBERED)
        self._followed: AbstractSet[int] = set()
        # How many numbers were used up in the peer's name since it last used one.
        self._ahead = 0

    def hear(self, datagram: bytes) -> None:
        """Remember a datagram that goes to the node."""
        if len(datagram) < DATA.size or datagram[0] != DATA_FIRST:
            self._openings.append(datagram)
            return
        self._packets.append(datagram)
        self._ahead = 0

    def follow(self, ids: AbstractSet[int]) -> None:
        """Forget packets of channels that are over: nobody would read them."""
        if ids != self._followed:
            self._followed = ids
            kept = [packet for packet in self._packets if FRONT.unpack_from(packet)[1] in ids]
            self._packets = deque(kept, maxlen=REMEMBERED)

    def datagrams(self) -> Sequence[bytes]:
        """Some datagrams that come together."""
        return self._choices.pick(KINDS)(self)

    def replay(self) -> Sequence[bytes]:
        return [self._any() for _ in range(self._number())]

    def mutants(self) -> Sequence[bytes]:
        """One datagram changed here and there, each time in another way."""
        model = self._any()
        return [mutate(self._choices, model, self._packets) for _ in range(self._number())]

    def renumbered(self) -> Sequence[bytes]:
        """The same, under numbers that the node waits for."""
        model = self._any()[DATA.size :]
        bodies = [mutate(self._choices, model, self._packets) for _ in range(self._number())]
        return [self._front() + body for body in bodies]

    def noise(self) -> Sequence[bytes]:
        return [self._choices.some_bytes(100) for _ in range(self._number())]

    def frames(self) -> Sequence[bytes]:
        """Frames that are well formed and say what nobody said."""
        return [self._front() + encode_frames(self._sentence()) for _ in range(self._number())]

    def run(self) -> Sequence[bytes]:
        """Packets that follow one another, perhaps one of them changed."""
        choices, number = self._choices, self._number()
        say = choices.pick(RUNS)(self)
        packets = [self._front(1) + encode_frames(say(place)) for place in range(number)]
        if not choices.below(3):
            at = choices.below(number)
            packets[at] = mutate(choices, packets[at], self._packets)
        return packets

    def _sentence(self) -> list[Frame]:
        return [self._choices.pick(FRAMES)(self) for _ in range(1 + self._choices.below(3))]

    def _front(self, step: int = 0) -> bytes:
        """A header as the peer's next one could be."""
        choices = self._choices
        if not self._packets:
            return choices.some_bytes(DATA.size)
        _, to, sequence, ack, bits = DATA.unpack_from(choices.pick(self._packets))
        self._ahead += step or choices.pick((0, 1, 1, 1, 2, 40))
        return DATA.pack(DATA_FIRST, to, (sequence + self._ahead) & MASK, ack, bits)

    def _any(self) -> bytes:
        heard = self._packets if self._choices.below(6) else self._openings
        return self._choices.pick(heard) if heard else self._choices.some_bytes(100)

    def _number(self) -> int:
        return 1 + self._choices.below(self._choices.pick((1, 8, LONGEST_ROW)))

    # What frames hold

    def messages(self) -> Frame:
        payloads = [self._payload() for _ in range(1 + self._choices.below(4))]
        return Messages(self._lane(), self._id(), payloads)

    def unreliable(self) -> Frame:
        return Unreliable(self._lane(), self._id(), [self._payload()])

    def fragment(self) -> Frame:
        offset, total = self._choices.pick(TOTALS) - 1, self._choices.pick(TOTALS)
        return Fragment(self._lane(), self._id(), offset, total, self._payload() or b"x")

    def skip(self) -> Frame:
        return Skip(self._lane(), self._id(), self._choices.pick(TOTALS))

    def credit(self) -> Frame:
        return Credit(self._choices.pick(TOTALS), self._choices.pick((0, 10**6, 2**64 - 1)))

    def ack_delay(self) -> Frame:
        return AckDelay(self._choices.pick((0.0, 0.01, 6.0)))

    def ping(self) -> Frame:
        return Ping()

    def padding(self) -> Frame:
        return Padding(1 + self._choices.below(200))

    def close(self) -> Frame:
        # Rarely, for nothing that comes after it goes as deep.
        if self._choices.below(16):
            return Ping()
        return Close(self._choices.below(256), "?" * self._choices.below(150))

    def messages_in_a_row(self) -> Callable[[int], list[Frame]]:
        lane, first, count = self._lane(), self._id(), 1 + self._choices.below(4)
        payloads = [bytes(1 + self._choices.below(20))] * count
        return lambda place: [Messages(lane, (first + place * count) & MASK, payloads)]

    def fragments_in_a_row(self) -> Callable[[int], list[Frame]]:
        lane, message_id, total = self._lane(), self._id(), self._choices.pick(TOTALS)
        part = bytes(1 + self._choices.below(200))
        return lambda place: [Fragment(lane, message_id, place * len(part), total, part)]

    def acks_in_a_row(self) -> Callable[[int], list[Frame]]:
        return lambda _: []

    def _lane(self) -> int:
        return self._choices.pick(LANES)

    def _id(self) -> int:
        return self._choices.below(300 if self._choices.below(8) else 65_536)

    def _payload(self) -> bytes:
        return bytes(self._choices.pick(SIZES))


KINDS: Final[Sequence[Callable[[Forger], Sequence[bytes]]]] = (
    Forger.replay,
    Forger.mutants,
    Forger.mutants,
    Forger.mutants,
    Forger.renumbered,
    Forger.renumbered,
    Forger.noise,
    Forger.frames,
    Forger.frames,
    Forger.run,
)

RUNS: Final[Sequence[Callable[[Forger], Callable[[int], list[Frame]]]]] = (
    Forger.messages_in_a_row,
    Forger.fragments_in_a_row,
    Forger.acks_in_a_row,
)

FRAMES: Final[Sequence[Callable[[Forger], Frame]]] = (
    Forger.messages,
    Forger.messages,
    Forger.fragment,
    Forger.fragment,
    Forger.unreliable,
    Forger.skip,
    Forger.credit,
    Forger.ack_delay,
    Forger.close,
    Forger.ping,
    Forger.padding,
)
