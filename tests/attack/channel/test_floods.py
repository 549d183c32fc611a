"""Floods of what is never finished: memory stays within what the limits come to."""

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest

from sphtp.core.channel.connection import MOST_ANSWERS
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.flow_control import COST
from sphtp.core.channel.frames import FLAG, Fragment, Frame, Messages, Padding, Skip, Unreliable
from sphtp.core.channel.path_validation import encode_path
from sphtp.core.channel.receive_queue import MOST_GAPS, ReceiveQueue
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import MOST_LANES, ChannelSettings
from sphtp.core.datagrams import Datagrams, Kind
from sphtp.testing.pair import LEFT, RIGHT
from tests.attack.channel.forged import forge, open_pair
from tests.core.channel.sealed import SealedPair, keys_of
from tests.steps import steps

BUFFER = 32
BUFFER_BYTES = 50_000
MAX_MESSAGE = 25_000

COUNT = 400
"""More than what reaches the limits."""

PART = 1024
"""What the smallest part of a message takes: a reassembly, its two lists, and the bytes."""

LANE = 1024
"""What a lane takes in which something was received."""

GAP = 256
"""What another gap takes in a message of which parts have come."""


def lane(random: Random) -> int:
    return random.randrange(MOST_LANES) | random.choice((0, FLAG))


def first_fragment(random: Random, size: int) -> Fragment:
    return Fragment(lane(random), random.randrange(BUFFER), 0, 20_000, bytes(size))


def lone_bytes(random: Random) -> Fragment:
    return Fragment(lane(random), random.randrange(4), 2 * random.randrange(10_000), 20_000, b"x")


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
        endpoint.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
        if sequence % 16 == 0:
            while endpoint.poll_transmit(pair.now) is not None:
                pass
    del datagram
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    receive_side = right.port.receive_side
    assert receive_side is not None
    limit = BUFFER_BYTES + max(MAX_MESSAGE, ChannelSettings().max_datagram)
    unreliable = MOST_LANES * BUFFER * (2 + COST)
    assert receive_side.receive_queue.held <= limit + BUFFER * COST + unreliable
    # What is held may lie in packets that are an eighth larger; each message has a cost, as have
    # the lanes of both kinds, and the gaps in messages that come in parts.
    allowed = limit * 8 // 7 + BUFFER * PART + 2 * MOST_LANES * LANE + unreliable
    allowed += GAP * receive_side.receive_queue.gaps
    assert after - before <= allowed, f"{after - before:,} bytes, {allowed:,} allowed"
    assert right.port.statistics().malformed == 0
    assert all(message == b"ab" for message in pair.receive(right))


def take_in(receive_queue: ReceiveQueue, frames: Iterable[Messages | Fragment | Skip]) -> int:
    """Hand frames in, a packet each; return how many were admitted."""
    return sum(receive_queue.insert([frame], sequence) for sequence, frame in enumerate(frames))


def memory_and_steps(
    receive_queue: ReceiveQueue, frames: Sequence[Messages | Fragment | Skip]
) -> tuple[int, int]:
    """What it takes to hand them in: bytes that are kept, and lines of Python."""
    count = steps(lambda: take_in(receive_queue, frames[::2]))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    take_in(receive_queue, frames[1::2])
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return 2 * (after - before), 2 * count


def test_ids_far_apart_cost_what_ids_in_a_row_do() -> None:
    """Two messages in each of 128 lanes, 2.2 kB on the wire, cost 33.8 MB by their distance."""
    both = (*range(MOST_LANES), *range(FLAG, FLAG + MOST_LANES))
    far = [Messages(number, at, [b"x"]) for number in both for at in (1, 8193)]
    near = [Messages(number, at, [b"x"]) for number in both for at in (1, 2)]
    memory, work = memory_and_steps(ReceiveQueue(ChannelSettings(), 0), far)
    assert memory < 128 * 4096
    assert work <= 1.1 * memory_and_steps(ReceiveQueue(ChannelSettings(), 0), near)[1]


def test_one_receive_buffer_serves_all_lanes() -> None:
    receive_queue = ReceiveQueue(ChannelSettings(receive_buffer=256), 0)
    ahead = [Messages(number, at, [b"x"]) for number in range(MOST_LANES) for at in range(1, 256)]
    assert take_in(receive_queue, ahead) == 256
    begun = [Fragment(number, at, 0, 9, b"x") for number in range(2, MOST_LANES) for at in (0, 255)]
    assert take_in(receive_queue, begun) == 0, "nor parts of others"
    assert take_in(receive_queue, ahead[:256]) == 256, "but repeats"
    assert receive_queue.held == 256 * (1 + COST)


def test_what_was_read_out_of_order_is_remembered_in_a_bit_each() -> None:
    """Every other id in 64 lanes without order, and each message read at once."""
    receive_queue = ReceiveQueue(ChannelSettings(receive_buffer=4096), 0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(FLAG, FLAG + MOST_LANES):
        for at in range(1, 4096, 64):
            assert take_in(receive_queue, [Messages(number, at, [b"x"])]) == 1
            assert receive_queue.receive_many(9) == [b"x"]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert receive_queue.held == 0
    assert after - before < MOST_LANES * (LANE + 4096 // 8)


def test_gaps_in_messages_are_bounded_and_what_closes_one_is_taken() -> None:
    receive_queue, total = ReceiveQueue(ChannelSettings(), 0), 4 * MOST_GAPS
    apart = [Fragment(0, 0, at, total, b"x") for at in range(0, total, 2)]
    assert take_in(receive_queue, apart) == MOST_GAPS + 1
    assert take_in(receive_queue, [Fragment(0, 0, 1, total, b"x")]) == 1
    rest = [Fragment(0, 0, at, total, bytes(64)) for at in range(0, total, 64)]
    assert take_in(receive_queue, rest) == len(rest)
    (whole,) = receive_queue.receive_many(9)
    assert len(whole) == total
    assert receive_queue.gaps == 0


def drain(endpoint: Endpoint) -> int:
    return sum(1 for _ in iter(lambda: endpoint.poll_transmit(0.0), None))


def test_what_a_peer_repeats_is_answered_so_often_while_the_socket_is_full() -> None:
    """What must hold: neither CONNECTs nor CHALLENGEs that cannot be answered yet pile up."""
    opener, answerer = (Endpoint(Random(seed), ChannelSettings()) for seed in (1, 2))
    opener.dial(0.0, [RIGHT])
    connect = opener.poll_transmit(0.0)
    assert connect is not None
    for _ in range(COUNT):
        answerer.handle_datagrams_untrusted(0.0, connect._replace(address=LEFT))
    assert 1 <= drain(answerer) <= MOST_ANSWERS
    sealed = SealedPair(1)
    left, right = sealed.open(PeerPin())
    sealed.run(0.5)
    for nonce in range(COUNT):
        challenge = encode_path(Kind.CHALLENGE, right.connection_id, nonce)
        told = keys_of(left).seal(RIGHT, challenge, len(challenge))
        sealed.right.handle_datagrams_untrusted(sealed.now, told._replace(address=LEFT))
    assert 1 <= drain(sealed.right) <= MOST_ANSWERS + 1
    assert sealed.transfer(left, right, [b"still here"]) == [b"still here"]
