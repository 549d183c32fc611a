"""Datagrams that come together mean what they mean one by one, whoever made them."""

from dataclasses import asdict
from itertools import cycle, groupby
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.frames import (
    Content,
    Fragment,
    Header,
    Messages,
    Packet,
    decode_fragments_untrusted,
    decode_packet_untrusted,
    encode_data,
    encode_frames,
)
from sphtp.core.channel.instrument import Drop
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.serial import wrap
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.talk import follow
from tests.profiles import brisk, few
from tests.recorder import Recorder

STARTS = (0, 32767, 65535, 2**32 - 1)
ACK = 7
"""Where in a packet its ack is: what it may be depends on how many acks the other side has sent."""

Way = list[tuple[int, int]]
"""How many datagrams are passed over, or come again, before how many that follow one another; the
latter are also the sizes of batches."""

ways = st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 64)), min_size=1, max_size=40)
traffic = st.lists(
    st.tuples(
        st.sampled_from((1, 20, 64, 64, 900, 5000, 40_000)),
        st.integers(1, 60),
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from((Delivery.RELIABLE, Delivery.RELIABLE, Delivery.UNRELIABLE)),
    ),
    min_size=1,
    max_size=5,
)
flips = st.lists(
    st.tuples(
        st.integers(0, 999), st.integers(0, 40).filter(lambda at: at != ACK), st.integers(1, 255)
    ),
    max_size=3,
)
limits = st.fixed_dictionaries(
    {
        "receive_buffer": st.sampled_from((8, 64, 1024)),
        "ack_every": st.sampled_from((1, 2, 16)),
        "ack_delay": st.sampled_from((0.0, 0.01)),
        "max_datagram": st.sampled_from((256, 1200)),
    }
)


class Side:
    """One side of a pair whose network carries nothing: datagrams are handed over by the test."""

    def __init__(self, observer: Recorder | None = None, **changes: Any) -> None:
        settings = ChannelSettings(
            congestion="fixed:1e9", lanes=(Lane(), Lane(ordered=False)), **changes
        )
        self.pair = Pair(1, settings=settings, right_instrument=observer)
        self.left, self.right = self.pair.open()
        self.pair.run(0.5)
        self.pair.network.set_default(Faults(blocked=True))
        self.now = self.pair.now

    def leaving(self, connection: Connection) -> list[bytes]:
        datagrams: list[bytes] = []
        while (row := connection.poll_transmit(self.now)) is not None:
            datagrams += row.datagrams
        return datagrams

    def take(self, source: Address, datagrams: list[bytes], *, joined: bool = True) -> None:
        """Datagrams of one size come together; the last may be shorter.

        They are joined, as small ones are, or were fetched one by one, as large ones are.
        """
        endpoint = self.pair.right if source == LEFT else self.pair.left
        rows = [Datagrams.of(source, datagram) for datagram in datagrams]
        if joined:
            rows = [Datagrams(source, b"".join(datagrams), len(datagrams[0]) or 1)]
        endpoint.handle_rows_untrusted(self.now, rows)

    def acked(self, after: float) -> set[int]:
        """What the right side acks by then."""
        self.now += after
        self.right.handle_timeout(self.now)
        packets = map(decode_packet_untrusted, self.leaving(self.right))
        pairs = [(it.ack, it.ack_bits) for it in packets]
        return {wrap(ack - n) for ack, bits in pairs for n in range(32) if bits >> n & 1}

    def figures(self) -> dict[str, Any]:
        figures = asdict(self.right.port.statistics())
        # How many packets carried acks back is the one thing that may differ.
        del figures["sent"], figures["bytes_sent"]
        return figures | asdict(self.pair.right.counters)


def batches(datagrams: list[bytes], way: Way) -> list[list[bytes]]:
    """Lose, repeat and reorder datagrams, and join those of one size that follow one another."""
    came: list[bytes] = []
    at = 0
    for step, number in way:
        at = max(at + step, 0)
        came += datagrams[at : at + number]
        at += number
    came += datagrams[at:]
    cuts = cycle(number for _, number in way)
    together: list[list[bytes]] = []
    for _, alike in groupby(came, len):
        row = list(alike)
        while row:
            number = next(cuts)
            together.append(row[:number])
            row = row[number:]
    return together


def flip(datagram: bytes, place: int, change: int) -> bytes:
    at = min(place, len(datagram) - 1)
    return datagram[:at] + bytes([datagram[at] ^ change]) + datagram[at + 1 :]


