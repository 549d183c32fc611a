"""Floods of what is never finished: memory stays within what the limits come to."""

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from random import Random

import pytest

from sphtp.core.channel.delivery import FLAG, MOST_LANES
from sphtp.core.channel.fragments import Reassembly
from sphtp.core.channel.frames import Fragment, Frame, Messages, Padding, Skip, Unreliable
from sphtp.core.channel.unreliable import COST
from sphtp.testing.pair import LEFT
from tests.core.channel.test_hostile import forge, open_pair

BUFFER = 64
BUFFER_BYTES = 100_000
MAX_MESSAGE = 50_000

COUNT = 5_000
"""Twice what reaches the limits."""

PART = 512
"""What the smallest part of a message takes: a reassembly, its two lists, and the bytes."""

ENTRY = 128
"""What a message of a few bytes takes that waits for those before it, or word of one."""


def lane(random: Random) -> int:
    return random.randrange(MOST_LANES) | random.choice((0, FLAG))


def first_fragment(random: Random, size: int) -> Fragment:
    return Fragment(lane(random), random.randrange(BUFFER), 0, 40_000, bytes(size))


def lone_bytes(random: Random) -> Fragment:
    return Fragment(lane(random), random.randrange(4), 2 * random.randrange(20_000), 40_000, b"x")


FLOODS: dict[str, Callable[[Random], Sequence[Frame]]] = {
    "first fragments": lambda random: [first_fragment(random, 1000)],
    "first fragments of one byte": lambda random: [first_fragment(random, 1)],
    "first fragments, padded": lambda random: [first_fragment(random, 1), Padding(3000)],
    "bytes with gaps between, padded": lambda random: [lone_bytes(random), Padding(3000)],
    "messages with gaps before": lambda random: [
        Messages(lane(random), random.randrange(1, BUFFER), [b"ab"] * 8)
    ],
    "word of messages that never were": lambda random: [
        Skip(lane(random), random.randrange(1, BUFFER), random.randrange(2**32))
    ],
    "unreliable messages": lambda random: [
        Unreliable(lane(random), random.randrange(65536), [b"ab"] * 8)
    ],
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_takes_no_more_memory_than_the_limits_come_to(flood: str) -> None:
    pair, _, right = open_pair(
        receive_buffer=BUFFER,
        receive_buffer_bytes=BUFFER_BYTES,
        max_message=MAX_MESSAGE,
        unreliable_buffer=BUFFER,
    )
    random, endpoint = Random(1), pair.right
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for sequence in range(10, 10 + COUNT):
        datagram = forge(right, FLOODS[flood](random), sequence=sequence & 0xFFFF)
        endpoint.handle_datagram_untrusted(pair.now, LEFT, datagram)
        if sequence % 16 == 0:
            while endpoint.poll_transmit(pair.now) is not None:
                pass
    del datagram
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    transport = right.port.transport
    assert transport is not None
    limit = transport.inbox._limit
    assert transport.inbox.held <= limit + 2000 + MOST_LANES * BUFFER * (2 + COST)
    # Accounted for are bytes, and a cost for each part; each lane remembers a buffer of ids.
    smallest = 1 + Reassembly.COST
    allowed = limit // smallest * PART + limit + 2 * MOST_LANES * BUFFER * ENTRY
    # Of messages that are sent once each lane has a buffer of its own.
    allowed += MOST_LANES * BUFFER * (2 + COST)
    assert after - before <= allowed, f"{after - before:,} bytes, {allowed:,} allowed"
    assert right.port.statistics().malformed == 0
    assert all(message == b"ab" for message in pair.receive(right))
