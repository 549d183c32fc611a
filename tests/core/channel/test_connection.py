"""A channel's life between two endpoints: opening, messages, silence, and every way to end."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import Closed, CloseReason, Opened, State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import MessageTooLargeError, StateError
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.talk import send_once

Endings = Callable[[Connection], list[Closed]]

BLOCKED = Faults(blocked=True)
# What a packet of 1200 bytes has for one message.
WHOLE = 1200 - 16 - 8
UNRELIABLE = 1200 - 16 - 8
PART = 1200 - 16 - 16


def block(pair: Pair) -> None:
    pair.network.set_faults(BLOCKED, LEFT, RIGHT)
    pair.network.set_faults(BLOCKED, RIGHT, LEFT)


def run_to_the_end(pair: Pair, *connections: Connection, seconds: float = 60.0) -> None:
    pair.drive(lambda: all(it.state is State.CLOSED for it in connections), seconds)
    assert pair.left.connections == pair.right.connections == ()
    assert pair.left.poll_timeout() is pair.right.poll_timeout() is None


def test_both_sides_open_and_know_each_other() -> None:
    pair = Pair(1)
    left, right = pair.open()
    assert (left.state, right.state) == (State.OPEN, State.OPEN)
    assert (left.peer_id, left.address) == (3, RIGHT)
    assert (right.peer_id, right.address) == (1, LEFT)
    assert left.poll_event() == right.poll_event() == Opened()
    assert left.poll_event() is right.poll_event() is None


def test_messages_flow_both_ways_at_once() -> None:
    pair = Pair(1)
    left, right = pair.open()
    for number in range(500):
        left.port.send_many([b"to the right %d" % number])
        right.port.send_many([b"to the left %d" % number])
    pair.touch(left)
    pair.touch(right)
    pair.run(1)
    assert pair.receive(right) == [b"to the right %d" % number for number in range(500)]
    assert pair.receive(left) == [b"to the left %d" % number for number in range(500)]
    assert left.port.statistics().messages_sent == right.port.statistics().messages_received == 500


SIZES = [0, 1, WHOLE - 1, WHOLE, WHOLE + 1, 2 * PART, 2 * PART + 1, 100_000, 3_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_every_size_arrives(size: int) -> None:
    pair = Pair(1)
    left, right = pair.open()
    payload = Random(size).randbytes(size)
    assert pair.transfer(left, right, [b"before", payload, b"after"]) == [
        b"before",
        payload,
        b"after",
    ]
    assert left.port.statistics().lost == left.port.statistics().resent == 0


def test_a_message_over_a_limit_is_named_with_it() -> None:
    pair = Pair(
        1,
        settings=ChannelSettings(max_message=5000),
        right_settings=ChannelSettings(max_message=4000),
    )
    left, right = pair.open()
    for connection, peer in ((left, right), (right, left)):
        with pytest.raises(MessageTooLargeError, match=r"4001 bytes.*4000"):
            connection.port.room_for([4001])
        with pytest.raises(MessageTooLargeError, match=r"4001 bytes.*4000"):
            connection.port.send_many([bytes(4001)])
        assert pair.transfer(connection, peer, [bytes(4000)]) == [bytes(4000)]
    assert left.port.statistics().malformed == right.port.statistics().malformed == 0


def test_the_smaller_datagram_of_both_sides_is_kept_to() -> None:
    pair = Pair(
        1,
        settings=ChannelSettings(max_datagram=60_000),
        right_settings=ChannelSettings(max_datagram=256),
    )
    left, right = pair.open()
    pair.network.set_default(Faults(mtu=256))
    payload = Random(1).randbytes(50_000)
    assert pair.transfer(left, right, [payload]) == [payload]
    assert pair.transfer(right, left, [payload]) == [payload]


def test_an_unreliable_message_has_one_packet() -> None:
    pair = Pair(1)
    left, right = pair.open()
    send_once(left, bytes(UNRELIABLE))
    with pytest.raises(MessageTooLargeError, match=rf"{UNRELIABLE + 1} bytes.*{UNRELIABLE}"):
        send_once(left, bytes(UNRELIABLE + 1))
    pair.touch(left)
    pair.run(1)
    assert pair.receive(right) == [bytes(UNRELIABLE)]


def test_an_unreliable_message_is_sent_once() -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.run(1)
    pair.network.set_default(BLOCKED)
    send_once(left, b"gone")
    pair.touch(left)
    pair.network.set_default(Faults())
    send_once(left, b"here")
    pair.touch(left)
    pair.run(5)
    assert pair.receive(right) == [b"here"]
    assert left.port.statistics().lost == 1


def test_nothing_can_be_sent_before_or_after() -> None:
    pair = Pair(1)
    dialled = pair.left.dial(0.0, [RIGHT])
    assert dialled.port.receive_many(1) == []
    with pytest.raises(StateError, match="CONNECTING"):
        dialled.port.send_many([b""])
    with pytest.raises(StateError, match="CONNECTING"):
        send_once(dialled, b"")
    pair = Pair(1)
    left, right = pair.open()
    left.close(pair.now)
    with pytest.raises(StateError, match="CLOSING"):
        left.port.send_many([b""])
    pair.touch(left)
    pair.run(0.5)
    with pytest.raises(StateError, match="LINGERING"):
        right.port.room_for([1])
    pair.run(5)
    with pytest.raises(StateError, match="CLOSED"):
        left.port.send_many([b""])


def test_a_full_outbox_says_so_and_has_room_again() -> None:
    pair = Pair(1, settings=ChannelSettings(send_buffer=3))
    left, right = pair.open()
    for number in range(3):
        assert left.port.room_for([1])
        left.port.send_many([bytes([number])])
    assert not left.port.room_for([1])
    with pytest.raises(StateError):
        left.port.send_many([b"\3"])
    pair.touch(left)
    pair.drive(lambda: left.port.room_for([1]) > 0)
    left.port.send_many([b"\3"])
    pair.touch(left)
    pair.run(1)
    assert pair.receive(right) == [b"\0", b"\1", b"\2", b"\3"]


@pytest.mark.parametrize("size", [10, 3000])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_reader_that_does_not_read_loses_nothing(size: int, loss: float) -> None:
    settings = ChannelSettings(
        receive_buffer=16, receive_buffer_bytes=20_000, max_message=3000, unreliable_buffer=4
    )
    pair = Pair(1, Faults(loss=loss), ChannelSettings(congestion="tolerant"), settings)
    left, right = pair.open()
    sent = [b"%d".ljust(size) % number for number in range(100)]
    for payload in sent:
        left.port.send_many([payload])
        send_once(left, b"unreliable")
    pair.touch(left)
    for _ in range(4):
        pair.run(10)
        assert (left.state, right.state) == (State.OPEN, State.OPEN)
        assert right.port.statistics().unread <= 16 + 4
        assert right.port.statistics().too_early == 0, "credit holds the sender before that"
    assert left.port.statistics().waiting >= 80
    assert left.port.send_side is not None
    assert left.port.send_side.send_queue.credit.left <= 0
    received: list[bytes] = []

    def has_read_all() -> bool:
        received.extend(it for it in pair.receive(right) if it != b"unreliable")
        return len(received) >= 100

    pair.drive(has_read_all)
    assert received == sent
    pair.run(1)
    assert left.port.statistics().waiting == 0


def test_silence_is_kept_alive() -> None:
    """Both sides, again and again: not just once."""
    pair = Pair(1, Faults(loss=0.2))
    left, right = pair.open()
    pair.run(200)
    assert (left.state, right.state) == (State.OPEN, State.OPEN)
    assert pair.network.carried < 5 * 200
    assert pair.transfer(left, right, [b"still here"]) == [b"still here"]


@pytest.mark.parametrize(("keepalive", "seconds"), [(0.01, 11), (50, 60)])
def test_keepalives_of_unlike_sides_do(keepalive: float, seconds: float) -> None:
    patient = ChannelSettings(keepalive=keepalive, timeout=100)
    pair = Pair(1, settings=ChannelSettings(), right_settings=patient)
    left, right = pair.open()
    pair.run(seconds)
    assert (left.state, right.state) == (State.OPEN, State.OPEN)


@pytest.mark.parametrize("ways", [[(LEFT, RIGHT)], [(RIGHT, LEFT)], [(LEFT, RIGHT), (RIGHT, LEFT)]])
def test_a_peer_that_is_silent_for_too_long_has_vanished(ways: Any, endings: Endings) -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.run(5.3)
    start = pair.now
    for source, destination in ways:
        pair.network.set_faults(BLOCKED, source, destination)
    run_to_the_end(pair, left, right)
    assert 9 <= pair.now - start <= 22
    for connection in (left, right):
        (closed,) = endings(connection)
        assert closed == connection.closed
    deaf, name = (right, "0x00000001 at 10.0.0.1:1000")
    if (RIGHT, LEFT) in ways:
        deaf, name = (left, "0x00000003 at 10.0.0.2:2000")
    text = f"peer {name} vanished: no packet arrived for 10.0 s"
    assert deaf.closed == Closed(CloseReason.VANISHED, text, by_peer=False)


@pytest.mark.parametrize("way", [(LEFT, RIGHT), (RIGHT, LEFT)])
def test_a_blackout_shorter_than_the_timeout_is_survived(way: Any) -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.network.set_faults(BLOCKED, *way)
    sent = [b"%d" % number for number in range(300)]
    for payload in sent:
        left.port.send_many([payload])
        right.port.send_many([payload])
    pair.touch(left)
    pair.touch(right)
    pair.run(9)
    pair.network.set_faults(Faults(), *way)
    pair.run(1)
    assert pair.receive(left) == pair.receive(right) == sent
    assert (left.state, right.state) == (State.OPEN, State.OPEN)


@pytest.mark.soak
def test_a_blackout_of_many_packets_does_not_confuse_the_sequences() -> None:
    """More packets leave than 16 bits can tell apart, if nothing holds them back."""
    busy = ChannelSettings(
        congestion="fixed:2e6",
        max_window=2**31,
        resend_time=0.001,
        keepalive=5,
        timeout=100,
        base_datagram=256,
        max_datagram=256,
        unreliable_buffer=65_536,
    )
    pair = Pair(1, settings=busy)
    left, right = pair.open()
    pair.network.set_faults(BLOCKED, RIGHT, LEFT)
    left.port.send_many([bytes(200)] * 1000)
    for _ in range(40_000):
        send_once(left, bytes(201))
    pair.touch(left)
    pair.run(30)
    assert 16_000 < left.port.statistics().sent < 30_000
    pair.network.set_faults(Faults(), RIGHT, LEFT)
    pair.run(20)
    received = pair.receive(right)
    assert len([payload for payload in received if len(payload) == 200]) == 1000
    assert (left.state, left.port.statistics().waiting) == (State.OPEN, 0)


@pytest.mark.parametrize(
    ("loss", "seed"),
    [(0.0, 1), (0.1, 2), (0.5, 1), pytest.param(0.8, 2, marks=pytest.mark.soak)],
)
def test_closing_drains(loss: float, seed: int, endings: Endings) -> None:
    settings = ChannelSettings(close_timeout=3600, timeout=3600, congestion="tolerant")
    pair = Pair(seed, settings=settings)
    left, right = pair.open()
    pair.network.set_default(Faults(loss=loss, jitter=0.03))
    sent = [bytes([number]) * (number * 20) for number in range(150)]
    for payload in sent:
        left.port.send_many([payload])
    left.close(pair.now)
    left.close(pair.now)
    pair.touch(left)
    pair.drive(lambda: right.closed is not None, 4000)
    assert pair.receive(right) == sent
    right.close(pair.now)
    run_to_the_end(pair, left, right, seconds=4000)
    assert endings(left) == [Closed(CloseReason.DONE, "closed by this side", by_peer=False)]
    assert endings(right) == [
        Closed(CloseReason.DONE, "peer 0x00000001 at 10.0.0.1:1000 closed the channel", True)
    ]


def test_a_close_is_acked_at_once_even_by_a_side_that_does_not_linger() -> None:
    hasty = ChannelSettings(linger=0, ack_delay=1)
    pair = Pair(1, right_settings=hasty)
    left, right = pair.open()
    pair.run(2)
    left.close(pair.now)
    pair.touch(left)
    pair.run(0.1)
    assert left.state is right.state is State.CLOSED


def test_what_arrived_before_the_end_is_received_after_it() -> None:
    pair = Pair(1)
    left, right = pair.open()
    left.port.send_many([b"last words"])
    left.close(pair.now)
    pair.touch(left)
    run_to_the_end(pair, left, right)
    assert right.port.readable
    assert pair.receive(right) == [b"last words"]
    assert not right.port.readable


def test_a_side_whose_peer_closed_sends_no_more(endings: Endings) -> None:
    pair = Pair(1, Faults(delay=0.1), ChannelSettings(linger=5))
    left, right = pair.open()
    right.close(pair.now)
    pair.touch(right)
    pair.run(0.05)
    for _ in range(200):
        left.port.send_many([bytes(200)])
    pair.touch(left)
    pair.drive(lambda: left.state is State.LINGERING)
    sent = left.port.statistics().bytes_sent
    run_to_the_end(pair, left, right)
    assert left.port.statistics().bytes_sent - sent < 200
    assert len(endings(left)) == len(endings(right)) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("waiting", [0, 50])
def test_both_close_at_once(seed: int, waiting: int, endings: Endings) -> None:
    pair = Pair(seed, Faults(loss=0.3, jitter=0.02))
    left, right = pair.open()
    for connection in (left, right):
        for _ in range(waiting):
            connection.port.send_many([bytes(500)])
        connection.close(pair.now)
        pair.touch(connection)
    run_to_the_end(pair, left, right)
    for connection in (left, right):
        (closed,) = endings(connection)
        assert closed.reason is CloseReason.DONE


def test_closing_when_the_acks_of_the_close_are_lost_is_clean(
    endings: Endings, lose: Callable[..., None]
) -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.run(1)
    lose(pair, lambda source, _: source == RIGHT)
    left.close(pair.now)
    pair.touch(left)
    run_to_the_end(pair, left, right)
    assert [closed.reason for closed in endings(left)] == [CloseReason.DONE]
    assert [closed.reason for closed in endings(right)] == [CloseReason.DONE]


@pytest.mark.parametrize(
    ("waiting", "reason"), [(0, CloseReason.DONE), (1, CloseReason.DRAIN_TIMEOUT)]
)
def test_closing_when_the_peer_is_gone(waiting: int, reason: CloseReason, endings: Endings) -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.run(1)
    block(pair)
    for _ in range(waiting):
        left.port.send_many([b"nobody hears this"])
    left.close(pair.now)
    pair.touch(left)
    start = pair.now
    pair.drive(lambda: left.state is State.CLOSED)
    assert pair.now - start == pytest.approx(5)
    (closed,) = endings(left)
    assert closed.reason is reason
    if waiting:
        assert closed.text == (
            "peer 0x00000003 at 10.0.0.2:2000 took no more messages for 5.0 s after the close"
        )
    run_to_the_end(pair, left, right)
    assert [closed.reason for closed in endings(right)] == [CloseReason.VANISHED]


def test_a_drain_may_take_long_as_long_as_it_makes_way(endings: Endings) -> None:
    settings = ChannelSettings(close_timeout=0.2, congestion="fixed:5e4", max_datagram=1200)
    pair = Pair(1, Faults(delay=0.04), settings=settings)
    left, right = pair.open()
    sent = [bytes([number]) * 30_000 for number in range(10)]
    left.port.send_many(sent)
    left.close(pair.now)
    pair.touch(left)
    received: list[bytes] = []
    start = pair.now

    def is_over() -> bool:
        received.extend(pair.receive(right))
        return left.state is State.CLOSED

    pair.drive(is_over)
    assert pair.now - start > 5 * settings.close_timeout
    assert received == sent
    assert [closed.reason for closed in endings(left)] == [CloseReason.DONE]


def test_closing_gives_up_on_a_reader_that_does_not_read(endings: Endings) -> None:
    pair = Pair(1, right_settings=ChannelSettings(receive_buffer=1))
    left, right = pair.open()
    for number in range(3):
        left.port.send_many([bytes([number])])
    left.close(pair.now)
    pair.touch(left)
    run_to_the_end(pair, left, right)
    assert [closed.reason for closed in endings(left)] == [CloseReason.DRAIN_TIMEOUT]
    (closed,) = endings(right)
    assert closed.reason is CloseReason.ABORTED
    assert pair.receive(right) == [b"\0"]


def test_aborting_tells_why_and_waits_for_nothing(endings: Endings) -> None:
    pair = Pair(1)
    left, right = pair.open()
    for _ in range(1000):
        left.port.send_many([bytes(1000)])
    left.abort(pair.now, "the sky fell")
    left.abort(pair.now, "again")
    left.close(pair.now)
    assert left.state is State.CLOSED
    pair.touch(left)
    run_to_the_end(pair, left, right)
    assert endings(left) == [Closed(CloseReason.ABORTED, "the sky fell", by_peer=False)]
    text = "peer 0x00000001 at 10.0.0.1:1000 aborted the channel: the sky fell"
    assert endings(right) == [Closed(CloseReason.ABORTED, text, by_peer=True)]


def test_what_a_peer_says_in_its_last_word_steers_no_terminal(endings: Endings) -> None:
    pair = Pair(1)
    left, right = pair.open()
    left.abort(pair.now, "\x1b[2J\x9b1m\u202e")
    pair.touch(left)
    run_to_the_end(pair, left, right)
    (closed,) = endings(right)
    assert closed.text.isprintable()
    assert "[2J" in closed.text


def test_a_lost_last_word_leaves_the_peer_to_its_timeout(endings: Endings) -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.run(1)
    block(pair)
    left.abort(pair.now)
    pair.touch(left)
    run_to_the_end(pair, left, right)
    assert [closed.reason for closed in endings(right)] == [CloseReason.VANISHED]


@pytest.mark.parametrize("state", ["DRAINING", "CLOSING", "LINGERING"])
def test_aborting_while_ending_reports_one_end(state: str, endings: Endings) -> None:
    pair = Pair(1)
    left, right = pair.open()
    connection, peer = (right, left) if state == "LINGERING" else (left, right)
    if state == "DRAINING":
        left.port.send_many([b"x"])
    left.close(pair.now)
    pair.touch(left)
    pair.drive(lambda: connection.state.name == state)
    connection.abort(pair.now)
    pair.touch(connection)
    assert connection.state is State.CLOSED
    run_to_the_end(pair, left, right)
    assert len(endings(connection)) == len(endings(peer)) == 1


def test_the_round_trip_is_measured() -> None:
    pair = Pair(1, Faults(delay=0.15))
    left, right = pair.open()
    for _ in range(50):
        pair.transfer(left, right, [b"x" * 100])
    figures = left.port.statistics()
    assert figures.rtt == pytest.approx(0.3, abs=0.02)
    assert figures.rtt_deviation < 0.05


def test_the_loss_is_measured() -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.network.set_faults(Faults(loss=0.2), LEFT, RIGHT)
    pair.transfer(left, right, [bytes(1000)] * 800)
    figures = left.port.statistics()
    assert figures.lost / figures.sent == pytest.approx(0.2, abs=0.03)
    assert 0.05 < figures.loss < 0.6, "verdicts come in bursts"
    assert figures.resent == pytest.approx(figures.lost, abs=5)


def test_many_packets_at_once_are_all_acked() -> None:
    """The acks of one wake-up cover more packets than one header has bits."""
    pair = Pair(1, settings=ChannelSettings(congestion="fixed:1e8", max_datagram=1200))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1000)] * 2000)
    assert left.port.statistics().lost == 0


def test_acks_are_not_acked() -> None:
    """Or two sides whose path duplicates everything would never stop."""
    pair = Pair(1)
    left, right = pair.open()
    pair.network.set_default(Faults(duplicate=1.0))
    pair.transfer(left, right, [b"x"])
    carried = pair.network.carried
    pair.run(10)
    assert pair.network.carried - carried < 150
