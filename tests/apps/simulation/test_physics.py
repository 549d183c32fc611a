"""The physics against what can be computed by hand."""

from itertools import combinations
from math import exp, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp_client.simulation.forces import contacts
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.observables import observe
from sphtp_client.simulation.run import run_whole_box
from sphtp_client.simulation.scenario import Scenario, contact_time
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import Slab, SphereLostError
from sphtp_client.simulation.state import Spheres

SCENARIOS = Path(__file__).parents[3] / "scenarios"
BOX = (0.3, 0.2, 0.1)


def step(slab: Slab) -> Spheres:
    slab.drift()
    slab.kick()
    return slab.spheres


def touching_steps(scenario: Scenario, steps: int) -> int:
    slab = Slab(scenario)
    states = (step(slab) for _ in range(steps))
    return sum(len(contacts(state, scenario.box)[0]) for state in states)


def test_two_equal_spheres_exchange_their_velocities(balls):
    scenario = balls(([0.18, 0.04, 0.04], [2.0, 0, 0]), ([0.205, 0.04, 0.04], [-1.0, 0, 0]))
    end = run_whole_box(scenario, 200)
    # First order in dt: the contact begins and ends between two steps.
    assert end.v[:, 0].tolist() == pytest.approx([-1.0, 2.0], rel=2e-3)
    assert end.v[:, 1:].tolist() == [[0, 0], [0, 0]]


def test_a_contact_lasts_half_a_period_of_the_spring(balls):
    scenario = balls(([0.18, 0.04, 0.04], [2.0, 0, 0]), ([0.205, 0.04, 0.04], [-1.0, 0, 0]))
    mass = 1000.0 * 4 / 3 * pi * 0.01**3
    expected = pi * sqrt(mass / 2 / scenario.stiffness)
    assert contact_time(scenario) == pytest.approx(expected)
    assert touching_steps(scenario, 200) * scenario.dt == pytest.approx(expected, abs=scenario.dt)


def test_damping_takes_its_share_of_the_speed(balls):
    damping = 0.2
    scenario = balls(
        ([0.18, 0.04, 0.04], [2.0, 0, 0]), ([0.205, 0.04, 0.04], [-2.0, 0, 0]),
        damping=damping, dt=5e-6,
    )  # fmt: skip
    end = run_whole_box(scenario, 600)
    restitution = exp(-pi * damping / sqrt(1 - damping**2))
    parting = float(end.v[1, 0] - end.v[0, 0])
    assert parting / 4.0 == pytest.approx(restitution, rel=0.01)


