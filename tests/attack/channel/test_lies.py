"""Datagrams that no honest peer sends: dropped, counted, and without effect."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import (
    DATA,
    Close,
    Credit,
    Fragment,
    Frame,
    Messages,
    Ping,
    Skip,
    Unreliable,
)
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.testing import Faults
from sphtp.testing.pair import LEFT, RIGHT
from tests.attack.channel.forged import forge, open_pair
from tests.profiles import brisk


def test_acks_of_packets_never_sent_change_nothing() -> None:
    pair, left, right = open_pair()
    right.port.send_many([b"x"])
    before = right.port.statistics()
    for ack in (5, 100, 30_000):
        datagram = forge(
            right, [Messages(0, 0, [b"forged"])], sequence=10, ack=ack, bits=0xFFFFFFFF
        )
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
    after = right.port.statistics()
    assert (after.forged_acks, after.malformed) == (3, 3)
    assert (after.waiting, after.unread, after.rtt) == (1, 0, before.rtt)
    assert after.received == before.received
    pair.touch(right)
    pair.run(1)
    assert pair.receive(left) == [b"x"]


def test_a_malformed_packet_is_not_even_heard() -> None:
    """Its acks do not count, and it is no sign of life."""
    pair, left, right = open_pair()
    right.port.send_many([b"x"])
    pair.touch(right)
    waiting, newest = right.poll_timeout(), right.port.statistics().sent - 1
    bad = [
        forge(right, [Fragment(0, 0, 0, 2**26, b"a")], sequence=10, ack=newest, bits=1),
        forge(right, [Messages(64, 0, [b"a"])], sequence=10, ack=newest, bits=1),
        forge(right, [Unreliable(64, 0, [b"a"])], sequence=10, ack=newest, bits=1),
        forge(right, [Skip(127, 0, 0)], sequence=10, ack=newest, bits=1),
        forge(right, [Ping()], sequence=10, ack=newest, bits=1) + b"\0",
        forge(right, sequence=10, ack=newest, bits=1)[:-1],
        forge(right, [Messages(0, 0, [bytes(65_500)])], sequence=10),
    ]
    for datagram in bad:
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
    assert right.port.statistics().malformed == len(bad)
    assert right.port.statistics().waiting == 1
    assert right.poll_timeout() == waiting
    good = forge(right, [Ping()], sequence=10, ack=newest, bits=1)
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, good))
    assert right.port.statistics().waiting == 0
    pair.run(1)
    assert pair.receive(left) == [b"x"]


def test_fragments_that_contradict_each_other_are_dropped() -> None:
    pair, _, right = open_pair()
    for sequence, (offset, total) in enumerate([(0, 3), (1, 2), (3, 4), (1, 3)], 10):
        frame = Fragment(0, 0, offset, total, b"%d" % offset)
        datagram = forge(right, [frame], sequence=sequence)
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
    assert right.port.statistics().malformed == 2
    last = forge(right, [Fragment(0, 0, 2, 3, b"2")], sequence=20)
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, last))
    assert pair.receive(right) == [b"012"]


def test_data_from_a_foreign_address_is_dropped() -> None:
    pair, _, right = open_pair()
    for address in (("10.0.0.1", 1001), ("10.0.0.9", 1000), RIGHT):
        datagram = forge(right, [Messages(0, 0, [b"forged"]), Close(0, "")])
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(address, datagram))
    figures = right.port.statistics()
    assert (figures.foreign_address, figures.unread, right.state) == (3, 0, State.OPEN)


def test_duplicate_too_old_and_too_early_are_told_apart() -> None:
    pair, _, right = open_pair(receive_buffer=8)
    for frames, sequence in (
        ([Ping()], 2000),
        ([Ping()], 2000),
        ([Ping()], 2000),
        ([Ping()], 976),
        ([Messages(0, 8, [b"x"])], 2001),
        ([Messages(0, 8, [b"x"])], 2001),
        ([Messages(0, 8, [b"x"])], 2001),
        ([Messages(0, 8, [b"x"])], 2001),
    ):
        pair.right.handle_datagrams_untrusted(
            pair.now, Datagrams.of(LEFT, forge(right, frames, sequence=sequence))
        )
    figures = right.port.statistics()
    assert (figures.duplicates, figures.too_old, figures.too_early) == (2, 1, 4)


def test_a_refused_packet_is_not_acked_and_a_repeated_one_is() -> None:
    pair, _, right = open_pair(receive_buffer=8)
    early = forge(right, [Messages(0, 8, [b"x"])], sequence=10)
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, early))
    assert pair.right.poll_transmit(pair.now) is None
    repeat = forge(right, [Ping()], sequence=9)
    for _ in range(3):
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, repeat))
        transmit = pair.right.poll_transmit(pair.now)
        assert transmit is not None
        (ack,) = transmit.datagrams
        assert ack[7:9] == (9).to_bytes(2, "little")


def test_repeats_do_not_keep_a_channel_alive() -> None:
    pair, left, right = open_pair()
    pair.network.set_default(Faults(blocked=True))
    ping = forge(right, [Ping()], sequence=9)
    for _ in range(30):
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, ping))
        pair.run(0.5)
    assert right.state is State.CLOSED
    assert left.state is State.CLOSED


def test_a_side_whose_peer_closed_asks_for_nothing_more() -> None:
    pair, _, right = open_pair()
    keepalive = pair.right.poll_timeout()
    assert keepalive is not None
    pair.right.handle_timeout(keepalive)
    pair.right.handle_datagrams_untrusted(
        keepalive, Datagrams.of(LEFT, forge(right, [Close(0, "")]))
    )
    transmit = pair.right.poll_transmit(keepalive)
    assert transmit is not None
    assert [len(it) for it in transmit.datagrams] == [DATA.size], "an ack, and no ping"
    assert pair.right.poll_transmit(keepalive) is None


def test_a_close_with_an_unknown_reason_is_no_clean_end() -> None:
    pair, _, right = open_pair()
    pair.right.handle_datagrams_untrusted(
        pair.now, Datagrams.of(LEFT, forge(right, [Close(99, "?")]))
    )
    assert right.closed is not None
    assert right.closed.text.endswith("aborted the channel: ?")


def test_a_message_over_the_limit_is_refused_whole_or_cut() -> None:
    pair, _, right = open_pair(max_message=1000)
    over: list[list[Frame]] = [
        [Messages(0, 0, [bytes(1001)])],
        [Unreliable(0, 0, [bytes(1001)])],
        [Fragment(0, 0, 0, 1001, b"x")],
    ]
    for frames in over:
        datagram = forge(right, frames, sequence=10)
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
    assert right.port.statistics().malformed == 3
    at_the_limit = forge(right, [Messages(0, 0, [bytes(1000)])], sequence=10)
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, at_the_limit))
    assert pair.receive(right) == [bytes(1000)]


def test_a_sender_that_ignores_its_credit_is_held() -> None:
    pair, _, right = open_pair(receive_buffer=100, receive_buffer_bytes=20_000, max_message=1000)
    for number in range(4_000):
        lane = number % 64 | 0x80 * (number % 3 == 0)
        frame = Messages(lane, number // 64, [bytes(500)])
        datagram = forge(right, [frame], sequence=(number + 10) & 0xFFFF)
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
        while pair.right.poll_transmit(pair.now) is not None:
            pass
    receive_side = right.port.receive_side
    assert receive_side is not None
    assert receive_side.receive_queue.held <= 20_000 + ChannelSettings().max_datagram + 500
    assert right.port.statistics().unread <= 101
    assert right.port.statistics().too_early > 0


def test_credit_without_end_and_word_of_messages_that_never_were_do_no_harm() -> None:
    pair, left, right = open_pair()
    frames: list[Frame] = [Credit(0xFFFFFFFF, 2**64 - 1), Credit(0, 0)]
    frames += [Skip(7, 3, 2**32 - 1)] * 50
    pair.right.handle_datagrams_untrusted(
        pair.now, Datagrams.of(LEFT, forge(right, frames, sequence=2))
    )
    pair.run(0.5)
    assert right.port.statistics().malformed == 0
    right.port.send_many([bytes(100)] * 500)
    pair.touch(right)
    pair.run(5)
    assert pair.receive(left) == [bytes(100)] * 500


@brisk
@given(st.lists(st.binary(max_size=80), max_size=30), st.booleans())
def test_random_datagrams_do_no_harm(garbage: list[bytes], behind_a_front: bool) -> None:
    pair, left, right = open_pair()
    for data in garbage:
        datagram = forge(right)[:5] + data if behind_a_front else data
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
    pair.right.handle_timeout(pair.now)
    while pair.right.poll_transmit(pair.now) is not None:
        pass
    assert len(pair.right.connections) <= 1
    if not behind_a_front:
        pair.run(1)
        assert pair.transfer(left, right, [b"x"]) == [b"x"]
