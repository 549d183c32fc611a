"""What some peers need around them: lengths in a stream, and grants."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sphtp_benchmarks.systems.credit import CreditWindow, Grants, Room
from sphtp_benchmarks.systems.framing import Unframer, framed


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_a_stream_comes_apart_as_it_was_put_together(messages, step):
    stream, unframer = framed(messages), Unframer()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [message for piece in pieces for message in unframer.feed(piece)] == messages


def test_windows_follow_the_size_of_messages():
    assert CreditWindow.of(65_536, 64) == CreditWindow(size=1024, every=256, burst=64)
    assert CreditWindow.of(65_536, 32_768) == CreditWindow(size=4, every=1, burst=1)


@given(st.integers(1, 70_000), st.integers(0, 2**32).map(Random))
def test_a_sender_with_grants_never_stands_still(message, chance):
    window = CreditWindow.of(65_536, message)
    room, grants = Room(window), Grants(window)
    under_way = 0
    for _ in range(50):
        while room.take(window.burst):
            under_way += window.burst
            assert under_way <= window.size + window.every
        assert under_way >= window.every
        taken = chance.randint(window.every, under_way)
        under_way -= taken
        room.granted(grants.due(taken))
        assert room.take(window.burst)
        under_way += window.burst
