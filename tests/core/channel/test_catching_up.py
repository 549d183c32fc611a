"""Answers leave before it is noted what they answer; in the end all is known all the same."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import (
    Close,
    Header,
    Messages,
    decode_packet_untrusted,
    encode_data,
)
from sphtp.core.channel.framing import encode_frames
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.packet import encode_lone
from sphtp.core.channel.packet_builder import PacketBuilder
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.received_packets import AckTimer, ReceivedPackets
from sphtp.core.channel.send_side import MOST_AHEAD, SendSide
from sphtp.core.channel.sent_packets import SentPackets
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.channel.ticket import Outcome, Ticket
from sphtp.core.datagrams import Datagrams
from sphtp.core.serial import HALF, wrap
from sphtp.testing import Pair
from tests.core.channel.talk import offer


class Half:
    """What one side of a connection has to send, and what it knows of that."""

    def __init__(self, congestion: str = "cubic") -> None:
        settings = ChannelSettings(congestion=congestion, max_datagram=1200)
        self.acks, credit = SentPackets(0), ReceiveCredit(1024, 2**20)
        self.send_side = SendSide(settings, offer(datagram=1200), self.acks, credit, Counters())
        self.sender = PacketBuilder(
            offer(), self.send_side, self.acks, ReceivedPackets(0), AckTimer(2, 0.01), credit
        )
        self.tickets: list[Ticket] = []

    def send(self, now: float, size: int = 64) -> bool:
        """Queue a message; whether it leaves before anything is noted."""
        ticket = Ticket(now, size=size)
        self.send_side.send_queue.push(bytes(size), ticket)
        self.send_side.tickets.add(ticket)
        self.tickets.append(ticket)
        return not self.send_side.is_ahead and bool(self.sender.poll(now)[0])

    def hear(self, now: float, header: Header) -> None:
        """A header came."""
        self.send_side.heard(now, self.acks.named(header.ack), header.ack_bits, 0.0)


def header_of(received: set[int]) -> Header:
    newest = max(received)
    bits = sum(1 << newest - it for it in received if newest - it < 32)
    return Header(0, newest, bits)


@given(st.integers(1, 20), st.randoms(use_true_random=False))
def test_headers_that_are_noted_together_say_what_they_say_one_by_one(
    number: int, random: Random
) -> None:
    """In whatever order they come, and whatever got lost."""
    arrived = [it for it in range(number) if random.random() < 0.8]
    told = [header_of(set(arrived[: end + 1])) for end in range(len(arrived))]
    random.shuffle(told)
    halves = [Half("fixed:1e9"), Half("fixed:1e9")]
    for together, half in enumerate(halves):
        for place in range(number):
            assert half.send(0.001 * place) or half.send_side.is_ahead
            half.send_side.catch_up()
        for place, header in enumerate(told):
            half.hear(0.1 + 0.0001 * place, header)
            if not together:
                half.send_side.catch_up()
        half.send_side.catch_up()
    one, other = halves
    delivered = [ticket.outcome is Outcome.DELIVERED for ticket in one.tickets]
    assert delivered == [ticket.outcome is Outcome.DELIVERED for ticket in other.tickets]
    assert [it for it, is_here in enumerate(delivered) if is_here] == arrived
    acked = [{hit.train.sequence for hit in half.send_side.poll_acked()} for half in halves]
    assert acked == [set(arrived)] * 2
    assert one.send_side.recovery.bytes_in_flight == other.send_side.recovery.bytes_in_flight


def test_an_answer_leaves_before_it_is_noted_what_it_answers() -> None:
    half = Half()
    assert half.send(0.0)
    half.send_side.catch_up()
    half.hear(0.1, header_of({0}))
    assert half.send(0.1)
    assert half.tickets[0].outcome is None
    assert half.send_side.ahead == half.send_side.recovery.bytes_in_flight, (
        "of one it is known, of one not"
    )
    half.send_side.catch_up()
    assert half.tickets[0].outcome is Outcome.DELIVERED
    assert half.tickets[0].settled_at == 0.1
    assert not half.send_side.ahead
    assert half.send_side.recovery.bytes_in_flight > 0
    assert half.send_side.recovery.round_trip.latest == 0.1


def test_an_ack_means_what_it_meant_when_it_came() -> None:
    """Though more has left since, so that its 16 bits would mean a packet yet to be sent."""
    half = Half()
    assert half.send(0.0)
    half.hear(0.1, Header(0, wrap(0 - HALF), 2**32 - 1))
    assert half.send(0.1)
    half.send_side.catch_up()
    assert not half.send_side.poll_acked()


def test_who_polls_to_the_end_knows_all() -> None:
    pair = Pair(1)
    left, right = pair.open()
    ticket = Ticket(pair.now)
    left.port.send(b"question", ticket, Delivery.RELIABLE)
    pair.touch(left)
    pair.drive(lambda: right.port.readable)
    pair.send(right, b"answer")
    pair.drive(lambda: left.port.readable)
    assert ticket.outcome is Outcome.DELIVERED
    assert left.port.statistics().waiting == 0


def test_no_more_leaves_than_pace_and_window_allow_though_it_is_not_noted() -> None:
    noted, unnoted = Half("fixed:10000"), Half("fixed:10000")
    left: list[int] = []
    for half in (noted, unnoted):
        for _ in range(100):
            half.send(0.0, 500)
            if half is noted:
                half.send_side.catch_up()
        left.append(half.acks.next_sequence)
    assert left[1] <= left[0]
    assert unnoted.send_side.ahead <= MOST_AHEAD + 1200


def test_a_train_counts_what_left_before_it() -> None:
    half = Half()
    for _ in range(3):
        assert half.send(0.0, 1000)
    assert half.send_side.ahead > 3000
    half.send(0.0, 9000)
    while half.sender.poll(0.0)[0]:
        pass
    half.send_side.catch_up()
    assert half.send_side.recovery.bytes_in_flight < half.send_side.path.window + 1200


def test_what_was_given_up_waits_for_what_may_ack_it() -> None:
    settings = ChannelSettings(congestion="fixed:1e9", max_datagram=1200)
    transport = ReceiveSide(settings, offer(datagram=1200), Counters())
    send_side, ticket = transport.send_side, Ticket(0.0, size=5)
    send_side.send_queue.push(b"early", ticket)
    send_side.tickets.add(ticket)
    assert transport.sender.poll(0.0)[0]
    send_side.catch_up()
    (train,) = send_side.recovery._flying
    send_side.send_queue.lost(train.pieces(1))
    send_side.heard(0.1, train.sequence, 1, 0.0)
    assert not transport.poll_ahead(0.1, (), 0)[0]
    transport.catch_up()
    assert not transport.poll_ahead(0.1, (), 0)[0], "it had come"
    assert not transport.sender.poll(0.1)[0]


def asked(settings: ChannelSettings | None = None) -> tuple[Pair, Connection, Connection]:
    """Two sides, of which the left has sent something whose ack it holds, and has not noted."""
    pair = Pair(1, settings=settings)
    left, right = pair.open()
    pair.transfer(left, right, [b"before"])
    pair.drive(lambda: left.port.statistics().waiting == 0)
    left.port.send(b"question", Ticket(pair.now), Delivery.RELIABLE)
    question = left.poll_transmit(pair.now)
    assert question is not None
    assert left.poll_transmit(pair.now) is None
    assert left.address is not None
    assert right.address is not None
    right.handle_datagrams_untrusted(pair.now + 0.25, Datagrams.of(right.address, question.data))
    right.port.send(b"answer", Ticket(pair.now), Delivery.RELIABLE)
    answer = right.poll_transmit(pair.now + 0.25)
    assert answer is not None
    left.handle_datagrams_untrusted(pair.now + 0.5, Datagrams.of(left.address, answer.data))
    return pair, left, right


def test_room_that_an_ack_made_is_there_at_once() -> None:
    _, left, _ = asked(ChannelSettings(send_buffer=1))
    assert left.port.has_room(1)
    _, left, _ = asked(ChannelSettings(send_buffer=1))
    assert left.port.room_for((1, 1)) == 1


def test_who_closes_with_an_answer_in_hand_says_so_once() -> None:
    pair, left, _ = asked()
    left.close(pair.now)
    rows = [left.poll_transmit(pair.now) for _ in range(3)]
    frames = [decode_packet_untrusted(row.data).frames for row in rows if row is not None]
    assert [type(frame) for said in frames for frame in said] == [Close]
    assert left.state is State.CLOSING


def test_what_came_by_the_old_path_says_nothing_of_the_new_one() -> None:
    pair, left, _ = asked()
    left.handle_new_path(pair.now + 0.5, ("10.0.0.9", 9))
    assert left.poll_transmit(pair.now + 0.5) is None
    assert left.port.statistics().rtt is None


@given(st.integers(0, 127), st.integers(0, 65535), st.binary(max_size=300))
def test_a_packet_of_one_message_is_the_same_however_it_is_made(
    lane: int, first_id: int, payload: bytes
) -> None:
    header, frame = Header(7, 65535, 2**32 - 1), Messages(lane, first_id, [payload])
    datagram = encode_lone(5, header, frame)
    assert datagram == encode_frames([frame], encode_data(5, header))
