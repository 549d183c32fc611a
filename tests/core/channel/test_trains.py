"""Large messages in small packets, which leave and arrive many at a time, on any network."""

from random import Random

import pytest

from sphtp.core.channel.delivery import Lane
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.sent_packets import Hit, SentBatch
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.ticket import Outcome
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow
from tests.core.channel.trains import sequences, single, train

BAD = {
    "none": Faults(),
    "loss": Faults(loss=0.05),
    "reorder": Faults(reorder=0.05, reorder_delay=0.005),
    "duplicate": Faults(duplicate=0.2),
    "burst": Faults(burst=0.005, burst_length=20),
    "all": Faults(loss=0.02, reorder=0.02, duplicate=0.05, burst=0.002),
}


def settings(first: int = 0) -> ChannelSettings:
    return ChannelSettings(
        max_datagram=1200, congestion="fixed:3e7", first_sequence=first, timeout=100, keepalive=1
    )


@pytest.mark.parametrize("weather", BAD)
@pytest.mark.parametrize("first", [0, 65_000])
def test_large_messages_arrive_whole_in_small_packets(weather: str, first: int) -> None:
    pair = Pair(7, settings=settings(first))
    left, right = pair.open()
    pair.network.set_default(BAD[weather])
    random = Random(first)
    sent = [random.randbytes(size) for size in (65_536, 65_536, 2**20, 10, 65_536, 300_000)]
    assert pair.transfer(left, right, sent) == sent
    pair.network.set_default(Faults())
    sender = left.port.transport.send_side if left.port.transport else None
    assert sender is not None
    # A sign of life may be on its way at any one time.
    pair.drive(lambda: not sender.recovery.bytes_in_flight)
    assert (sender.send_queue.waiting, sender.send_queue.held) == (0, 0)
    assert sender.recovery.bytes_in_flight == 0


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_in_rows_raise_nothing_and_fill_no_memory(seed: int) -> None:
    """That they arrive in messages is for checksums and seals to prevent."""
    pair = Pair(seed, settings=settings())
    left, right = pair.open()
    pair.network.set_default(Faults(corrupt=0.1, loss=0.02))
    left.port.send_many([bytes(65_536)] * 20)
    pair.touch(left)
    pair.run(3)
    transport = right.port.transport
    assert transport is not None
    assert transport.receive_queue.held <= transport.receive_queue._limit
    assert right.port.statistics().malformed + pair.right.counters.unknown > 0
    assert len(pair.right.connections) <= 2


def test_without_faults_packets_are_taken_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[int]()
    handle = ReceiveSide._handle_packet

    def watch(self, now, packet):
        taken.append(packet.number)
        return handle(self, now, packet)

    monkeypatch.setattr(ReceiveSide, "_handle_packet", watch)
    pair = Pair(1, settings=settings())
    left, right = pair.open()
    sent = [bytes(2**20)]
    assert pair.transfer(left, right, sent) == sent
    assert sum(taken) > 900
    assert len(taken) < sum(taken) / 5


def test_a_deadline_in_the_middle_of_a_train_holds_nothing_up() -> None:
    lanes = (Lane(), Lane(ordered=False))
    pair = Pair(3, Faults(loss=0.05), ChannelSettings(max_datagram=1200, lanes=lanes, timeout=100))
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


def test_a_train_knows_its_packets_by_bits() -> None:
    it = train(5, 100)
    assert (it.number, it.last, it.oldest_open) == (5, 104, 100)
    assert sequences([Hit(it, it.open_before(103))]) == [100, 101, 102]
    assert it.open_before(100) == it.open_before(90) == 0
    assert it.open_before(1000) == it.open
    for newest, bits, named in (
        (104, 0b11111, [100, 101, 102, 103, 104]),
        (106, 0b1101, [103, 104]),
        (102, 0b101, [100, 102]),
        (99, 0b1, []),
        (200, 0xFFFFFFFF, []),
    ):
        assert sequences([Hit(it, it.named_by(newest, bits))]) == named
    hit = Hit(it, 0b01010)
    assert (hit.number, hit.size, hit.newest, hit.oldest) == (2, 200, 103, 101)


def test_a_single_packet_is_a_train_of_one() -> None:
    it: SentBatch = single(7)
    assert (it.number, it.last, it.oldest_open, it.open) == (1, 7, 7, 1)
