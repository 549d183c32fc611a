"""A rate with a queue: first in, first out, at the rate, and the tail is dropped."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.testing import Faults, Link

# One byte per millisecond.
RATE = 8_000.0

Arrivals = list[tuple[float, bytes]]


def link(queue: int = 1000, delay: float = 0.0, loss: float = 0.0, duplicate: float = 0.0) -> Link:
    faults = Faults(rate=RATE, queue=queue, delay=delay, loss=loss, duplicate=duplicate)
    return Link(faults, Random(1))


def is_one(arrivals: Arrivals, when: float, size: int) -> bool:
    return [(round(time, 6), len(datagram)) for time, datagram in arrivals] == [(when, size)]


def test_a_datagram_takes_its_time_on_an_idle_link() -> None:
    slow = link(delay=0.5)
    assert is_one(slow.offer(1.0, bytes(100)), 1.6, 100)
    assert is_one(slow.offer(3.0, bytes(50)), 3.55, 50)
    assert slow.statistics(3.0).queue_delay_max == 0


def test_those_that_come_together_leave_one_after_the_other() -> None:
    slow = link()
    times = [slow.offer(0.0, bytes(100))[0][0] for _ in range(5)]
    assert times == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    counts = slow.statistics(0.0)
    assert (counts.queue_bytes, counts.queue_bytes_max) == (500, 500)
    assert counts.queue_delay == pytest.approx(0.5)
    assert counts.queue_delay_max == pytest.approx(0.4)
    assert counts.queue_delay_mean == pytest.approx(0.2)
    later = slow.statistics(0.35)
    assert (later.queue_bytes, later.queue_bytes_max) == (200, 500)
    assert later.queue_delay == pytest.approx(0.15)
    assert slow.statistics(1.0).queue_bytes == 0


def test_a_full_queue_drops_what_comes_and_keeps_what_it_has() -> None:
    slow = link(queue=300)
    taken = [bool(slow.offer(0.0, bytes(100))) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    # What is smaller still fits once there is room for it.
    assert slow.offer(0.15, bytes(101)) == []
    assert is_one(slow.offer(0.15, bytes(100)), 0.4, 100)
    counts = slow.statistics(0.15)
    assert (counts.queue_dropped, counts.queue_bytes_max, counts.carried) == (3, 300, 4)


def test_an_idle_link_takes_any_datagram() -> None:
    narrow = link(queue=0)
    assert is_one(narrow.offer(0.0, bytes(100)), 0.1, 100)
    assert narrow.offer(0.05, bytes(1)) == []
    assert len(narrow.offer(0.2, bytes(100))) == 1


def test_a_flood_gets_the_rate_and_a_full_queue_no_more() -> None:
    """Three times the rate for 100 s: a third arrives, and the queue stays within its limit."""
    slow = link(queue=500)
    arrived = [arrival for n in range(3000) for arrival in slow.offer(n / 30, bytes(100))]
    counts = slow.statistics(100.0)
    assert max(when for when, _ in arrived) <= 100.0 + 0.5
    assert sum(len(datagram) for _, datagram in arrived) == pytest.approx(100_000, rel=0.01)
    assert counts.queue_bytes_max == 500
    assert 0.35 < counts.queue_delay_mean < 0.45
    assert counts.queue_delay_max <= 0.5


def test_a_steady_stream_below_the_rate_does_not_wait() -> None:
    slow = link(queue=100)
    for n in range(1000):
        assert len(slow.offer(n * 0.11, bytes(100))) == 1
    assert slow.statistics(1000.0).queue_delay_max == pytest.approx(0, abs=1e-9)


def test_duplicates_take_their_share_of_the_rate() -> None:
    slow = link(duplicate=1.0)
    times = [when for when, _ in slow.offer(0.0, bytes(100))]
    assert times == pytest.approx([0.1, 0.2])


def test_what_is_lost_takes_none() -> None:
    lossy = link(loss=1.0)
    lossy.offer(0.0, bytes(100))
    assert lossy.statistics(0.0).queue_bytes == 0


def test_a_changed_rate_overtakes_nothing() -> None:
    changing = link()
    ((first, _),) = changing.offer(0.0, bytes(100))
    changing.faults = Faults(rate=RATE * 10, delay=0)
    ((second, _),) = changing.offer(0.0, bytes(100))
    changing.faults = Faults(delay=0)
    ((third, _),) = changing.offer(0.0, bytes(100))
    assert [first, second, third] == pytest.approx([0.1, 0.11, 0.11])


@given(
    st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 400)), max_size=80), st.integers(0, 1500)
)
def test_first_in_first_out_and_never_faster(sizes: list[tuple[float, int]], limit: int) -> None:
    slow, now, busy_until = link(queue=limit), 0.0, 0.0
    for wait, size in sizes:
        now += wait
        arrivals = slow.offer(now, bytes(size))
        if arrivals:
            busy_until = max(busy_until, now) + size * 8 / RATE
            assert arrivals[0][0] == pytest.approx(busy_until)
        counts = slow.statistics(now)
        assert counts.queue_bytes <= max(limit, 400)
        assert counts.queue_delay == pytest.approx(max(0.0, busy_until - now), abs=1e-9)
