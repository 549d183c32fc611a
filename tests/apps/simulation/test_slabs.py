"""A run over any number of slabs ends in the state of the run in one, to the last bit."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.errors import RemoteError, SettingsError, StateError
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.observables import observe
from sphtp_client.simulation.run import run_whole_box
from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import (
    Slab,
    SlabSide,
    StepPhase,
    borders,
    halo,
    max_slabs,
    stride,
)
from sphtp_client.simulation.state import Spheres, concat, pack, state_sha256, unpack_untrusted
from tests.profiles import few
from tests.soaked import soaked

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def slabs_of(scenario: Scenario, count: int) -> list[Slab]:
    initial = initial_spheres(scenario)
    return [Slab(scenario, index, count, initial=initial) for index in range(count)]


def step(slabs: list[Slab]) -> None:
    for slab in slabs:
        slab.drift()
    for left, right in pairwise(slabs):
        right.absorb_untrusted(SlabSide.LEFT, left.outgoing(SlabSide.RIGHT))
        left.absorb_untrusted(SlabSide.RIGHT, right.outgoing(SlabSide.LEFT))
    for slab in slabs:
        slab.kick()


def run_split(scenario: Scenario, count: int, steps: int) -> Spheres:
    slabs = slabs_of(scenario, count)
    for _ in range(steps):
        step(slabs)
    return concat(slab.spheres for slab in slabs)


@pytest.mark.parametrize("count", [8, *soaked(range(2, 8))])
def test_the_gas_is_the_same_over_any_number_of_slabs(count):
    scenario = load_scenario(SCENARIOS / "gas.toml")
    alone, split = run_whole_box(scenario, 40), run_split(scenario, count, 40)
    assert state_sha256(split) == state_sha256(alone)
    assert observe(split, scenario) == observe(alone, scenario)
    assert len(split) == 2000


@pytest.mark.parametrize("name", ["billiard", "rain"])
def test_shipped_scenarios_are_the_same_over_four_slabs(name):
    scenario = load_scenario(SCENARIOS / f"{name}.toml")
    assert state_sha256(run_split(scenario, 4, 40)) == state_sha256(run_whole_box(scenario, 40))


@given(
    count=st.integers(2, 90),
    slabs=st.integers(1, 8),
    seed=st.integers(0, 2**32),
    speed=st.floats(0.0, 2.0),
    damping=st.sampled_from([0.0, 0.1, 0.7]),
    gravity=st.sampled_from([[0.0, 0.0, 0.0], [0.0, 0.0, -9.81], [100.0, -5.0, 0.0]]),
)
@few
def test_any_crowd_is_the_same_over_any_number_of_slabs(
    world, count, slabs, seed, speed, damping, gravity
):
    crowd = {"kind": "gas", "count": count, "radius": 0.01, "spread": 0.2}
    scenario = world(
        box=[0.25, 0.075, 0.075],
        spheres=[{**crowd, "speed": speed, "seed": seed}],
        damping=damping,
        gravity=gravity,
    )
    assert state_sha256(run_split(scenario, slabs, 30)) == state_sha256(run_whole_box(scenario, 30))


@pytest.mark.soak
def test_a_break_across_slabs_is_the_same_after_many_collisions(world):
    ball = {"radius": 0.01, "density": 1000.0}
    scenario = world(
        box=[0.5, 0.4, 0.04],
        spheres=[
            {"kind": "rack", "rows": 10, "apex": [0.15, 0.2, 0.02], "gap": 1e-5, **ball},
            {"kind": "ball", "position": [0.1, 0.201, 0.02], "velocity": [9.0, 0.0, 0.1], **ball},
        ],
    )
    alone = run_whole_box(scenario, 1000)
    assert (np.abs(alone.v).max(axis=1) > 0.05).sum() > 40  # the rack has burst
    assert state_sha256(run_split(scenario, 5, 1000)) == state_sha256(alone)


def test_spheres_cross_borders_both_ways_and_none_is_lost(balls):
    scenario = balls(
        ([0.195, 0.02, 0.04], [5.0, 0.0, 0.0]), ([0.205, 0.06, 0.04], [-5.0, 0.0, 0.0])
    )
    slabs = slabs_of(scenario, 2)
    assert [slab.spheres.id.tolist() for slab in slabs] == [[0], [1]]
    owners = set()
    for _ in range(100):
        step(slabs)
        owners.add(tuple(tuple(slab.spheres.id.tolist()) for slab in slabs))
        assert sum(len(slab.spheres) for slab in slabs) == 2
    assert owners == {((0,), (1,)), ((1,), (0,))}
    assert state_sha256(concat(s.spheres for s in slabs)) == state_sha256(
        run_whole_box(scenario, 100)
    )


@pytest.mark.parametrize("speed", [0.0, 1.0, -1.0])
def test_a_sphere_exactly_on_a_border_has_one_owner(balls, speed):
    scenario = balls(([0.2, 0.04, 0.04], [speed, 0.0, 0.0]), ([0.185, 0.055, 0.04], [0.0, 0, 0]))
    slabs = slabs_of(scenario, 2)
    assert [slab.spheres.id.tolist() for slab in slabs] == [[1], [0]]
    for _ in range(50):
        step(slabs)
    assert state_sha256(concat(s.spheres for s in slabs)) == state_sha256(
        run_whole_box(scenario, 50)
    )


@pytest.mark.soak
def test_a_sphere_that_bounces_on_a_border_for_long_is_the_same(balls):
    scenario = balls(
        ([0.2, 0.04, 0.04], [0.5, 0.0, 0.0]), ([0.222, 0.04, 0.04], [-0.5, 0.0, 0.0]),
        ([0.178, 0.04, 0.04], [0.5, 0.0, 0.0]), gravity=[0.0, 0.0, -9.81], damping=0.05,
    )  # fmt: skip
    alone = run_whole_box(scenario, 800)
    assert state_sha256(run_split(scenario, 6, 800)) == state_sha256(alone)


def test_too_many_slabs_are_refused_with_the_number_that_is_allowed(world):
    scenario = world()
    most = max_slabs(scenario)
    assert scenario.box[0] / most > halo(scenario) + stride(scenario)
    assert len(borders(scenario, most)) == most + 1
    for count in (0, most + 1):
        with pytest.raises(SettingsError, match=rf"slabs = {count}: must be 1 to {most} for"):
            Slab(scenario, 0, count)
    with pytest.raises(SettingsError, match="slab index = 3: must be 0 to 2"):
        Slab(scenario, 3, 3)
    assert state_sha256(run_split(scenario, most, 20)) == state_sha256(run_whole_box(scenario, 20))


def test_commands_out_of_turn_are_refused(world):
    left, right = slabs_of(world(), 2)
    for early in (left.kick, lambda: left.outgoing(SlabSide.RIGHT)):
        with pytest.raises(StateError):
            early()
    assert [slab.state for slab in (left, right)] == [StepPhase.SETTLED] * 2
    left.drift()
    right.drift()
    assert [slab.state for slab in (left, right)] == [StepPhase.MOVED] * 2
    with pytest.raises(StateError, match="MOVED refuses DRIFT"):
        left.drift()
    with pytest.raises(StateError, match="no message yet from RIGHT"):
        left.kick()
    with pytest.raises(StateError, match="slab 0 of 2 has no LEFT neighbour"):
        left.outgoing(SlabSide.LEFT)
    left.absorb_untrusted(SlabSide.RIGHT, right.outgoing(SlabSide.LEFT))
    left.kick()
    assert [slab.state for slab in (left, right)] == [StepPhase.SETTLED, StepPhase.MOVED]


def strange_messages(left: Slab, right: Slab) -> dict[str, bytes]:
    sound = left.outgoing(SlabSide.RIGHT)
    table = initial_spheres(left.scenario)
    step, near = unpack_untrusted(sound, table)
    assert len(near) > 0
    far, fast = near.x.copy(), near.v.copy()
    far[0, 0] = 0.4
    fast[0, 1] = 1e300
    outside = near.x.copy()
    outside[0, 2] = -0.01
    mine = right.spheres.take(np.arange(1))
    return {
        "neighbour on the LEFT side is at step 2, not 1": pack(near, step + 1),
        "is not near the border": pack(near.moved(far, near.v), step),
        "of the LEFT neighbour is not near": pack(near.moved(outside, near.v), step),
        "is faster than max_speed": pack(near.moved(near.x, fast), step),
        "is known to be elsewhere": pack(mine.moved(near.x[:1], near.v[:1]), step),
        "bytes of them came": sound[:-1],
        "12|8 bytes wanted": b"",
    }


def test_strange_messages_are_refused_and_change_nothing(world):
    left, right = slabs_of(world(), 2)
    left.drift()
    right.drift()
    for reason, message in strange_messages(left, right).items():
        with pytest.raises(RemoteError, match=reason):
            right.absorb_untrusted(SlabSide.LEFT, message)
        assert right.missing == (SlabSide.LEFT,)
    with pytest.raises(RemoteError, match="no message awaited from the RIGHT"):
        right.absorb_untrusted(SlabSide.RIGHT, left.outgoing(SlabSide.RIGHT))
    right.absorb_untrusted(SlabSide.LEFT, left.outgoing(SlabSide.RIGHT))
    with pytest.raises(RemoteError, match="no message awaited from the LEFT"):
        right.absorb_untrusted(SlabSide.LEFT, left.outgoing(SlabSide.RIGHT))
    left.absorb_untrusted(SlabSide.RIGHT, right.outgoing(SlabSide.LEFT))
    left.kick()
    right.kick()
    both = concat([left.spheres, right.spheres])
    assert state_sha256(both) == state_sha256(run_whole_box(left.scenario, 1))


@pytest.mark.parametrize("stride", [11, *soaked([1])])
def test_a_flipped_bit_raises_nothing_but_remote_errors(world, stride):
    """Each bit of the head, and of the rest every bit or every eleventh."""
    left, right = slabs_of(world(), 2)
    left.drift()
    right.drift()
    sound = left.outgoing(SlabSide.RIGHT)
    initial = initial_spheres(right.scenario)
    refused = 0
    for bit in (*range(96), *range(96, 8 * len(sound), stride)):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        victim = Slab(right.scenario, 1, 2, initial=initial)
        victim.drift()
        try:
            victim.absorb_untrusted(SlabSide.LEFT, bytes(flipped))
        except RemoteError:
            refused += 1
        else:
            victim.kick()
    assert refused > 96
