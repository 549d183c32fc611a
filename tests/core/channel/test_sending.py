"""What leaves, whatever the network does: each byte once and in order, within window and pace."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.frames import (
    AckDelay,
    Fragment,
    Messages,
    Unreliable,
    decode_packet_untrusted,
)
from sphtp.core.channel.receipts import Outcome
from sphtp.core.channel.sent_packets import PacketSubset
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.core.datagrams import MOST_DATAGRAMS, Datagrams
from sphtp.core.serial import MASK
from sphtp.observe import Instrument
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.batches import batch_of, single
from tests.core.channel.talk import follow, send_once
from tests.soaked import soaked

BAD = {
    "none": Faults(),
    "loss": Faults(loss=0.05),
    "reorder": Faults(reorder=0.05, reorder_delay=0.005),
    "duplicate": Faults(duplicate=0.2),
    "burst": Faults(burst=0.005, burst_length=20),
    "all": Faults(loss=0.02, reorder=0.02, duplicate=0.05, burst=0.002),
}
LANES = (Lane(), Lane(ordered=False))


def mixed(seed: int) -> list[bytes]:
    """Messages of every size, many of one size in a row among them."""
    random = Random(seed)
    sizes = [65_536, 65_536, 2**19, 10, *[64] * 300, 65_536, *[1000] * 40, 0, 150_000]
    return [b"%d " % number + random.randbytes(size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("weather", BAD)
@pytest.mark.parametrize(("datagram", "first"), [(1200, 65_000), (65_507, 0)])
def test_every_byte_arrives_once_and_in_order(weather: str, datagram: int, first: int) -> None:
    settings = ChannelSettings(
        base_datagram=datagram,
        max_datagram=datagram,
        first_sequence=first,
        congestion="fixed:3e7",
        timeout=100,
    )
    pair = Pair(7, settings=settings)
    left, right = pair.open()
    pair.network.set_default(BAD[weather])
    sent = mixed(first)
    assert pair.transfer(left, right, sent) == sent
    pair.network.set_default(Faults())
    pair.run(5)
    assert not pair.receive(right)
    assert left.port.statistics().waiting == 0


@pytest.mark.parametrize("most", [1, 1200, 5000, 65_000, 2**20])
def test_a_turn_is_bounded_and_packets_of_a_row_are_alike(most: int) -> None:
    settings = ChannelSettings(max_datagram=1200, congestion="fixed:1e9")
    pair = Pair(1, settings=settings)
    left, _ = pair.open()
    pair.run(1)
    left.port.send_many(mixed(1)[:250])
    sequences = list[int]()
    while (row := left.poll_transmit(pair.now, most)) is not None:
        assert len(row.data) <= max(most, 1200)
        assert row.number <= MOST_DATAGRAMS
        assert row.is_whole
        sequences += [decode_packet_untrusted(it).sequence for it in row.datagrams]
    assert len(sequences) > 100
    assert all((after - before) & MASK == 1 for before, after in pairwise(sequences))


class InFlight(Instrument):
    """Checks, packet by packet, that no more is under way than is allowed."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.window = 0
        self.sent: list[tuple[float, int]] = []

    def packet_sent(self, now: float, channel: Any, packet: Any) -> None:
        if packet.messages or any(frame.kind == "fragment" for frame in packet.frames):
            in_flight = sum(self.sizes.values())
            assert not self.window or in_flight < self.window, (in_flight, self.window)
            self.sizes[packet.sequence] = packet.size
            self.sent.append((now, packet.size))

    def packet_acked(self, now: float, channel: Any, sequence: int) -> None:
        self.sizes.pop(sequence, None)

    def packet_lost(self, now: float, channel: Any, sequence: int, by: Any) -> None:
        self.sizes.pop(sequence, None)

    def congestion_changed(self, now: float, channel: Any, congestion: Any) -> None:
        self.window = congestion.window


@pytest.mark.parametrize("congestion", ["newreno", "cubic", "tolerant"])
def test_window_is_never_exceeded(congestion: str) -> None:
    seen = InFlight()
    settings = ChannelSettings(congestion=congestion, max_datagram=1200)
    pair = Pair(1, Faults(delay=0.02, rate=1e7), settings, instrument=seen)
    left, right = pair.open()
    sent = [bytes(20_000)] * 20 + [bytes(64)] * 400
    assert pair.transfer(left, right, sent) == sent
    assert len(seen.sent) > 300


