"""Paths that take less than the 1200 bytes with which a channel begins."""

from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import CloseReason, State
from sphtp.core.channel.path_mtu import FLOOR, WORTHWHILE
from sphtp.core.channel.receipts import Outcome
from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.schema import Schema
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT, Stage
from tests.core.channel.sealed import make_sealed
from tests.core.channel.talk import follow
from tests.soaked import soaked

MESSAGES = [Random(number).randbytes(5000) for number in range(40)]
OPENING = [pytest.param(None, id="clear"), pytest.param(SEALED, id="sealed")]


def size_of(connection: Connection) -> int:
    return connection.port.statistics().datagram_size


@pytest.mark.parametrize(
    ("mtu", "security"),
    [(1150, SEALED), (800, None), (600, SEALED), (FLOOR, None)],
    ids=str,
)
def test_a_path_below_the_base_is_used_as_it_is(mtu: int, security: Security | None) -> None:
    pair = Pair(1, Faults(delay=0.02, mtu=mtu), security=security)
    left, right = pair.open()
    began = pair.now
    assert pair.transfer(left, right, MESSAGES[:1]) == MESSAGES[:1]
    assert pair.now - began < 3, "ten round trips with a loss, and what they wait for"
    assert pair.transfer(right, left, MESSAGES) == MESSAGES
    assert pair.transfer(left, right, MESSAGES) == MESSAGES
    envelope = 29 if security else 0
    for side in (left, right):
        assert FLOOR <= size_of(side) + envelope <= mtu
        assert (size_of(side) + envelope) * (1 + WORTHWHILE) + 1 >= mtu


@pytest.mark.parametrize("security", OPENING)
@pytest.mark.parametrize("mtu", [500, 300])
def test_a_path_below_the_floor_ends_the_channel_and_both_sides_know_why(
    mtu: int, security: Security | None
) -> None:
    pair = Pair(1, Faults(delay=0.02, mtu=mtu), security=security)
    left, right = pair.open()
    ticket = follow(left, MESSAGES[0], pair.now)
    pair.touch(left)
    pair.drive(lambda: right.closed is not None, 5)
    assert left.closed is not None
    assert right.closed is not None
    assert left.closed.reason is CloseReason.PATH_TOO_SMALL
    assert "the path MTU to peer 0x00000003 at 10.0.0.2:2000 is too small" in left.closed.text
    assert "548 have to pass" in left.closed.text
    assert left.closed.text in right.closed.text
    assert ticket.outcome is Outcome.CLOSED


@pytest.mark.parametrize("security", OPENING)
def test_one_that_closes_below_the_floor_is_told_before_its_patience_ends(
    security: Security | None,
) -> None:
    pair = Pair(1, Faults(delay=0.02, mtu=500), security=security)
    left, _ = pair.open()
    left.port.send_many(MESSAGES[:3])
    left.close(pair.now)
    pair.touch(left)
    pair.drive(lambda: left.closed is not None, 4)
    assert left.closed is not None
    assert left.closed.reason is CloseReason.PATH_TOO_SMALL


def test_small_messages_need_no_more_than_they_are() -> None:
    pair = Pair(1, Faults(delay=0.02, mtu=300), security=SEALED)
    left, right = pair.open()
    for number in range(200):
        pair.send(left, b"%d" % number)
        pair.run(0.1)
    assert pair.receive(right) == [b"%d" % number for number in range(200)]
    assert (left.state, right.state) == (State.OPEN, State.OPEN)


def test_a_path_that_shrinks_far_under_way_loses_and_repeats_nothing() -> None:
    pair = Pair(1, Faults(delay=0.02, mtu=1472))
    left, right = pair.open()
    assert pair.transfer(left, right, MESSAGES) == MESSAGES
    assert size_of(left) == 1472
    pair.network.set_default(Faults(delay=0.02, mtu=700))
    assert pair.transfer(left, right, MESSAGES) == MESSAGES
    assert size_of(left) <= 700
    pair.run(5)
    assert not pair.receive(right)


def test_a_host_that_refuses_the_base_leads_to_the_floor_at_once() -> None:
    """As with EMSGSIZE, where the interface itself takes less."""
    pair = Pair(1, Faults(delay=0.02, mtu=1100))
    left, right = pair.open()
    left.port.send_many(MESSAGES[:1])
    pair.touch(left)
    pair.left.handle_too_large(pair.now, RIGHT, 1200)
    pair.touch(left)
    began = pair.now
    pair.drive(lambda: bool(pair.receive(right)), 1)
    assert pair.now - began < 0.5
    assert left.state is State.OPEN


@pytest.mark.parametrize("is_sealed", [False, True])
def test_types_of_messages_are_compared_on_any_path(is_sealed: bool) -> None:
    """What a CONNECT says of them fits the floor."""
    ours, theirs = (
        Schema([f"Type{number:03}: {'x' * 50}" for number in range(300)][skipped:])
        for skipped in (0, 1)
    )
    for there, state in ((ours, State.OPEN), (theirs, State.CLOSED)):
        left, right = (
            make_sealed(name, schema=schema)
            if is_sealed
            else Endpoint(Random(name), ChannelSettings(), schema=schema)
            for name, schema in (("left", ours), ("right", there))
        )
        stage = Stage(1, {LEFT: left, RIGHT: right}, Faults(delay=0.02, mtu=FLOOR))
        dialled = left.dial(0.0, [RIGHT])
        stage.drive(lambda dialled=dialled: dialled.state is not State.CONNECTING)  # type: ignore[misc]
        assert dialled.state is state
        if dialled.closed is not None:
            assert dialled.closed.reason is CloseReason.SCHEMA
            assert "Type000" in dialled.closed.text


@pytest.mark.parametrize(
    ("faults", "congestion"),
    [
        (Faults(loss=0.5), "cubic"),
        (Faults(loss=0.8), "fixed:1e6"),
        (Faults(burst=0.02, burst_length=30), "cubic"),
        (Faults(rate=1e6, queue=5000), "cubic"),
        (Faults(rate=1e6, queue=5000), "fixed:1e6"),
        (Faults(rate=1e6, queue=20_000), "fixed:1e6"),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, *soaked(range(1, 20))])
def test_no_loss_is_taken_for_a_small_path(seed: int, faults: Faults, congestion: str) -> None:
    """Neither chance nor a queue that is always full, and then has room for small packets first."""
    settings = ChannelSettings(congestion=congestion, connect_timeout=60, timeout=10_000)
    pair = Pair(seed, faults, settings)
    left, right = pair.open()
    random = Random(seed)
    sizes = [random.choice((20, 200, 1000, 3000)) for _ in range(120 if faults.loss else 240)]
    smallest = [size_of(left)]
    waiting = [bytes(size) for size in sizes]
    while waiting:
        batch, waiting = waiting[:20], waiting[20:]
        assert pair.transfer(left, right, batch, 10_000) == batch
        smallest.append(size_of(left))
    assert min(smallest) == 1200
