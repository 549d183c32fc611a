"""Contacts of spheres, and the accelerations by contacts, walls and gravity.

A grid of cells finds the contacts: only spheres in neighbouring cells are compared.

The forces are the same to the last bit for every division of the box into slabs, for two reasons.
Every force is computed elementwise with ``+ - * /`` and ``sqrt``, whose rounding IEEE 754
determines. And a sphere's forces are added in the order of the other spheres' ids.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.state import Floats, Spheres

Indices = NDArray[np.intp]

# A cell is a little wider than the largest sphere, so that rounding never hides a contact.
MARGIN = 1.001


def contacts(spheres: Spheres, box: tuple[float, float, float]) -> tuple[Indices, Indices]:
    """Return the index pairs (i, j), i < j, of all overlapping spheres, in any order."""
    if len(spheres) < 2:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    keys, stride = _cells(spheres, box)
    order = np.argsort(keys)
    first, second = _candidates(keys[order], stride)
    x, radius = spheres.x[order], spheres.radius[order]
    touching = np.flatnonzero(_overlapping(x, radius, first, second))
    i, j = order[first[touching]], order[second[touching]]
    return np.minimum(i, j), np.maximum(i, j)


def _cells(spheres: Spheres, box: tuple[float, float, float]) -> tuple[Indices, tuple[int, int]]:
    size = 2.0 * MARGIN * float(spheres.radius.max())
    counts = [max(int(length / size), 1) for length in box]
    wide, deep = counts[1] + 2, counts[2] + 2
    cell = np.empty((3, len(spheres)), np.intp)
    for axis in range(3):
        scaled = spheres.x[:, axis] * (counts[axis] / box[axis])
        cell[axis] = np.clip(scaled, 0, counts[axis] - 1)
    # One empty row of cells on each side keeps neighbours from wrapping around.
    return (cell[0] * wide + cell[1] + 1) * deep + cell[2] + 1, (wide * deep, deep)


def _candidates(keys: Indices, stride: tuple[int, int]) -> tuple[Indices, Indices]:
    """Pair each sphere with those after it in its own row of three cells and in four other rows."""
    plane, row = stride
    offsets = (row, plane - row, plane, plane + row)
    own = np.arange(1, len(keys) + 1)
    starts = [own, *(np.searchsorted(keys, keys + (offset - 1)) for offset in offsets)]
    stops = [np.searchsorted(keys, keys + (offset + 1), "right") for offset in (0, *offsets)]
    start, stop = np.concatenate(starts), np.concatenate(stops)
    count = stop - start
    first = np.repeat(np.tile(np.arange(len(keys)), len(stops)), count)
    skipped = np.repeat(np.cumsum(count) - count - start, count)
    return first, np.arange(len(first)) - skipped


def _overlapping(x: Floats, radius: Floats, i: Indices, j: Indices) -> NDArray[np.bool_]:
    d = x[i] - x[j]
    connection = radius[i] + radius[j]
    touching: NDArray[np.bool_] = squares(d) < connection * connection
    return touching


def squares(d: Floats) -> Floats:
    """Return the squared lengths of these vectors."""
    # Written out, because a reduction may sum in another order on another machine.
    lengths: Floats = d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1] + d[:, 2] * d[:, 2]
    return lengths


TINY = 1e-150


class Touching(NamedTuple):
    """Contacts of spheres ``i`` and ``j``: ``overlap`` in m, unit vector ``normal`` from j to i."""

    i: Indices
    j: Indices
    overlap: Floats
    normal: Floats


def accelerations(spheres: Spheres, scenario: Scenario) -> Floats:
    """Return the accelerations of spheres in order of ids, in m/s2."""
    force = _contact_forces(spheres, scenario)
    for axis in range(3):
        force[:, axis] += _wall_forces(spheres, scenario, axis)
    acceleration: Floats = force / spheres.mass[:, np.newaxis] + np.array(scenario.gravity)
    return acceleration


def touching(spheres: Spheres, scenario: Scenario) -> Touching:
    """Return all contacts between spheres."""
    i, j = contacts(spheres, scenario.box)
    between = spheres.x[i] - spheres.x[j]
    distance = np.sqrt(squares(between))
    # Two spheres at the same position get no force, instead of a division by zero.
    normal = between / np.maximum(distance, TINY)[:, np.newaxis]
    return Touching(i, j, spheres.radius[i] + spheres.radius[j] - distance, normal)


def wall_overlaps(spheres: Spheres, scenario: Scenario, axis: int) -> tuple[Floats, Floats]:
    """Return the overlap of each sphere, in m, with the lower and with the upper wall."""
    x, radius = spheres.x[:, axis], spheres.radius
    return np.maximum(radius - x, 0.0), np.maximum(x + radius - scenario.box[axis], 0.0)


def _contact_forces(spheres: Spheres, scenario: Scenario) -> Floats:
    i, j, overlap, normal = touching(spheres, scenario)
    parting = _dot(spheres.v[i] - spheres.v[j], normal)
    mass = spheres.mass[i] * spheres.mass[j] / (spheres.mass[i] + spheres.mass[j])
    strength = _law(overlap, parting, mass, scenario)
    force = strength[:, np.newaxis] * normal
    return _summed(i, j, force, len(spheres))


def _wall_forces(spheres: Spheres, scenario: Scenario, axis: int) -> Floats:
    low, high = wall_overlaps(spheres, scenario, axis)
    v, mass = spheres.v[:, axis], spheres.mass
    up = np.where(low > 0.0, _law(low, v, mass, scenario), 0.0)
    down = np.where(high > 0.0, _law(high, -v, mass, scenario), 0.0)
    total: Floats = up - down
    return total


def _law(overlap: Floats, parting: Floats, mass: Floats, scenario: Scenario) -> Floats:
    """Return the repelling force in N: a spring, and a dashpot along the normal."""
    spring = scenario.stiffness * overlap
    if scenario.damping == 0.0:
        return spring
    dashpot = (2.0 * scenario.damping) * np.sqrt(scenario.stiffness * mass) * parting
    force: Floats = spring - dashpot
    return force


def _summed(i: Indices, j: Indices, force: Floats, count: int) -> Floats:
    """Add each pair's force to i and its opposite to j, per sphere in order of the other's id."""
    to, by = np.concatenate((i, j)), np.concatenate((j, i))
    order = np.argsort(to * count + by)
    to, both = to[order], np.concatenate((force, -force))[order]
    # bincount adds one weight after the other, in the order given.
    if not len(to):
        return np.zeros((count, 3))
    columns = [np.bincount(to, weights=both[:, axis], minlength=count) for axis in range(3)]
    return np.stack(columns, axis=1)


def _dot(a: Floats, b: Floats) -> Floats:
    product: Floats = a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2]
    return product
