"""The ack system alone: what a header says, for any loss, order and start."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import ACK_BITS, BUFFER, Header
from sphtp.core.channel.received_packets import Arrival, ReceivedPackets
from sphtp.core.channel.sent_packets import FARTHEST, PacketSubset, SentBatch, SentPackets
from sphtp.core.serial import wrap
from sphtp.errors import RemoteError
from tests.core.channel.batches import sequences, single
from tests.reach import count, reach
from tests.soaked import soaked

STARTS = (0, 32767, 65535, 2**32 - 1)
starting_anywhere = pytest.mark.parametrize("start", STARTS)


def told(sent: SentPackets, header: Header) -> list[PacketSubset]:
    """Packets newly acked by a header."""
    return sent.acknowledge(sent.named(header.ack), header.ack_bits)


def pair(start: int) -> tuple[SentPackets, ReceivedPackets]:
    """A sender that starts there, and its receiver, who learned 16 bits of that."""
    return SentPackets(start), ReceivedPackets(wrap(start))


def send(sent: SentPackets) -> tuple[int, Header]:
    sequence = sent.next_sequence
    sent.sent(single(sequence))
    return sequence, Header(wrap(sequence), 0, 0)


def answer(received: ReceivedPackets) -> Header:
    """The acks that the next packet back carries."""
    return Header(0, *received.ack())


@starting_anywhere
def test_a_fresh_side_acks_nothing(start: int) -> None:
    left, right = pair(start)
    header = answer(right)
    assert header == Header(0, wrap(start - 1), 0)
    assert told(left, header) == []


@starting_anywhere
def test_bit_n_acks_packet_ack_minus_n(start: int) -> None:
    left, right = pair(start)
    sent = [send(left) for _ in range(6)]
    for number in (0, 2, 3, 5):
        right.received(right.restore(sent[number][1].sequence))
    header = answer(right)
    assert (header.ack, header.ack_bits) == (wrap(start + 5), 0b101101)
    assert sequences(told(left, header)) == [start, start + 2, start + 3, start + 5]
    assert told(left, header) == [], "an ack counts once"


@starting_anywhere
def test_thirty_two_packets_are_acked_and_no_more(start: int) -> None:
    left, right = pair(start)
    for _ in range(ACK_BITS + 8):
        right.received(right.restore(send(left)[1].sequence))
    assert sequences(told(left, answer(right))) == [
        start + number for number in range(8, ACK_BITS + 8)
    ]


@starting_anywhere
@pytest.mark.parametrize("gap", [31, 32, 33, BUFFER - 1, BUFFER, BUFFER + 1, 5000])
def test_old_bits_leave_when_a_packet_jumps_ahead(start: int, gap: int) -> None:
    left, right = pair(start)
    sent = [send(left) for _ in range(gap + 1)]
    for number in (0, gap):
        right.received(right.restore(sent[number][1].sequence))
    expected = [start, start + gap] if gap < ACK_BITS else [start + gap]
    assert sequences(told(left, answer(right))) == expected


@starting_anywhere
def test_arrivals_are_fresh_duplicate_or_too_old(start: int) -> None:
    _, right = pair(start)
    first = wrap(start)
    for ahead in (0, 2, BUFFER):
        right.received(first + ahead)
    assert right.arrival(first + BUFFER) is Arrival.DUPLICATE
    assert right.arrival(first + 2) is Arrival.DUPLICATE
    assert right.arrival(first + 1) is Arrival.FRESH
    assert right.arrival(first + BUFFER + 1) is Arrival.FRESH
    assert right.arrival(first) is Arrival.TOO_OLD
    assert right.arrival(-1) is Arrival.TOO_OLD


@starting_anywhere
@pytest.mark.parametrize("ahead", [1, 2, 100, 30_000])
def test_an_ack_of_what_was_never_sent_is_forged(start: int, ahead: int) -> None:
    left, _ = pair(start)
    for _ in range(3):
        send(left)
    with pytest.raises(RemoteError, match="ack of packet"):
        told(left, Header(0, wrap(start + 2 + ahead), 0xFFFFFFFF))
    assert sequences(told(left, Header(0, wrap(start + 2), 0b111))) == [
        start,
        start + 1,
        start + 2,
    ], "the forgery changed nothing"


@starting_anywhere
def test_acks_of_packets_before_the_first_are_nothing(start: int) -> None:
    left, _ = pair(start)
    send(left)
    assert sequences(told(left, Header(0, wrap(start), 0xFFFFFFFF))) == [start]


@starting_anywhere
def test_a_side_notices_when_sequences_get_ambiguous(start: int) -> None:
    left, right = pair(start)
    for _ in range(FARTHEST):
        header = send(left)[1]
    assert left.ambiguous
    right.received(right.restore(header.sequence))
    told(left, answer(right))
    assert not left.ambiguous


@pytest.mark.parametrize("start", [STARTS[1], *soaked(STARTS[::2])])
def test_thousands_may_be_on_their_way_at_once(start: int) -> None:
    """A window of megabytes in small packets: the first ack comes when the last one has left."""
    left, right = pair(start)
    acked = 0
    headers = [send(left)[1] for _ in range(FARTHEST)]
    for number, header in enumerate(headers, 1):
        right.received(right.restore(header.sequence))
        if number % ACK_BITS == 0:
            acked += len(told(left, answer(right)))
    assert acked == FARTHEST


@starting_anywhere
def test_packets_that_are_never_acked_are_not_kept(start: int) -> None:
    left, right = pair(start)
    for number in range(6000):
        header = send(left)[1]
        if number % 3 == 0:
            right.received(right.restore(header.sequence))
        if number % 60 == 0:
            told(left, answer(right))
    assert count(SentBatch, left) <= BUFFER + 60
    assert max(len(it) for it in reach(left) if isinstance(it, list)) <= 4 * BUFFER


@given(
    st.sampled_from(STARTS),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 40)), max_size=300),
)
def test_acked_is_received(start: int, script: list[tuple[bool, bool, int]]) -> None:
    """With packets and acks lost and reordered, an acked packet always was received."""
    left, right = pair(start)
    flying: list[tuple[int, Header]] = []
    received: set[int] = set()
    acked: list[int] = []
    for arrives, ack_arrives, pick in script:
        flying.append(send(left))
        if arrives:
            sequence, header = flying.pop(pick % len(flying))
            restored = right.restore(header.sequence)
            assert wrap(restored) == wrap(sequence)
            if right.arrival(restored) is Arrival.FRESH:
                right.received(restored)
                received.add(sequence)
        if ack_arrives:
            acked += sequences(told(left, answer(right)))
    assert set(acked) <= received
    assert len(acked) == len(set(acked))


@pytest.mark.parametrize("packets", [65536 + 1000, *soaked([3 * 65536])])
@pytest.mark.parametrize("start", [STARTS[0], *soaked(STARTS[1:])])
def test_rounds_of_the_sixteen_bits(start: int, packets: int) -> None:
    left, right = pair(start)
    random = Random(start)
    acked = received = 0
    for _ in range(packets):
        sequence, header = send(left)
        if random.random() < 0.5:
            restored = right.restore(header.sequence)
            assert restored - sequence == wrap(start) - start
            assert right.arrival(restored) is Arrival.FRESH
            right.received(restored)
            received += 1
        if sequence % 16 == 0:
            acked += len(told(left, answer(right)))
    assert acked + len(told(left, answer(right))) == received


@starting_anywhere
def test_what_comes_too_late_for_the_bits_is_acked_by_a_header_of_its_own(start: int) -> None:
    left, right = pair(start)
    sent = [send(left) for _ in range(101)]
    for number in (0, 100):
        right.received(right.restore(sent[number][1].sequence))
    late = right.restore(sent[40][1].sequence)
    assert right.is_out_of_reach(late)
    right.received(late)
    assert sequences(told(left, answer(right))) == [start + 100]
    header = Header(0, *right.late_ack(late))
    assert (header.ack, header.ack_bits & 1) == (wrap(start + 40), 1)
    assert sequences(told(left, header)) == [start + 40]
    assert told(left, header) == []


def test_what_is_missing_is_counted_of_what_the_next_header_covers() -> None:
    acks = ReceivedPackets(100)
    assert acks.missing == 0
    for sequence in (100, 103, 104):
        acks.received(sequence)
    assert acks.missing == 2
    acks.received(150)
    assert acks.missing == 31
