"""Fragments that fill a train: every byte arrives once, whatever becomes of the packets."""

from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.delivery import FLAG, Lane
from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import DATA, Fragment, Header, Ping, decode_packet_untrusted
from sphtp.core.channel.packet_builder import PacketBuilder
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.received_packets import AckTimer, Arrival, ReceivedPackets
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.sent_packets import SentPackets
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.channel.ticket import Outcome, Ticket
from sphtp.core.datagrams import MOST_DATAGRAMS, Datagrams
from tests.core.channel.talk import offer
from tests.core.channel.test_send_queue import send_queue

STARTS = (0, 32767, 65535, 2**32 - 1)
PEER = ("10.0.0.2", 1)


def run_of(payload: bytes, start: int, length: int, number: int) -> FragmentRun:
    return FragmentRun(3 | FLAG, 70_000, payload, start, length, number, ())


@given(st.integers(1, 64), st.integers(0, 2**64), st.integers(0, 2**64))
def test_what_arrived_and_what_was_broken_up_is_all_of_it(number: int, one: int, two: int) -> None:
    payload = Random(number).randbytes(10 * number + 17)
    run, every = run_of(payload, 7, 10, number), (1 << number) - 1
    arrived = run.settle(one & every) + run.settle((one | two) & every)
    arrived_bits = (one | two) & every
    assert arrived == 10 * arrived_bits.bit_count()
    assert run.acked == (arrived_bits == every)
    if run.acked:
        assert len(run.view) == 0, "the message is let go"
        return
    run.break_up()
    parts = run.parts()
    assert run.is_broken
    assert not run.acked, "as long as its pieces are not"
    assert len(run.view) == 0
    missing = [number - 1 - bit for bit in reversed(range(number)) if not arrived_bits >> bit & 1]
    frames = [it.frame for it in parts]
    assert [(it.offset, bytes(it.payload)) for it in frames if isinstance(it, Fragment)] == [
        (7 + 10 * place, payload[7 + 10 * place : 17 + 10 * place]) for place in missing
    ]
    assert run.parts(every) == parts
    assert run.parts(arrived_bits) == []
    assert all(it.flights == 1 and not it.count and it.frame.lane == 3 | FLAG for it in parts)
    assert run.lane == 3
    run.break_up()
    assert run.parts() == parts, "once is enough"
    for part in parts:
        part.settle()
    assert run.acked


class Talk:
    """The send half of a connection, and a peer that takes what it is given, when it is given."""

    def __init__(self, first: int, datagram: int) -> None:
        self.settings = ChannelSettings(
            first_sequence=first,
            congestion="fixed:1e9",
            base_datagram=datagram,
            max_datagram=datagram,
            max_message=2**17,
            lanes=(Lane(), Lane(ordered=False)),
        )
        self.peer = offer(messages=1024, datagram=datagram, limit=2**17)
        self.acks = SentPackets(first)
        credit = ReceiveCredit(1024, 2**20)
        timer = AckTimer(2, 0.01)
        self.send_side = SendSide(self.settings, self.peer, self.acks, credit, Counters())
        self.sender = PacketBuilder(
            self.peer, self.send_side, self.acks, ReceivedPackets(0), timer, credit
        )
        self.receive_queue = ReceiveQueue(self.settings, first)
        self.peer_acks = ReceivedPackets(first)
        self.flying: list[bytes] = []
        self.received: list[bytes] = []
        self.now = 0.0

    def poll(self) -> tuple[bytes, int]:
        made = self.sender.poll_made()
        return made if made[0] else self.sender.poll(self.now)

    def flush(self) -> None:
        while (sent := self.poll())[0]:
            self.flying += Datagrams(PEER, *sent).datagrams

    def take(self, count: int) -> list[bytes]:
        taken, self.flying = self.flying[:count], self.flying[count:]
        return taken

    def arrive(self, datagram: bytes) -> None:
        packet = decode_packet_untrusted(datagram)
        sequence = self.peer_acks.restore(packet.sequence)
        if self.peer_acks.arrival(sequence) is not Arrival.FRESH:
            return
        assert self.receive_queue.insert(packet.content, sequence)
        self.peer_acks.received(sequence)
        self.received += self.receive_queue.receive_many(1000)

    def ack(self) -> None:
        header = Header(0, *self.peer_acks.ack())
        self.send_side.heard(self.now, self.acks.named(header.ack), header.ack_bits, 0.0)
        self.send_side.catch_up()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        if self.send_side.handle_timeout(self.now):
            ping, _ = self.sender.poll(self.now, [Ping()])
            self.flying.append(ping)

    def shrink(self, size: int) -> None:
        """The path takes only packets of this size from now on."""
        if size < self.send_side.path.mtu.size:
            self.send_side.path._size = self.send_side.path.mtu.size = size
            lost = self.send_side.send_queue.resize(size - DATA.size - 3)
            assert not lost


