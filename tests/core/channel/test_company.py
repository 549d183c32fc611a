"""Many idle channels behind one socket: what each takes, and that the busy one does not notice."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import CloseReason
from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address
from sphtp.testing import Faults, Pair
from tests.soaked import soaked

# Of the 32 KB that an idle channel may take; what programs hold of it comes on top.
MOST_BYTES = 20_000
LEFT, RIGHT = ("10.0.0.1", 1000), ("10.0.0.2", 2000)
SILENT = ChannelSettings(keepalive=1000, timeout=10_000)

Ends = tuple[Connection, Connection]


def calls(work: Callable[[], None]) -> int:
    """Count the functions called, in Python and in C."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def crowded(idle: int, settings: ChannelSettings) -> tuple[Pair, Ends, list[Ends]]:
    """Two endpoints with a busy channel and idle ones, all of which have become quiet."""
    pair = Pair(1, settings=settings)
    busy = pair.open()
    others = [pair.open() for _ in range(idle)]
    pair.run(0.5)
    return pair, busy, others


def test_an_idle_connection_takes_little_memory() -> None:
    count = 20
    pair, _, first = crowded(3, ChannelSettings())
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    others = [pair.open() for _ in range(count)]
    pair.run(5)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(others + first) == count + 3
    # Both ends are in this process.
    assert (after - before) / count / 2 < MOST_BYTES


def test_a_busy_channel_does_no_more_for_idle_ones() -> None:
    def work_beside(idle: int) -> int:
        pair, (left, right), _ = crowded(idle, SILENT)
        messages = [bytes(64)] * 1000
        pair.transfer(left, right, messages)
        return calls(lambda: check(pair.transfer(left, right, messages)))

    def check(received: list[bytes]) -> None:
        assert len(received) == 1000

    alone = work_beside(0)
    assert alone > 1000
    assert work_beside(50) == pytest.approx(alone, rel=0.01)


def test_what_an_idle_channel_does_does_not_grow_with_how_many_there_are() -> None:
    def work_of_each(idle: int) -> float:
        pair, _, _ = crowded(idle, ChannelSettings())
        return calls(lambda: pair.run(10)) / (idle + 1)

    few = work_of_each(10)
    assert few > 100, "it says now and then that it is alive"
    assert work_of_each(50) < 1.1 * few


def departures(pair: Pair, seconds: float) -> list[tuple[float, Address]]:
    """Let time pass, and return when datagrams left, and from where."""
    left = list[tuple[float, Address]]()
    send = pair.network.send

    def note(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        left.append((now, source))
        send(now, source, destination, datagram)

    pair.network.send = note  # type: ignore[method-assign]
    pair.run(seconds)
    pair.network.send = send  # type: ignore[method-assign]
    return left


@pytest.mark.parametrize("security", [None, SEALED])
def test_of_two_idle_sides_one_asks_and_the_other_answers_at_once(
    security: Security | None,
) -> None:
    pair = Pair(1, Faults(delay=0.05), security=security)
    left, right = pair.open()
    pair.run(11)
    seen = departures(pair, 200)
    assert 78 <= len(seen) <= 86, "two in 5 s"
    for (asked, asking), (answered, answering) in zip(seen[::2], seen[1::2], strict=True):
        assert answered - asked == pytest.approx(0.05), "nobody waits for company of a lone ping"
        assert (asking, answering) == (LEFT, RIGHT)
    assert left.closed is right.closed is None


def test_many_idle_channels_ask_at_the_same_few_moments() -> None:
    """So that they share the turns of the event loop, whenever they were opened."""
    pair = Pair(1, Faults(delay=0.001))
    for _ in range(120):
        pair.open()
        pair.run(0.0173)
    pair.run(5)
    seen = departures(pair, 5)
    assert 235 <= len(seen) <= 250
    assert len({now for now, source in seen if source == LEFT}) <= 17


@pytest.mark.parametrize("loss", [0.6, *soaked([0.3])])
def test_a_bad_path_makes_nobody_take_an_idle_peer_for_dead(loss: float) -> None:
    pair = Pair(1, Faults(loss=loss, delay=0.02, jitter=0.02))
    left, right = pair.open()
    minutes = 15
    pair.run(60 * minutes)
    assert left.closed is right.closed is None
    assert pair.network.carried < 100 * minutes


@pytest.mark.parametrize(("timeout", "phase"), [(10.0, 0.0), (10.0, 1.3), (2.0, 0.4), (60.0, 7.0)])
def test_a_dead_peer_is_noticed_within_the_timeout(timeout: float, phase: float) -> None:
    settings = ChannelSettings(timeout=timeout)
    pair = Pair(1, settings=settings)
    left, right = pair.open()
    pair.run(timeout + phase)
    cut_at = pair.now
    pair.network.set_default(Faults(blocked=True))
    pair.drive(lambda: left.closed is not None and right.closed is not None)
    assert left.closed is not None
    assert left.closed.reason is CloseReason.VANISHED
    # The last sign of life came before the cut, by the wait of one keepalive at most.
    assert timeout - settings.keepalive_interval <= pair.now - cut_at <= timeout


def test_idle_sides_of_unlike_patience_hear_of_each_other_often_enough() -> None:
    patient, brisk = ChannelSettings(timeout=30), ChannelSettings(keepalive=0.2, timeout=3)
    pair = Pair(1, Faults(loss=0.3, jitter=0.05), patient, brisk)
    left, right = pair.open()
    pair.run(60)
    assert left.closed is right.closed is None


def test_idle_channels_do_not_storm_when_answers_become_late() -> None:
    """What is late is not lost: asking at once again would make it later."""
    pair, (left, right), _ = crowded(20, ChannelSettings())
    pair.run(5)
    pair.network.set_default(Faults(delay=0.05))
    before = pair.network.carried
    pair.run(2)
    assert (pair.network.carried - before) / 21 / 2 < 5.5
    assert left.closed is right.closed is None
