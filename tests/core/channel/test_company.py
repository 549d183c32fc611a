"""Many idle channels behind one socket: what each takes, and that the busy one does not notice."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair

# Of the 32 KB that an idle channel may take; what programs hold of it comes on top.
MOST_BYTES = 20_000
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
        return calls(lambda: pair.run(5)) / (idle + 1)

    few = work_of_each(10)
    assert few > 100, "it says now and then that it is alive"
    assert work_of_each(60) == pytest.approx(few, rel=0.1)


def test_of_two_idle_sides_one_asks_and_the_other_answers() -> None:
    pair, (left, right), _ = crowded(0, ChannelSettings())
    before = pair.network.carried
    pair.run(40)
    assert 75 <= pair.network.carried - before <= 82
    assert left.closed is right.closed is None


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