def test_pace_is_never_exceeded() -> None:
    rate, packet = 1e6, 1200
    seen = InFlight()
    settings = ChannelSettings(congestion=f"fixed:{rate}", max_datagram=packet)
    pair = Pair(1, Faults(delay=0.02), settings, instrument=seen)
    left, right = pair.open()
    sent = [bytes(20_000)] * 20 + [bytes(64)] * 400
    assert pair.transfer(left, right, sent) == sent
    began, total = seen.sent[0][0], 0
    for now, size in seen.sent:
        total += size
        # Ten packets at once, and never more than the rate from there.
        assert total <= (now - began) * rate + 11 * packet


@pytest.mark.parametrize("congestion", ["cubic", "newreno", "tolerant", "fixed:3000"])
def test_a_small_flow_is_repeated_at_the_seeds_pace(congestion: str) -> None:
    """Whatever window and pace say: at 0.1 s, as long as nothing is heard."""
    pair = Pair(1, Faults(delay=0.01), ChannelSettings(congestion=congestion))
    left, right = pair.open()
    assert pair.transfer(left, right, [b"first"]) == [b"first"]
    pair.network.set_faults(Faults(loss=1.0), RIGHT, LEFT)
    left.port.send_many([b"small"])
    pair.touch(left)
    before = left.port.statistics().resent
    pair.run(2)
    assert 17 <= left.port.statistics().resent - before <= 45


def test_an_ack_makes_room_at_once() -> None:
    pair = Pair(1, settings=ChannelSettings(send_buffer=1))
    left, _ = pair.open()
    pair.run(1)
    left.port.send_many([b"a"])
    assert left.port.room_for([1]) == 0
    assert left.port.queue([b"b"]) == 0
    row = left.poll_transmit(pair.now)
    assert row is not None
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams(LEFT, row.data, row.size))
    pair.right.handle_timeout(pair.now + 0.1)
    answer = pair.right.poll_transmit(pair.now + 0.1)
    assert answer is not None
    pair.left.handle_datagrams_untrusted(pair.now + 0.1, Datagrams(RIGHT, answer.data, answer.size))
    assert left.port.room_for([1]) == 1
    assert left.port.queue([b"b", b"c"]) == 1, "the first ones, as far as there is room"


def test_a_deadline_in_the_middle_of_a_message_holds_nothing_up() -> None:
    pair = Pair(3, Faults(loss=0.05), ChannelSettings(max_datagram=1200, lanes=LANES, timeout=100))
    left, right = pair.open()
    tickets = [
        follow(left, bytes([n]) * 300_000, pair.now, lane=n % 2, deadline=pair.now + 0.02 * n)
        for n in range(12)
    ]
    last = follow(left, b"last", pair.now)
    pair.touch(left)
    received = list[bytes]()

    def is_over() -> bool:
        received.extend(pair.receive(right))
        return last.outcome is not None

    pair.drive(is_over, 60)
    pair.run(5)
    received += pair.receive(right)
    assert last.outcome is Outcome.DELIVERED
    assert b"last" in received
    outcomes = [ticket.outcome for ticket in tickets]
    assert Outcome.EXPIRED in outcomes
    delivered = {n for n, outcome in enumerate(outcomes) if outcome is Outcome.DELIVERED}
    assert delivered <= {it[0] for it in received if it != b"last"}
    assert left.port.statistics().waiting == 0


# Smaller packets

SHRINKING = ChannelSettings(lanes=LANES, congestion="fixed:1e6", timeout=100, keepalive=1)
LONG: float = 600.0


def opened_wide(seed: int) -> tuple[Pair, Connection, Connection]:
    """A channel on a path that takes large datagrams, and knows it."""
    pair = Pair(seed, settings=SHRINKING)
    left, right = pair.open()
    assert pair.transfer(left, right, [bytes(10**6)]) == [bytes(10**6)]
    assert left.port.statistics().datagram_size > 30_000
    return pair, left, right


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 4))])
@pytest.mark.parametrize(
    ("lane", "later"), [(1, Faults(mtu=1200)), (0, Faults(mtu=1300, loss=0.1, jitter=0.02))]
)
def test_a_path_that_shrinks_under_way_loses_and_repeats_nothing(
    lane: int, later: Faults, seed: int
) -> None:
    pair, left, right = opened_wide(seed)
    random = Random(seed)
    sizes = [random.choice((0, 30, 1000, 1400, 5000, 40_000, 200_000)) for _ in range(15)]
    payloads = [b"%d " % number + random.randbytes(size) for number, size in enumerate(sizes)]
    tickets = [follow(left, payload, pair.now, lane=lane) for payload in payloads]
    received: list[bytes] = []
    pair.touch(left)
    pair.run(0.5)
    pair.network.set_default(later)
    # Where the reader left enough room, all of the others have arrived by now.
    payloads.append(b"15 " + random.randbytes(200_000))
    tickets.append(follow(left, payloads[-1], pair.now, lane=lane))
    pair.touch(left)

    def is_over() -> bool:
        received.extend(pair.receive(right))
        pair.touch(right)
        return len(received) >= len(payloads)

    pair.drive(is_over, LONG)
    pair.run(5)
    assert (received if lane == 0 else sorted(received)) == (
        payloads if lane == 0 else sorted(payloads)
    )
    assert not pair.receive(right)
    assert left.port.statistics().datagram_size == 1200
    assert [ticket.outcome for ticket in tickets] == [Outcome.DELIVERED] * len(tickets)
    assert left.port.statistics().waiting == 0


