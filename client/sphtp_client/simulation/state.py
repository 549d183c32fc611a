"""Spheres as a record of arrays, and their encoding.

A message is ``step u64, count u32``, then ``ids u32[count]``, ``positions f64[count][3]`` and
``velocities f64[count][3]``; little-endian, in order of ids. Radius and mass are determined by the
id and the scenario, so the message does not contain them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sphtp.core.wire import Reader, Writer
from sphtp.errors import LocalError, WireError, untrusted

Floats = NDArray[np.float64]
Ids = NDArray[np.uint32]
Selection = NDArray[np.bool_] | NDArray[np.intp]

BYTES_PER_SPHERE = 4 + 6 * 8


@dataclass(frozen=True, slots=True, eq=False)
class Spheres:
    """Some spheres in order of ids: ``x`` and ``radius`` in m, ``v`` in m/s, ``mass`` in kg."""

    id: Ids
    x: Floats
    v: Floats
    radius: Floats
    mass: Floats

    def __len__(self) -> int:
        return len(self.id)

    def take(self, selection: Selection) -> "Spheres":
        """Return the selected spheres."""
        return Spheres(
            self.id[selection],
            self.x[selection],
            self.v[selection],
            self.radius[selection],
            self.mass[selection],
        )

    def moved(self, x: Floats, v: Floats) -> "Spheres":
        """Return the same spheres with new positions and velocities."""
        return Spheres(self.id, x, v, self.radius, self.mass)


def concat(parts: Iterable[Spheres]) -> Spheres:
    """Return the spheres of all parts in order of ids.

    Raises ``LocalError`` if a sphere is in two parts.
    """
    listed = list(parts)
    joined = Spheres(
        np.concatenate([part.id for part in listed]),
        np.concatenate([part.x for part in listed]),
        np.concatenate([part.v for part in listed]),
        np.concatenate([part.radius for part in listed]),
        np.concatenate([part.mass for part in listed]),
    )
    joined = joined.take(np.argsort(joined.id))
    twice = joined.id[1:][joined.id[1:] == joined.id[:-1]]
    if len(twice):
        raise LocalError(f"sphere {twice[0]} is in two places")
    return joined


def pack(spheres: Spheres, step: int) -> bytes:
    """Return the message of these spheres after ``step`` steps."""
    head = Writer().u64(step).u32(len(spheres)).finish()
    columns = (spheres.id.astype("<u4"), spheres.x.astype("<f8"), spheres.v.astype("<f8"))
    return b"".join((head, *(column.tobytes() for column in columns)))


@untrusted
def unpack_untrusted(data: bytes, table: Spheres) -> tuple[int, Spheres]:
    """Return the step and the spheres in a message of ``pack``.

    ``table`` is the scenario's initial state, which has the radius and mass of all ids. Raises
    ``RemoteError`` if the message is malformed.
    """
    reader = Reader(data)
    step, count = reader.u64(), reader.u32()
    if reader.remaining != count * BYTES_PER_SPHERE:
        raise WireError(f"{count} spheres announced, {reader.remaining} bytes of them came")
    ids = _column(reader, "<u4", count).astype(np.uint32)
    x = _column(reader, "<f8", 3 * count).astype(np.float64).reshape(count, 3)
    v = _column(reader, "<f8", 3 * count).astype(np.float64).reshape(count, 3)
    if count and (np.any(ids[1:] <= ids[:-1]) or ids[-1] >= len(table)):
        raise WireError("ids are not in order, or not of this scenario")
    if not (np.isfinite(x).all() and np.isfinite(v).all()):
        raise WireError("a position or a velocity is not finite")
    return step, Spheres(ids, x, v, table.radius[ids], table.mass[ids])


def state_sha256(spheres: Spheres) -> str:
    """Return the hexadecimal digest over ids, positions and velocities in order of ids."""
    ordered = spheres.take(np.argsort(spheres.id))
    return columns_sha256(ordered.id, ordered.x, ordered.v)


def columns_sha256(ids: Ids, x: Floats, v: Floats) -> str:
    """Return the digest that ``state_sha256`` returns, from columns in order of ids."""
    digest = sha256(ids.astype("<u4").tobytes())
    digest.update(x.astype("<f8").tobytes())
    digest.update(v.astype("<f8").tobytes())
    return digest.hexdigest()


def _column(reader: Reader, kind: str, count: int) -> NDArray[Any]:
    return np.frombuffer(reader.take(count * np.dtype(kind).itemsize), dtype=kind)
