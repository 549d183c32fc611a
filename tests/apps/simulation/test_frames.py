"""Frames: what a slab publishes is what a watcher reads, bit by bit."""

from contextlib import suppress

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.errors import RemoteError
from sphtp_client.simulation.frames import frame_of, frames_sha256, read_frame_untrusted, topic_of
from sphtp_client.simulation.observables import observe
from sphtp_client.simulation.scenario_file import load_scenario, parse_scenario
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import state_sha256
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


@pytest.mark.parametrize(
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
