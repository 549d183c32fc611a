"""When a slab publishes: seldom enough, of common steps, and never waiting."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sphtp_client.simulation.publisher import EVERY, SHARE, SLACK, Publisher, Rhythm
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import Slab


def told_at(rhythm, times, *, cost=0.0, first=0):
    """Return at which steps there is a frame, of steps that end at these times."""
    told = []
    for step, now in enumerate(times, first + 1):
        if rhythm.is_due(step, now):
            told.append(step)
            rhythm.note(step, now, cost)
    return told


def evenly(count, pause, start=0.0):
    return [start + pause * step for step in range(1, count + 1)]


def begun():
    rhythm = Rhythm()
    rhythm.note(0, 0.0, 0.0)
    return rhythm


@given(st.lists(st.floats(1e-5, 0.5), min_size=1, max_size=300))
def test_frames_are_never_nearer_than_allowed(pauses):
    times = [sum(pauses[: n + 1]) for n in range(len(pauses))]
    told = told_at(begun(), times)
    moments = [0.0, *(times[step - 1] for step in told)]
    assert all(later - sooner >= EVERY for sooner, later in pairwise(moments))


@pytest.mark.parametrize("pause", [0.0001, 0.001, 0.013, 0.09, 0.3])
def test_at_an_even_pace_steps_are_multiples_of_one_stride(pause):
    told = told_at(begun(), evenly(20_000, pause))
    settled = told[5:]
    stride = settled[1] - settled[0]
    assert stride & (stride - 1) == 0
    assert settled == list(range(settled[0], settled[-1] + 1, stride))
    assert settled[0] % stride == 0
    assert EVERY <= max(stride * pause, EVERY) <= max(2 * EVERY, pause) + 1e-9


def test_slabs_with_clocks_of_their_own_have_steps_in_common():
    pace = 0.00078  # 128 of these are a little less than the interval, 129 a little more
    one = told_at(begun(), evenly(5000, pace))
    other = told_at(begun(), evenly(5000, 1.002 * pace, start=0.03))
    common = set(one) & set(other)
    assert len(common) >= 0.8 * min(len(one), len(other))


def test_who_becomes_slow_is_not_silent_for_long():
    rhythm = begun()
    told = told_at(rhythm, evenly(10_000, 0.0001))
    slow = told_at(rhythm, evenly(100, 0.05, start=1.0), first=10_000)
    assert told[-1] > 9000
    waits = [0.05 * (later - sooner) for sooner, later in pairwise(slow)]
    assert max(waits[3:]) <= 4 * SLACK * EVERY


def test_what_costs_much_comes_less_often():
    told = told_at(begun(), evenly(10_000, 0.001), cost=0.5 * SHARE)
    assert min(later - sooner for sooner, later in pairwise(told)) >= 500


class Outlet:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.has_room = True

    def send_nowait(self, value: Any) -> None:
        if not self.has_room:
            raise trio.WouldBlock
        self.sent.append(value)


@pytest.fixture
def slab(gas_file):
    return Slab(load_scenario(gas_file))


def run(slab: Slab, steps: int, publisher: Publisher) -> None:
    publisher.publish(slab)
    for _ in range(steps):
        slab.drift()
        slab.kick()
        publisher.on_step(slab)


def test_the_first_and_the_last_state_are_published(slab):
    outlet = Outlet()
    run(slab, 30, Publisher(outlet, 30, clock=lambda: 7.0, work=lambda: 0.0))
    assert [frame["step"] for frame in outlet.sent] == [0, 30]


def test_without_room_frames_are_skipped_and_counted(slab):
    outlet, time = Outlet(), SimpleNamespace(now=0.0)

    def clock() -> float:
        time.now += 2 * EVERY
        return cast("float", time.now)

    publisher = Publisher(outlet, 20, clock=clock, work=lambda: 0.0)
    outlet.has_room = False
    run(slab, 10, publisher)
    assert (outlet.sent, publisher.skipped) == ([], 11)
    outlet.has_room = True
    run(slab, 10, publisher)
    assert {frame["skipped"] for frame in outlet.sent} == {11}
    assert outlet.sent[-1]["step"] == 20