def test_a_light_sphere_bounces_off_a_heavy_one(world):
    ball = {"kind": "ball", "radius": 0.01}
    scenario = world(
        spheres=[
            {**ball, "position": [0.18, 0.04, 0.04], "velocity": [3.0, 0.0, 0.0]},
            {**ball, "position": [0.205, 0.04, 0.04], "density": 3000.0},
        ],
        stiffness=1e5,
        dt=2e-5,
    )
    end = run_whole_box(scenario, 400)
    assert end.v[:, 0].tolist() == pytest.approx([-1.5, 1.5], rel=3e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_both_walls_reflect(balls, axis):
    """Two spheres, side by side if they do not fly along the box, each towards its own wall."""
    to_low, to_high, away, back = [0.2, 0.02, 0.02], [0.15, 0.06, 0.06], [0.0] * 3, [0.0] * 3
    to_low[axis], to_high[axis] = 0.02, (0.4, 0.08, 0.08)[axis] - 0.02
    away[axis], back[axis] = -3.0, 3.0
    scenario = balls((to_low, away), (to_high, back))
    end = run_whole_box(scenario, 300)
    assert end.v[:, axis].tolist() == pytest.approx([3.0, -3.0], rel=2e-3)
    assert observe(end, scenario).kinetic == pytest.approx(float(end.mass[0]) * 9.0, rel=4e-3)


def test_a_free_sphere_falls_as_galileo_says(balls):
    scenario = balls(([0.1, 0.04, 0.06], [1.0, 0.0, 0.0]), gravity=[0.0, 0.0, -9.81])
    end, t = run_whole_box(scenario, 1000), 1000 * scenario.dt
    assert end.x[0].tolist() == pytest.approx([0.1 + t, 0.04, 0.06 - 9.81 / 2 * t * t], rel=1e-9)
    assert end.v[0, 2] == pytest.approx(-9.81 * t, rel=1e-9)


def test_the_gas_keeps_its_energy():
    scenario = load_scenario(SCENARIOS / "gas.toml")
    before = observe(initial_spheres(scenario), scenario)
    after = observe(run_whole_box(scenario, 150), scenario)
    assert after.count == before.count == 2000
    assert after.potential > 0.01 * before.energy  # there are contacts
    assert after.energy == pytest.approx(before.energy, rel=1e-4)


def test_momentum_is_kept_away_from_walls(world):
    cloud = {"kind": "gas", "count": 60, "radius": 0.01, "speed": 2.0, "seed": 5}
    scenario = world(
        box=[0.6, 0.6, 0.6], spheres=[{**cloud, "low": [0.25] * 3, "high": [0.35] * 3}], damping=0.1
    )
    slab, touches = Slab(scenario), 0
    before = observe(slab.spheres, scenario)
    for _ in range(400):
        touches += len(contacts(step(slab), scenario.box)[0])
    after = observe(slab.spheres, scenario)
    assert touches > 100
    assert after.momentum == pytest.approx(before.momentum, abs=1e-14)
    assert after.energy < 0.98 * before.energy


def test_observables_of_spheres_known_by_hand(balls):
    scenario = balls(
        ([0.2, 0.04, 0.03], [1.0, 2.0, 2.0]),
        ([0.3, 0.04, 0.05], [0.0, 0.0, -4.0]),
        gravity=[0.0, 0.0, -10.0],
    )
    spheres = initial_spheres(scenario)
    seen = observe(spheres, scenario)
    mass = float(spheres.mass[0])
    assert seen.count == 2
    assert seen.kinetic == pytest.approx(0.5 * mass * (9 + 16))
    assert seen.momentum == pytest.approx((mass, 2 * mass, -2 * mass))
    assert seen.potential == pytest.approx(10 * mass * 0.08)
    near = spheres.x.copy()
    near[1] = [0.219, 0.04, 0.03]
    near[:, 2] = 0.009
    pressed = observe(spheres.moved(near, spheres.v), scenario)
    springs = 0.5 * scenario.stiffness * 3 * 0.001**2
    assert pressed.potential == pytest.approx(10 * mass * 0.018 + springs)
    assert pressed.energy == pytest.approx(pressed.kinetic + pressed.potential)


def test_a_sphere_that_becomes_too_fast_ends_the_run(balls):
    scenario = balls(([0.1, 0.04, 0.06], [0.0, 9.9, 0.0]), gravity=[1e5, 0.0, 0.0], max_speed=9.95)
    with pytest.raises(SphereLostError, match=r"step 1: sphere 0: .*faster than max_speed, 9\.95"):
        run_whole_box(scenario, 100)


def test_a_sphere_that_leaves_the_box_ends_the_run(balls):
    scenario = balls(([0.2, 0.04, 0.02], [0.0, 0.0, 0.0]), gravity=[0.0, 0.0, -1.5e5])
    with pytest.raises(SphereLostError, match=r"sphere 0: .*(outside the box|faster)"):
        run_whole_box(scenario, 100)


@given(
    places=st.lists(
        st.tuples(*(st.floats(0.0, size) for size in BOX), st.floats(0.002, 0.03)), max_size=40
    )
)
def test_the_grid_finds_the_contacts_that_a_search_of_all_pairs_finds(places):
    rows = np.array(places, dtype=float).reshape(-1, 4)
    x, radius = rows[:, :3].copy(), rows[:, 3].copy()
    ids = np.arange(len(rows), dtype=np.uint32)
    spheres = Spheres(ids, x, np.zeros_like(x), radius, radius)
    i, j = contacts(spheres, BOX)
    expected = {
        (a, b)
        for a, b in combinations(range(len(rows)), 2)
        if sum((x[a] - x[b]) ** 2) < (radius[a] + radius[b]) ** 2
    }
    found = list(zip(i.tolist(), j.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected
