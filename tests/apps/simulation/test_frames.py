"""Frames: what a slab publishes is what a watcher reads, bit by bit."""

from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import numpy as np
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sphtp.errors import RemoteError
from sphtp_client.simulation.frames import (
    EVERY,
    SHARE,
    SLACK,
    FramePublisher,
    FrameSchedule,
    frame_of,
    frames_sha256,
    read_frame_untrusted,
    topic_of,
)
from sphtp_client.simulation.observables import observe
from sphtp_client.simulation.scenario_file import load_scenario, parse_scenario
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import state_sha256
from tests.cases import each
from tests.profiles import brisk


@pytest.fixture
def scenario(gas_file):
    return load_scenario(gas_file)


def travelled(slab, skipped=0):
    return msgpack.unpackb(msgpack.packb(frame_of(slab, skipped)))


def test_a_frame_arrives_as_it_was(scenario):
    slab = Slab(scenario, 1, 3)
    frame = read_frame_untrusted(travelled(slab, 5))
    assert (frame.step, frame.skipped, len(frame)) == (0, 5, len(slab.spheres))
    assert np.array_equal(frame.id, slab.spheres.id)
    assert np.array_equal(frame.x, slab.spheres.x)
    assert np.array_equal(frame.v, slab.spheres.v)
    assert frames_sha256([frame]) == state_sha256(slab.spheres)


def test_frames_of_all_slabs_make_the_whole_state(scenario):
    alone = Slab(scenario)
    frames = [read_frame_untrusted(travelled(Slab(scenario, n, 3))) for n in (2, 0, 1)]
    assert frames_sha256(frames) == state_sha256(alone.spheres)
    seen = observe(alone.spheres, scenario)
    assert sum(frame.kinetic for frame in frames) == pytest.approx(seen.kinetic)
    for axis in range(3):
        total = sum(frame.momentum[axis] for frame in frames)
        assert total == pytest.approx(seen.momentum[axis])


def test_a_slab_without_spheres_has_a_frame_all_the_same(scenario):
    ball = {"kind": "ball", "radius": 0.015, "position": [0.1, 0.1, 0.1]}
    text = {**scenario.model_dump(exclude={"spheres"}), "spheres": [ball]}
    slab = Slab(parse_scenario(text), 1, 2)
    frame = read_frame_untrusted(travelled(slab))
    assert (len(frame), frame.kinetic, frame.momentum) == (0, 0.0, (0.0, 0.0, 0.0))


NAN = float("nan")
FAR = np.array([[0.0, NAN, 0.0]] * 2).tobytes()


@each(
    ("key", "value"),
    [
        ("step", -1),
        ("step", 2**60),
        ("step", True),
        ("step", "1"),
        ("skipped", None),
        ("kinetic", NAN),
        ("kinetic", 3),
        ("momentum", [1.0, 2.0]),
        ("momentum", [1.0, 2.0, "3"]),
        ("momentum", 1.0),
        ("id", b"123"),
        ("id", "text"),
        ("id", np.array([2, 1], "<u4").tobytes()),
        ("id", np.array([1, 1], "<u4").tobytes()),
        ("x", b""),
        ("x", bytes(47)),
        ("v", bytes(72)),
        ("v", FAR),
    ],
)
def test_what_is_no_frame_is_refused(key, value):
    ids = np.array([1, 2], "<u4").tobytes()
    columns = {"id": ids, "x": bytes(48), "v": bytes(48)}
    good = {"step": 1, "skipped": 0, "kinetic": 1.0, "momentum": [0.0, 0.0, 1.0], **columns}
    assert read_frame_untrusted(good).step == 1
    with pytest.raises(RemoteError):
        read_frame_untrusted({**good, key: value})


@brisk
@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.binary() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["step", "skipped", "kinetic", "momentum", "id", "x", "v"]), inner
            )
        ),
        max_leaves=6,
    )
)
def test_whatever_comes_nothing_but_a_remote_error_leaves(message):
    with suppress(RemoteError):
        read_frame_untrusted(message)


def test_each_slab_has_a_topic_of_its_own():
    assert [topic_of(slab) for slab in (0, 17)] == ["slab/0", "slab/17"]


def told_at(schedule, times, *, cost=0.0, first=0):
    """Return at which steps there is a frame, of steps that end at these times."""
    reported = []
    for step, now in enumerate(times, first + 1):
        if schedule.is_due(step, now):
            reported.append(step)
            schedule.note(step, now, cost)
    return reported


def evenly(count, pause, start=0.0):
    return [start + pause * step for step in range(1, count + 1)]


def begun():
    schedule = FrameSchedule()
    schedule.note(0, 0.0, 0.0)
    return schedule


@given(st.lists(st.floats(1e-5, 0.5), min_size=1, max_size=300))
def test_frames_are_never_nearer_than_allowed(pauses):
    times = [sum(pauses[: n + 1]) for n in range(len(pauses))]
    reported = told_at(begun(), times)
    moments = [0.0, *(times[step - 1] for step in reported)]
    assert all(later - sooner >= EVERY for sooner, later in pairwise(moments))


@pytest.mark.parametrize("pause", [0.0001, 0.001, 0.013, 0.09, 0.3])
def test_at_an_even_pace_steps_are_multiples_of_one_stride(pause):
    reported = told_at(begun(), evenly(60_000, pause))
    settled = reported[5:]
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
    schedule = begun()
    reported = told_at(schedule, evenly(20_000, 0.0001))
    slow = told_at(schedule, evenly(200, 0.05, start=2.0), first=20_000)
    assert reported[-1] > 16_000
    waits = [0.05 * (later - sooner) for sooner, later in pairwise(slow)]
    assert max(waits[3:]) <= 4 * SLACK * EVERY


def test_what_costs_much_comes_less_often():
    reported = told_at(begun(), evenly(10_000, 0.001), cost=0.5 * SHARE)
    assert min(later - sooner for sooner, later in pairwise(reported)) >= 500


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


def run(slab: Slab, steps: int, publisher: FramePublisher) -> None:
    publisher.publish(slab)
    for _ in range(steps):
        slab.drift()
        slab.kick()
        publisher.on_step(slab)


def test_the_first_and_the_last_state_are_published(slab):
    sink = Outlet()
    run(slab, 30, FramePublisher(sink, 30, clock=lambda: 7.0, work=lambda: 0.0))
    assert [frame["step"] for frame in sink.sent] == [0, 30]


def test_without_room_frames_are_skipped_and_counted(slab):
    sink, time = Outlet(), SimpleNamespace(now=0.0)

    def clock() -> float:
        time.now += 2 * EVERY
        return cast("float", time.now)

    publisher = FramePublisher(sink, 20, clock=clock, work=lambda: 0.0)
    sink.has_room = False
    run(slab, 10, publisher)
    assert (sink.sent, publisher.skipped) == ([], 11)
    sink.has_room = True
    run(slab, 10, publisher)
    assert {frame["skipped"] for frame in sink.sent} == {11}
    assert sink.sent[-1]["step"] == 20