def arrive(talk: Talk, count: int) -> None:
    for datagram in talk.take(count):
        talk.arrive(datagram)


def repeat(talk: Talk, count: int) -> None:
    again = talk.flying[:count]
    arrive(talk, count)
    talk.flying += again


def hold_back(talk: Talk, count: int) -> None:
    talk.flying += talk.take(count)


ACTS: dict[str, Callable[[Talk, int], object]] = {
    "arrive": arrive,
    "repeat": repeat,
    "hold back": hold_back,
    "lose": Talk.take,
    "ack": lambda talk, _: talk.ack(),
    "wait": lambda talk, count: talk.wait(count / 100),
    "shrink": lambda talk, count: talk.shrink(256 + 10 * count),
}
steps = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 40)), max_size=40)
messages = st.lists(
    st.tuples(
        st.sampled_from((10, 1000, 5000, 30_000, 100_000)),
        st.integers(0, 1),
        st.sampled_from((None, None, None, 0.05, 0.3)),
        st.sampled_from((0, 0, 0, 2)),
    ),
    min_size=1,
    max_size=5,
)


@given(st.sampled_from(STARTS), st.sampled_from((256, 1200, 40_000)), messages, steps)
def test_every_byte_arrives_once_whatever_happens_to_packets(
    first: int,
    datagram: int,
    wanted: list[tuple[int, int, float | None, int]],
    script: list[tuple[str, int]],
) -> None:
    talk = Talk(first, datagram)
    random = Random(len(script))
    tickets: dict[bytes, Ticket] = {}
    for number, (size, lane, deadline, copies) in enumerate(wanted):
        payload = bytes([number]) + random.randbytes(size)
        tickets[payload] = Ticket(0.0, lane, deadline, copies)
        talk.send_side.send_queue.push(payload, tickets[payload])
        talk.send_side.tickets.add(tickets[payload])
    for act, count in script:
        talk.flush()
        ACTS[act](talk, count)
    for _ in range(400):
        talk.flush()
        for _ in range(-(-len(talk.flying) // 16)):
            arrive(talk, 16)
            talk.ack()
        talk.wait(0.05)
        if talk.send_side.send_queue.idle and not talk.send_side.recovery.bytes_in_flight:
            break
    check_the_end(talk, tickets)


def check_the_end(talk: Talk, tickets: dict[bytes, Ticket]) -> None:
    send_queue, lanes = talk.send_side.send_queue, talk.send_side.send_queue._lanes
    assert send_queue.idle
    assert send_queue.held == 0
    assert talk.send_side.recovery.bytes_in_flight == 0
    used, read = send_queue.credit, talk.receive_queue.credit
    assert (used._messages_used, used._bytes_used) == (read._messages_read, read._bytes_read)
    lasting = [payload for payload, ticket in tickets.items() if ticket.deadline is None]
    assert len(lasting) <= used._messages_used <= len(tickets)
    for lane in lanes:
        assert (lane.waiting, len(lane._flying), len(lane._unsent)) == (0, 0, 0)
    kept = {train.run for train in talk.acks._sent._entries if train is not None and train.run}
    assert all(len(run.view) == 0 for run in kept), "the memory of runs is let go"
    settled = []
    while (ticket := talk.send_side.tickets.poll_settled()) is not None:
        settled.append(ticket)
    assert sorted(map(id, settled)) == sorted(map(id, tickets.values())), "each settles once"
    assert len(set(talk.received)) == len(talk.received)
    for payload, ticket in tickets.items():
        assert ticket.outcome is Outcome.EXPIRED or payload in talk.received
        assert ticket.outcome is Outcome.DELIVERED or ticket.deadline is not None
    assert set(talk.received) <= set(tickets)
    in_order = [it for it in talk.received if tickets[it].lane == 0]
    assert in_order == [it for it in tickets if it in in_order]
    assert talk.receive_queue.held == 0


def test_a_lane_that_was_silent_has_not_saved_up_while_another_sent_runs() -> None:
    box = send_queue(size=2**24, limit=2**20, lanes=(Lane(), Lane()))
    box.push_many([bytes(500_000)], 0)
    while (lane := box.bulk_lane()) is not None and box.take_run(lane, 64) is not None:
        if lane.served > 250_000:
            break
    box.push_many([bytes(100_000)], 1)
    lanes = [piece.frame.lane for _ in range(MOST_DATAGRAMS + 100) for piece in box.fill().pieces]
    assert lanes.count(0) >= 48, "what was silent is ahead by one train at most"


def test_acks_made_at_once_leave_in_rows_that_one_call_sends() -> None:
    talk = Talk(0, 1200)
    for _ in range(200):
        talk.sender.ack_early(talk.now)
    rows = []
    while (sent := talk.poll())[0]:
        rows.append(len(sent[0]) // sent[1])
    assert sum(rows) == 200
    assert max(rows) <= MOST_DATAGRAMS
