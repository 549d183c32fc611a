"""Bad networks of every kind: each message arrives once, in order, and unchanged."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.talk import send_once
from tests.soaked import soaked

STARTS = (0, 32767, 65535, 2**32 - 1)
# Nobody is declared gone here, however bad it gets; and no loss is taken for a full path.
PATIENT: dict[str, Any] = {
    "timeout": 10_000,
    "connect_timeout": 3600,
    "close_timeout": 3600,
    "congestion": "fixed:1e6",
}
LONG = 100_000.0

WEATHER = {
    "fair": Faults(),
    "loss of 10 %": Faults(loss=0.1),
    "loss of 50 %": Faults(loss=0.5),
    "loss of 90 %": Faults(loss=0.9),
    "everything twice": Faults(duplicate=1.0),
    "far": Faults(delay=0.5),
    "disorder": Faults(jitter=0.2),
    "disorder beyond the round trip": Faults(delay=0.001, jitter=1.0),
    "all at once": Faults(loss=0.3, duplicate=0.3, jitter=0.2),
}


def messages(seed: int, count: int = 60) -> Sequence[bytes]:
    random = Random(seed)
    sizes = [random.choice((0, 1, 20, 200, 1181, 1182, 5000)) for _ in range(count)]
    return [random.randbytes(size) for size in sizes]


def check_both_ways(pair: Pair, left: Connection, right: Connection, seconds: float) -> None:
    for sender, receiver in ((left, right), (right, left)):
        sent = messages(pair.seed)
        received = pair.transfer(sender, receiver, sent, seconds)
        assert received == sent, f"seed {pair.seed}"
        assert sender.port.statistics().malformed == 0
    assert (left.state, right.state) == (State.OPEN, State.OPEN)


@pytest.mark.parametrize(("weather", "start"), list(zip(WEATHER, cycle(STARTS), strict=False)))
@pytest.mark.parametrize("seed", [1, *soaked([2])])
def test_everything_arrives(weather: str, start: int, seed: int) -> None:
    """Where sequences start near a wrap, packets cross it."""
    settings = ChannelSettings(first_sequence=max(start - 60, 0), **PATIENT)
    other = ChannelSettings(first_sequence=start, **PATIENT)
    pair = Pair(seed, WEATHER[weather], settings, other)
    left, right = pair.open(seconds=3600)
    check_both_ways(pair, left, right, seconds=LONG)


@pytest.mark.parametrize(
    ("controller", "weather"),
    [("newreno", "loss of 50 %"), ("cubic", "all at once"), ("tolerant", "disorder")],
)
def test_everything_arrives_whoever_is_in_control(controller: str, weather: str) -> None:
    pair = Pair(3, WEATHER[weather], ChannelSettings(**PATIENT | {"congestion": controller}))
    left, right = pair.open(seconds=3600)
    check_both_ways(pair, left, right, seconds=LONG)


@pytest.mark.parametrize("loss", [0.5, 0.9, *soaked([0.99])])
@pytest.mark.parametrize("lossy", [(LEFT, RIGHT), (RIGHT, LEFT)])
def test_loss_of_one_direction_only(loss: float, lossy: tuple[Address, Address]) -> None:
    """From right to left there are only acks."""
    pair = Pair(1, settings=ChannelSettings(**PATIENT))
    left, right = pair.open()
    pair.network.set_faults(Faults(loss=loss), *lossy)
    sent = messages(1)
    assert pair.transfer(left, right, sent, LONG) == sent
    pair.drive(lambda: not left.port.statistics().waiting, LONG)
    assert not pair.receive(right)


@pytest.mark.parametrize("start", STARTS)
def test_sequences_and_ids_wrap_while_messages_get_lost(start: int) -> None:
    """Each start is crossed: by packets, one message in each, and by message ids."""
    settings = ChannelSettings(first_sequence=start, max_datagram=256, receive_buffer=100)
    pair = Pair(start, Faults(loss=0.1, jitter=0.02), settings)
    left, right = pair.open()
    sent = [b"%0200d" % number for number in range(200)]
    assert pair.transfer(left, right, sent, 600) == sent
    assert left.port.statistics().sent > 200


@pytest.mark.parametrize("seed", [0, *soaked([1, 2, 3])])
def test_corruption_raises_nothing_hangs_nothing_and_grows_nothing(seed: int) -> None:
    """Nothing seals the packets: what arrives may be wrong, and the channel may break."""
    settings = ChannelSettings(receive_buffer_bytes=100_000, receive_buffer=64, max_message=20_000)
    pair = Pair(seed, Faults(), settings)
    pair.left.dial(0.0, [RIGHT])
    left, right = pair.open()
    pair.network.set_default(Faults(corrupt=0.3, jitter=0.01))
    for number in range(100):
        for connection in (left, right):
            if connection.state is State.OPEN and connection.port.room_for([3000]):
                connection.port.send_many([bytes(number * 30)])
                send_once(connection, b"u")
            pair.touch(connection)
            pair.receive(connection)
        pair.run(0.1)
        assert len(pair.left.connections) + len(pair.right.connections) <= 8
    if left.state is State.OPEN:
        left.close(pair.now)
        pair.touch(left)
    pair.network.set_default(Faults(blocked=True))
    pair.run(30)
    assert pair.left.connections == pair.right.connections == ()
    assert left.closed is not None
    assert right.closed is not None


def test_peers_that_fill_a_node_get_all_across_when_it_reads() -> None:
    """More than the node may hold, of messages that nobody could read in part."""
    small = ChannelSettings(max_message=100_000, receive_buffer_bytes=300_000)
    pair = Pair(
        5,
        Faults(loss=0.05, delay=0.005, jitter=0.002),
        replace(small, congestion="fixed:1e6"),
        replace(small, node_buffer_bytes=150_000),
    )
    sides = [pair.open() for _ in range(4)]
    for number, (left, _) in enumerate(sides):
        left.port.send_many([bytes([number]) * 90_000] * 5)
        pair.touch(left)
    received: list[list[bytes]] = [[] for _ in sides]
    for _ in range(100):
        pair.run(0.1)
        for messages, (_, right) in zip(received, sides, strict=True):
            assert right.port.receive_side is not None
            assert right.port.receive_side.receive_queue.held <= 400_000 + 2000
            messages += pair.receive(right)
            pair.touch(right)
    assert received == [[bytes([number]) * 90_000] * 5 for number in range(4)]
