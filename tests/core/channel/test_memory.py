"""After all is said, nothing of it is kept."""

import gc
import tracemalloc
from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow

SETTINGS = ChannelSettings(
    lanes=(Lane(), Lane(priority=1), Lane(ordered=False)),
    congestion="fixed:1e6",
    timeout=1000,
    receive_buffer=512,
    receive_buffer_bytes=1_000_000,
    max_message=300_000,
)
BAD = Faults(loss=0.1, duplicate=0.1, jitter=0.005)


def talk(pair: Pair, left: Connection, right: Connection, rounds: int) -> None:
    """Everything that can be sent, over a bad network."""
    random = Random(pair.seed)
    for _ in range(rounds):
        for _ in range(20):
            size = random.choice((0, 10, 1000, 5000, 100_000))
            lane = random.randrange(3)
            deadline = random.choice((None, pair.now + random.uniform(0, 0.3)))
            if left.port.room_for([size]):
                copies = random.randrange(3)
                follow(left, bytes(size), pair.now, lane=lane, deadline=deadline, copies=copies)
            delivery = random.choice((Delivery.UNRELIABLE, Delivery.SEQUENCED))
            follow(left, bytes(random.randrange(1000)), pair.now, delivery=delivery, lane=lane)
        pair.touch(left)
        pair.run(0.2)
        pair.receive(right)
        pair.touch(right)
        while left.port.poll_settled() is not None:
            pass
    pair.run(20)
    pair.receive(right)
    pair.touch(right)
    pair.run(20)
    pair.receive(right)
    while left.port.poll_settled() is not None:
        pass


def test_every_queue_is_empty_again() -> None:
    pair = Pair(1, settings=SETTINGS)
    left, right = pair.open()
    pair.network.set_default(BAD)
    talk(pair, left, right, 10)
    sender, receiver = left.port.send_side, right.port.receive_side
    assert sender is not None
    assert receiver is not None
    receive_queue = receiver.receive_queue
    send_queue = sender.send_queue
    assert send_queue.idle
    assert send_queue.held == 0
    assert sender.receipts.deadline is None
    assert receive_queue.held == len(receive_queue) == 0
    assert right.port.statistics().too_early == 0


def test_memory_is_back_where_it_was() -> None:
    pair = Pair(2, settings=SETTINGS)
    left, right = pair.open()
    pair.network.set_default(BAD)
    talk(pair, left, right, 5)
    tracemalloc.start()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    talk(pair, left, right, 5)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 500_000