def test_what_is_sent_once_and_no_packet_takes_any_more_is_lost_and_holds_nothing_up() -> None:
    pair, left, right = opened_wide(1)
    pair.network.set_default(Faults(mtu=1200))
    large = [send_once(left, bytes(20_000)) for _ in range(50)]
    left.port.send_many([b"x" * 3000] * 20)
    small = send_once(left, b"small")
    pair.touch(left)
    pair.run(20)
    assert {ticket.outcome for ticket in large} == {Outcome.LOST}
    assert small.outcome is not None
    left.close(pair.now)
    pair.touch(left)
    pair.drive(lambda: right.closed is not None)
    assert [it for it in pair.receive(right) if it != b"small"] == [b"x" * 3000] * 20


# What is kept of it


def contents(connection: Connection, now: float) -> Iterator[tuple[int, list[object]]]:
    """The size of each packet that leaves now, and its frames."""
    while (row := connection.poll_transmit(now, 2**20)) is not None:
        for datagram in row.datagrams:
            packet = decode_packet_untrusted(datagram)
            yield len(datagram), [it for it in packet.frames if not isinstance(it, AckDelay)]


@pytest.mark.parametrize(
    ("send", "kinds"),
    [
        (lambda left, _: left.port.send_many([bytes(64)] * 200), {Messages}),
        (lambda left, _: left.port.send_many([bytes(n % 90) for n in range(200)]), {Messages}),
        (lambda left, _: left.port.send_many([bytes(65_536)]), {Fragment}),
        (lambda left, _: [send_once(left, bytes(64)) for _ in range(200)], {Unreliable}),
    ],
    ids=["equal", "varied", "large", "once"],
)
def test_packets_are_filled(send: Callable[[Connection, Pair], object], kinds: set[type]) -> None:
    pair = Pair(1, settings=ChannelSettings(max_datagram=1200, congestion="fixed:1e9"))
    left, _ = pair.open()
    pair.run(1)
    send(left, pair)
    packets = list(contents(left, pair.now))
    assert {type(frame) for _, frames in packets for frame in frames} == kinds
    assert sum(size for size, _ in packets[:-1]) > 0.9 * 1200 * (len(packets) - 1)


def test_receipts_are_kept_where_somebody_asked() -> None:
    pair = Pair(1)
    left, right = pair.open()
    ticket = follow(left, b"followed", pair.now)
    left.port.send_many([b"not"] * 3)
    once = follow(left, b"once", pair.now, delivery=Delivery.UNRELIABLE)
    pair.touch(left)
    pair.run(1)
    assert sorted(pair.receive(right)) == sorted([b"followed", *[b"not"] * 3, b"once"])
    settled = [left.port.poll_settled() for _ in range(3)]
    assert set(settled) == {ticket, once, None}
    assert (ticket.outcome, once.outcome) == (Outcome.DELIVERED, Outcome.ARRIVED)


def test_what_is_sent_once_has_no_copies() -> None:
    pair = Pair(1)
    left, right = pair.open()
    for number in range(20):
        delivery = Delivery.UNRELIABLE if number % 2 else Delivery.RELIABLE
        follow(left, b"%d" % number, pair.now, delivery=delivery, copies=3)
        pair.touch(left)
    pair.run(1)
    assert sorted(map(int, pair.receive(right))) == list(range(20))


def test_a_batch_knows_its_packets_by_bits() -> None:
    it = batch_of(5, 100)
    assert (it.number, it.last, it.oldest_open) == (5, 104, 100)
    assert PacketSubset(it, it.open_before(103)).sequences == [100, 101, 102]
    assert it.open_before(100) == it.open_before(90) == 0
    assert it.open_before(1000) == it.open
    for newest, bits, named in (
        (104, 0b11111, [100, 101, 102, 103, 104]),
        (106, 0b1101, [103, 104]),
        (102, 0b101, [100, 102]),
    ):
        assert PacketSubset(it, it.named_by(newest, bits)).sequences == named
    alone = single(7)
    assert (alone.number, alone.last, alone.oldest_open) == (1, 7, 7)
