"""Credit: what the receiver allows, counted from the opening on either side."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.flow_control import MESSAGES, ReceiveCredit, SendCredit
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings, Lane
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT


def test_messages_and_bytes_are_both_limits() -> None:
    credit = SendCredit(3, 100)
    assert credit.left == 3
    credit.spend(1, 99)
    assert credit.left == 2
    credit.spend(1, 50)
    assert credit.left == 0, "bytes may be overdrawn once"
    credit.raise_to(3, 200)
    assert credit.left == 1
    credit.spend(1, 0)
    assert credit.left == 0


def test_an_older_word_changes_nothing() -> None:
    credit = SendCredit(3, 100)
    credit.raise_to(10, 1000)
    credit.raise_to(5, 2000)
    credit.raise_to(20, 500)
    credit.spend(19, 1999)
    assert credit.left == 1


def test_totals_go_on_when_their_bits_have_wrapped() -> None:
    """At a million messages a second that takes little more than an hour."""
    receiver, sender = ReceiveCredit(1000, 10**9), SendCredit(1000, 10**9)
    for _ in range(20):
        sender.spend(MESSAGES.span // 5, 0)
        receiver.read(MESSAGES.span // 5, 0)
        messages, size = receiver.poll_credit()
        assert messages < MESSAGES.span
        sender.raise_to(messages, size)
        assert sender.left == 1000


def test_the_peer_is_told_when_a_quarter_was_read() -> None:
    credit = ReceiveCredit(100, 10_000)
    assert not credit.is_due
    credit.read(24, 2499)
    assert not credit.is_due
    credit.read(1, 0)
    assert credit.is_due
    assert credit.poll_credit() == (125, 12_499)
    assert not credit.is_due
    credit.read(0, 2500)
    assert credit.is_due
    assert credit.poll_credit() == (125, 14_999)


def test_a_buffer_of_one_is_not_told_of_without_end() -> None:
    credit = ReceiveCredit(1, 2)
    assert not credit.is_due
    credit.read(1, 0)
    assert credit.is_due
    credit.poll_credit()
    assert not credit.is_due


def test_a_word_that_got_lost_is_told_again() -> None:
    credit = ReceiveCredit(100, 10_000)
    credit.read(30, 300)
    told = credit.poll_credit()
    credit.forget()
    assert credit.is_due
    assert credit.poll_credit() == told
    assert not credit.is_due


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 500), st.booleans()), max_size=60))
def test_a_sender_that_keeps_to_it_never_overruns_the_buffer(
    script: list[tuple[int, int, bool]],
) -> None:
    receiver, sender = ReceiveCredit(64, 4096), SendCredit(64, 4096)
    unread: list[int] = []
    for reads, size, is_told in script:
        while sender.left > 0 and len(unread) < 200:
            sender.spend(1, size)
            unread.append(size)
        assert len(unread) <= 64
        assert sum(unread) < 4096 + 501
        taken, unread = unread[:reads], unread[reads:]
        receiver.read(len(taken), sum(taken))
        if is_told and receiver.is_due:
            sender.raise_to(*receiver.poll_credit())


SLOW = ChannelSettings(receive_buffer=8, receive_buffer_bytes=40_000, max_message=20_000)


def test_what_left_together_never_fills_the_room_of_what_it_lost() -> None:
    """Else that could never come in, and nothing behind it ever be read."""
    small = ChannelSettings(
        max_message=1000, max_datagram=1200, base_datagram=1200, receive_buffer_bytes=4000
    )
    pair = Pair(0, settings=small)
    left, right = pair.open()
    messages = [bytes([number]) * 300 for number in range(40)]
    left.port.queue(messages)
    pair.left.touch(left)
    batch = pair.left.poll_transmit(pair.now)
    assert batch is not None
    for datagram in batch.datagrams[1:]:
        pair.network.send(pair.now, LEFT, RIGHT, datagram)
    received = list[bytes]()

    def is_over() -> bool:
        received.extend(pair.receive(right))
        return len(received) == len(messages)

    pair.drive(is_over)
    assert received == messages


def test_a_stopped_reader_holds_its_sender_and_is_never_dropped_for_it() -> None:
    pair = Pair(1, Faults(loss=0.05), ChannelSettings(), SLOW)
    left, right = pair.open()
    left.port.send_many([bytes(100)] * 1000)
    pair.touch(left)
    pair.run(300)
    assert (left.state, right.state) == (State.OPEN, State.OPEN)
    assert right.port.statistics().unread == 8
    assert right.port.statistics().too_early == 0
    right.port.send_many([b"the other way is open"])
    pair.touch(right)
    pair.run(5)
    assert pair.receive(left) == [b"the other way is open"]
    carried = pair.network.carried
    pair.run(100)
    assert pair.network.carried - carried < 600, "but for keepalives it is silent"


def test_a_slow_reader_gets_everything_at_its_pace() -> None:
    pair = Pair(1, Faults(loss=0.1), ChannelSettings(congestion="tolerant"), SLOW)
    left, right = pair.open()
    sent = [b"%d " % number + bytes(number * 37 % 20_000) for number in range(200)]
    sent = [payload[:20_000] for payload in sent]
    left.port.send_many(sent)
    received: list[bytes] = []
    while len(received) < len(sent):
        pair.touch(left)
        pair.run(0.5)
        received += right.port.receive_many(3)
        pair.touch(right)
        assert pair.now < 300
    assert received == sent


def test_credit_that_gets_lost_comes_again() -> None:
    pair = Pair(1, Faults(), ChannelSettings(), SLOW)
    left, right = pair.open()
    left.port.send_many([bytes(100)] * 40)
    pair.touch(left)
    for _ in range(4):
        pair.run(3)
        pair.network.set_faults(Faults(blocked=True), RIGHT, LEFT)
        assert len(pair.receive(right)) == 8
        pair.touch(right)
        pair.run(0.05)
        pair.network.set_faults(Faults(), RIGHT, LEFT)
        pair.run(3)
        assert right.port.statistics().unread == 8


def test_large_messages_in_many_lanes_all_arrive_through_little_credit() -> None:
    lanes = ChannelSettings(lanes=(Lane(),) * 16, congestion="fixed:1e7")
    pair = Pair(1, Faults(loss=0.05), lanes, SLOW)
    left, right = pair.open()
    payloads = [bytes([lane]) * 20_000 for lane in range(16)]
    for lane, payload in enumerate(payloads):
        left.port.send_many([payload] * 3, lane)
    pair.touch(left)
    received: list[bytes] = []

    def is_over() -> bool:
        received.extend(pair.receive(right))
        pair.touch(right)
        return len(received) == 48

    pair.drive(is_over)
    assert sorted(received) == sorted(payloads * 3)
