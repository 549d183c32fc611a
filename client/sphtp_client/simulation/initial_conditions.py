"""The initial spheres of a scenario, whose positions the scenario determines completely."""

from collections.abc import Callable
from math import floor, sqrt

import numpy as np

from sphtp_client.simulation.forces import contacts
from sphtp_client.simulation.scenario import (
    Ball,
    Cloud,
    Gas,
    Problem,
    Rack,
    Rain,
    Scenario,
    ScenarioError,
    SphereGroup,
)
from sphtp_client.simulation.state import Floats, Spheres

# The relative overlap that counts as a rounding error, as of two spheres that touch.
TOUCH = 1e-9

# Positions, velocities, radii.
Placed = tuple[Floats, Floats, Floats]


def initial_spheres(scenario: Scenario) -> Spheres:
    """Return the spheres of all groups; ids count from 0 in the order of the file.

    Raises ``ScenarioError`` if spheres do not fit, overlap, reach into a wall or are too fast.
    """
    placed = [_PLACE[type(group)](group, n, scenario) for n, group in enumerate(scenario.spheres)]
    x, v, radius = (np.concatenate(column) for column in zip(*placed, strict=True))
    density = np.repeat([g.density for g in scenario.spheres], [len(p[0]) for p in placed])
    mass = density * (4.0 / 3.0 * np.pi) * (radius * radius * radius)
    spheres = Spheres(np.arange(len(x), dtype=np.uint32), x, v, radius, mass)
    _refuse_outside(spheres, scenario)
    _refuse_too_fast(spheres, scenario)
    _refuse_overlaps(spheres, scenario)
    return spheres


def _gas(group: Gas, n: int, scenario: Scenario) -> Placed:
    random = _generator(group)
    x, radius = _scattered(group, n, scenario, random)
    return x, random.standard_normal(x.shape) * (group.speed / sqrt(3.0)), radius


def _rain(group: Rain, n: int, scenario: Scenario) -> Placed:
    x, radius = _scattered(group, n, scenario, _generator(group))
    return x, np.tile(np.array(group.velocity), (group.count, 1)), radius


def _rack(group: Rack, _n: int, _scenario: Scenario) -> Placed:
    pitch = 2.0 * group.radius + group.gap
    rows = [(row, place) for row in range(group.rows) for place in range(row + 1)]
    offsets = [(row * sqrt(0.75), place - 0.5 * row, 0.0) for row, place in rows]
    x = np.array(group.apex) + pitch * np.array(offsets)
    return x, np.zeros_like(x), np.full(len(x), group.radius)


def _ball(group: Ball, _n: int, _scenario: Scenario) -> Placed:
    return np.array([group.position]), np.array([group.velocity]), np.array([group.radius])


_PLACE: dict[type[SphereGroup], Callable[..., Placed]] = {
    Gas: _gas,
    Rain: _rain,
    Rack: _rack,
    Ball: _ball,
}


def _generator(group: Cloud) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(group.seed))


def _scattered(
    group: Cloud, n: int, scenario: Scenario, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return positions on a lattice, each moved at random within its cell, and radii, in m.

    Raises ``ScenarioError`` if the region is too small for the spheres.
    """
    low = np.array(group.low or (0.0, 0.0, 0.0))
    size = np.array(group.high or scenario.box) - low
    diameter = 2.0 * group.largest_radius * (1.0 + TOUCH)
    sites = _sites(size, group.count, diameter)
    if sites is None:
        most = int(np.prod(np.floor(size / diameter)))
        allowed = f"must be at most {most}, so many of its largest spheres fit its region"
        raise ScenarioError([Problem(f"spheres[{n}].count", str(group.count), allowed)])
    chosen = np.sort(random.permutation(int(np.prod(sites)))[: group.count])
    corner = np.stack(np.unravel_index(chosen, sites), axis=1)
    pitch = size / np.array(sites)
    jitter = (random.random((group.count, 3)) - 0.5) * (pitch - diameter)
    radius = group.radius * (1.0 + group.spread * (2.0 * random.random(group.count) - 1.0))
    return low + (corner + 0.5) * pitch + jitter, radius


def _sites(size: Floats, count: int, diameter: float) -> tuple[int, int, int] | None:
    """Return the numbers of sites along x, y and z of a lattice with at least ``count`` sites.

    Its pitch is at least ``diameter``, and as large as possible to 1 %. Returns None if no such
    lattice fits.
    """
    pitch = float(np.prod(size) / count) ** (1.0 / 3.0)
    while True:
        pitch = max(pitch, diameter)
        x, y, z = (floor(length / pitch) for length in size)
        if x * y * z >= count:
            return x, y, z
        if pitch == diameter:
            return None
        pitch *= 0.99


def _refuse_outside(spheres: Spheres, scenario: Scenario) -> None:
    slack = TOUCH * spheres.radius[:, np.newaxis]
    room = spheres.radius[:, np.newaxis] - slack
    outside = (spheres.x < room) | (spheres.x > np.array(scenario.box) - room)
    for sphere, axis in np.argwhere(outside)[:1]:
        n, group = _group_of(int(sphere), scenario)
        end = scenario.box[axis] - spheres.radius[sphere]
        raise _refused(
            f"spheres[{n}].{group.place}",
            f"sphere {sphere} at {_shown(spheres.x[sphere])}",
            f"must have its centre within {spheres.radius[sphere]:g} to {end:g} m along "
            f"{'xyz'[axis]}, clear of the walls",
        )


def _refuse_too_fast(spheres: Spheres, scenario: Scenario) -> None:
    speed = np.sqrt((spheres.v * spheres.v).sum(axis=1))
    fastest = int(speed.argmax())
    if speed[fastest] > scenario.max_speed:
        n, group = _group_of(fastest, scenario)
        raise _refused(
            f"spheres[{n}].{group.motion}",
            f"{getattr(group, group.motion)} (sphere {fastest} has {speed[fastest]:.4g} m/s)",
            f"must leave every sphere at or below max_speed, {scenario.max_speed:g} m/s",
        )


def _refuse_overlaps(spheres: Spheres, scenario: Scenario) -> None:
    i, j = contacts(spheres, scenario.box)
    d = spheres.x[i] - spheres.x[j]
    connection = spheres.radius[i] + spheres.radius[j]
    overlap = connection - np.sqrt((d * d).sum(axis=1))
    for pair in np.flatnonzero(overlap > TOUCH * connection)[:1]:
        (n, _), (m, group) = (_group_of(int(index[pair]), scenario) for index in (i, j))
        raise _refused(
            f"spheres[{m}].{group.place}",
            f"sphere {j[pair]} at {_shown(spheres.x[j[pair]])}",
            f"must not overlap sphere {i[pair]} of spheres[{n}] at "
            f"{_shown(spheres.x[i[pair]])}; they share {overlap[pair]:.3g} m",
        )


def _group_of(sphere: int, scenario: Scenario) -> tuple[int, SphereGroup]:
    ends = np.cumsum([group.size for group in scenario.spheres])
    n = int(np.searchsorted(ends, sphere, "right"))
    return n, scenario.spheres[n]


def _refused(key: str, value: str, allowed: str) -> ScenarioError:
    return ScenarioError([Problem(key, value, allowed)])


def _shown(x: Floats) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in x) + ")"