def send(sender: Connection, now: float, messages: list[tuple[int, int, int, Delivery]]) -> None:
    for number, (size, count, lane, delivery) in enumerate(messages):
        if delivery is Delivery.UNRELIABLE:
            follow(sender, bytes([number]) * min(size, 150), now, delivery=delivery)
            continue
        payloads = [bytes([number, it]) * (size // 2 or 1) for it in range(count)]
        room = sender.port.room_for([len(it) for it in payloads], lane)
        sender.port.send_many(payloads[:room], lane)


@few
@given(st.sampled_from(STARTS), limits, traffic, ways, flips, st.booleans())
@example(
    0,
    {"ack_every": 16, "max_datagram": 256},
    [(40_000, 1, 0, Delivery.RELIABLE)],
    [(0, 64)],
    [],
    True,
)
@example(
    0, {"max_datagram": 256}, [(20, 60, 0, Delivery.RELIABLE)] * 5, [(0, 9), (1, 64)], [], True
)
@example(
    0,
    {"receive_buffer": 1024},
    [(40_000, 3, 0, Delivery.RELIABLE)],
    [(0, 30), (-9, 60)],
    [(40, 15, 1)],
    False,
)
def test_a_batch_does_what_its_datagrams_do(
    first: int,
    changes: dict[str, Any],
    messages: list[tuple[int, int, int, Delivery]],
    way: Way,
    changed: list[tuple[int, int, int]],
    joined: bool,
) -> None:
    together, alone = (Side(first_sequence=first, **changes) for _ in range(2))
    assert together.right.connection_id == alone.right.connection_id
    send(together.left, together.now, messages)
    datagrams = together.leaving(together.left)
    for which, place, change in changed if datagrams else ():
        datagrams[which % len(datagrams)] = flip(datagrams[which % len(datagrams)], place, change)
    received: list[list[bytes]] = [[], []]
    acked: list[set[int]] = [set(), set()]
    came = batches(datagrams, way)
    for number, batch in enumerate(came):
        together.take(LEFT, batch, joined=joined)
        for datagram in batch:
            alone.take(LEFT, [datagram])
        for place, side in enumerate((together, alone)):
            if number % 3 == 0:
                received[place] += side.pair.receive(side.right)
                acked[place] |= side.acked(0.0)
        assert together.figures() == alone.figures()
    for place, side in enumerate((together, alone)):
        received[place] += side.pair.receive(side.right)
        acked[place] |= side.acked(0.02)
    assert received[0] == received[1]
    if changed:
        # A packet that was changed may ask for no ack; whether one names it depends on others.
        return
    assert acked[0] == acked[1]
    if not together.figures()["too_early"]:
        assert acked[0] >= {decode_packet_untrusted(it).sequence for batch in came for it in batch}


def test_what_is_decoded_together_is_what_is_decoded_one_by_one() -> None:
    many: dict[str, list[Content]] = {
        "runs": [Messages(0, wrap(65534 + n), [bytes([n]) * 99]) for n in range(4)],
        "fragments": [Fragment(0, 65535, n * 99, 396, bytes([n]) * 99) for n in range(4)],
        "acks": [],
    }
    for name, contents in many.items():
        fronts = [encode_data(7, Header(wrap(65534 + n), 5, 2**32 - 1)) for n in range(4)]
        datagrams = [encode_frames(contents[n : n + 1], front) for n, front in enumerate(fronts)]
        alone = [decode_packet_untrusted(it) for it in datagrams]
        joined = decode_packet_untrusted(b"".join(datagrams), 0, len(datagrams[0]))
        rows = [joined, *[decode_fragments_untrusted(datagrams, 0, 9)] * (name == "fragments")]
        for packet in rows:
            assert (packet.number, packet.size) == (4, 4 * len(datagrams[0])), name
            assert {it._replace(sequence=0, content=(), size=0) for it in alone} == {
                packet._replace(sequence=0, content=(), size=0, number=1)
            }
            assert packet.sequence == alone[0].sequence
            assert payload_of([packet]) == payload_of(alone)


def payload_of(packets: list[Packet]) -> bytes:
    frames = [frame for packet in packets for frame in packet.content]
    return b"".join(
        bytes(frame.payload) if isinstance(frame, Fragment) else b"".join(frame.payloads)
        for frame in frames
        if isinstance(frame, Fragment | Messages)
    )


def test_of_datagrams_fetched_one_by_one_each_has_to_keep_to_the_size() -> None:
    side = Side(max_datagram=1200)
    send(side.left, side.now, [(20, 1, 0, Delivery.RELIABLE)])
    (datagram,) = side.leaving(side.left)
    packet = decode_packet_untrusted(datagram)
    (content,) = packet.content
    assert isinstance(content, Messages)
    datagrams = []
    for number, (offset, length) in enumerate([(0, 1300), (1300, 700)]):
        header = Header(wrap(packet.sequence + number), packet.ack, packet.ack_bits)
        fragment = Fragment(0, content.first_id, offset, 2000, bytes(length))
        front = encode_data(side.right.connection_id, header)
        datagrams.append(encode_frames([fragment], front))
    before = side.right.port.statistics()
    side.take(LEFT, datagrams, joined=False)
    after = side.right.port.statistics()
    assert after.malformed - before.malformed == 1
    assert after.received - before.received == 1


def test_of_a_batch_an_observer_is_told_what_it_is_of_its_datagrams() -> None:
    observers = [Recorder(), Recorder(), Recorder()]
    for way, observer in enumerate(observers):
        side = Side(observer, max_datagram=1200)
        messages = [(40_000, 2, 0, Delivery.RELIABLE), (200, 250, 1, Delivery.RELIABLE)]
        send(side.left, side.now, messages)
        datagrams = side.leaving(side.left)
        datagrams[20] = flip(datagrams[20], 13, 0x40)
        datagrams[30] = flip(datagrams[30], 8, 0x40)
        datagrams[40] = flip(datagrams[40], 1, 0x40)
        datagrams[50] = flip(datagrams[50], 0, 0x40)
        for batch in batches(datagrams, [(0, 60), (-5, 40), (2, 50), (-30, 9)]):
            for part in [batch] if way else [[it] for it in batch]:
                side.take(LEFT, part, joined=way == 1)
    for event in ("packet_received", "datagram_dropped", "credit_received"):
        first, *others = (sorted(map(repr, observer.of(event))) for observer in observers)
        assert others == [first, first]
    whys = {why for *_, why in observers[0].of("datagram_dropped")}
    assert whys == {Drop.MALFORMED, Drop.FORGED_ACK, Drop.UNKNOWN, Drop.DUPLICATE}


@brisk
@given(st.sampled_from(STARTS), ways, ways)
def test_acks_that_come_together_ack_what_they_do_one_by_one(
    first: int, there: Way, back: Way
) -> None:
    sides = [Side(first_sequence=first, max_datagram=1200, ack_every=1) for _ in range(2)]
    tickets: list[list[Ticket]] = []
    for together, side in enumerate(sides):
        tickets.append([follow(side.left, bytes(900), side.now) for _ in range(40)])
        acks: list[bytes] = []
        for batch in batches(side.leaving(side.left), there):
            side.take(LEFT, batch)
            acks += side.leaving(side.right)
        for batch in batches(acks, back):
            for part in [batch] if together else [[it] for it in batch]:
                side.take(RIGHT, part)
        side.left.handle_timeout(side.now)
    one, other = ([it.outcome for it in row] for row in tickets)
    assert one == other
    assert set(one) <= {None, Outcome.DELIVERED}


def test_acks_far_apart_are_no_more_work_together() -> None:
    """As one number their bits would be as many as the packets between them."""
    side = Side()
    to = side.right.connection_id
    before = side.right.port.statistics().received
    rows = [Header(wrap(1000 + n), n * 64 & 0xFFFF, 2**32 - 1) for n in range(5000)]
    side.take(LEFT, [encode_data(to, header) for header in rows])
    figures = side.right.port.statistics()
    assert figures.received - before + figures.malformed == 5000
    assert figures.forged_acks > 2000


@pytest.mark.parametrize("together", [True, False])
def test_what_reaches_no_connection_is_counted_by_the_datagram(*, together: bool) -> None:
    side = Side()
    send(side.left, side.now, [(40_000, 1, 0, Delivery.RELIABLE)])
    datagrams = side.leaving(side.left)
    same = [it for it in datagrams if len(it) == len(datagrams[2])]
    assert len(same) > 5

    def take(source: Address, datagrams: list[bytes]) -> None:
        for batch in [datagrams] if together else [[it] for it in datagrams]:
            row = Datagrams(source, b"".join(batch), len(batch[0]) or 1)
            side.pair.right.handle_datagrams_untrusted(side.now, row)

    take(LEFT, [it[:1] + bytes([it[1] ^ 1]) + it[2:] for it in same])
    assert side.pair.right.counters.unknown == len(same)
    take(LEFT, [b"\0" + it[1:] for it in same])
    assert side.pair.right.counters.malformed == len(same)
    take(("10.9.9.9", 1), same)
    assert side.right.port.statistics().foreign_address == len(same)
    take(LEFT, [b""])
    assert side.pair.right.counters.malformed == len(same) + 1
