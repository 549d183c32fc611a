"""Which spheres touch: a grid of cells in which only neighbouring cells are compared."""

import numpy as np
from numpy.typing import NDArray

from sphtp_client.simulation.state import Floats, Spheres

Indices = NDArray[np.intp]

# A cell is a little wider than the largest sphere: rounding must never hide a contact.
MARGIN = 1.001


def contacts(spheres: Spheres, box: tuple[float, float, float]) -> tuple[Indices, Indices]:
    """Return the index pairs (i, j), i < j, of all spheres that overlap, in no special order."""
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
    # One empty row of cells on each side keeps neighbours from wrapping round.
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
    reach = radius[i] + radius[j]
    touching: NDArray[np.bool_] = squares(d) < reach * reach
    return touching


def squares(d: Floats) -> Floats:
    """Return the squared lengths of these vectors."""
    # Spelled out: a reduction may sum in another order on another machine.
    lengths: Floats = d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1] + d[:, 2] * d[:, 2]
    return lengths
