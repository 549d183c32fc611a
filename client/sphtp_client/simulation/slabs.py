"""The division of a box along x into slabs, and the motion of a slab's spheres in a step.

``borders`` returns the borders of slabs of equal width. No slab is narrower than the region that
affects its neighbours, so that a sphere only affects its owner and the owner's neighbours.

``Slab`` is one peer's part of the box: the spheres whose centres are in it. A step is drift,
exchange, kick. In the exchange, each slab sends each neighbour one message, with its spheres that
are near the common border or have crossed it. The position of a sphere determines its owner, so
both sides derive the same owner from the same numbers.
"""

from enum import auto
from math import inf

import numpy as np

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.errors import LocalError, SettingsError, StateError, WireError, untrusted
from sphtp_client.simulation.forces import MARGIN, Indices, accelerations, squares
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.state import Floats, Spheres, concat, pack, unpack_untrusted


def halo(scenario: Scenario) -> float:
    """Return the distance from a border, in m, within which spheres affect the other side."""
    return 2.0 * MARGIN * scenario.largest_radius


def stride(scenario: Scenario) -> float:
    """Return the longest distance, in m, that a sphere may move in one step."""
    return MARGIN * scenario.max_speed * scenario.dt


def max_slabs(scenario: Scenario) -> int:
    """Return the largest number of slabs into which the box can be divided."""
    return max(int(scenario.box[0] / _narrowest(scenario)), 1)


def borders(scenario: Scenario, count: int, name: str = "slabs") -> tuple[float, ...]:
    """Return the ``count + 1`` borders of ``count`` slabs in m.

    Raises ``SettingsError``, which contains ``name``, if ``count`` is below 1 or over
    ``max_slabs``. From a slab that is narrower than halo and stride together, a sphere could affect
    a peer that is not a neighbour of its owner.
    """
    most = max_slabs(scenario)
    if not 1 <= count <= most:
        raise SettingsError(
            f"{name} = {count}: must be 1 to {most} for this scenario, because a slab of the "
            f"{scenario.box[0]:g} m long box must be at least {_narrowest(scenario):.4g} m wide"
        )
    return tuple(scenario.box[0] * n / count for n in range(count + 1))


def _narrowest(scenario: Scenario) -> float:
    # The borders themselves are rounded, so that a slab may be a little narrower than computed.
    return MARGIN * (halo(scenario) + stride(scenario))


class SlabSide(Name):
    """The sides of a slab: LEFT is at smaller x."""

    LEFT = auto()
    RIGHT = auto()


class StepPhase(Name):
    """The phases of a step: SETTLED between two steps, MOVED with new positions and old forces."""

    SETTLED = auto()
    MOVED = auto()


class StepEvent(Name):
    """A slab's events: the inputs of its table."""

    DRIFT = auto()
    EXCHANGE = auto()
    KICK = auto()


class StepAction(Name):
    """A slab's actions: the outputs of its table."""

    PUSH = auto()
    MOVE = auto()
    GATHER = auto()


STEP = Machine(
    "step of a slab",
    StepPhase.SETTLED,
    [
        Row(
            StepPhase.SETTLED,
            StepEvent.DRIFT,
            StepPhase.MOVED,
            (StepAction.PUSH, StepAction.MOVE),
            "first half of velocity Verlet",
        ),
        Row(
            StepPhase.MOVED,
            StepEvent.EXCHANGE,
            StepPhase.MOVED,
            (),
            "neighbours exchange new positions",
        ),
        Row(
            StepPhase.MOVED,
            StepEvent.KICK,
            StepPhase.SETTLED,
            (StepAction.GATHER, StepAction.PUSH),
            "second half, with the forces at the new positions",
        ),
    ],
    events=StepEvent,
    refused={
        StepPhase.SETTLED: frozenset({StepEvent.EXCHANGE, StepEvent.KICK}),
        StepPhase.MOVED: frozenset({StepEvent.DRIFT}),
    },
)


class SphereLostError(LocalError):
    """A sphere is faster than ``max_speed``, or outside the box; the text names the sphere."""


class Slab:
    """Slab ``index`` of ``count``, counted along x, in the initial state of the scenario.

    ``initial`` is the result of ``initial_spheres``, if the caller has it already. Raises
    ``SettingsError`` for an index out of range, and for more slabs than the scenario allows.
    """

    def __init__(
        self, scenario: Scenario, index: int = 0, count: int = 1, *, initial: Spheres | None = None
    ) -> None:
        cuts = borders(scenario, count)
        if not 0 <= index < count:
            raise SettingsError(f"slab index = {index}: must be 0 to {count - 1}")
        self.scenario = scenario
        self.index = index
        self.count = count
        self.step = 0
        self.sides = tuple(
            side for side, end in ((SlabSide.LEFT, 0), (SlabSide.RIGHT, count - 1)) if index != end
        )
        # The outer slabs own spheres on the walls, too, and those that rounding puts behind them.
        self.low = cuts[index] if index > 0 else -inf
        self.high = cuts[index + 1] if index < count - 1 else inf
        self._halo, self._stride = halo(scenario), stride(scenario)
        self._all_spheres = initial_spheres(scenario) if initial is None else initial
        self._incoming: dict[SlabSide, Spheres] = {}
        self.state = STEP.initial
        """The phase of the step, a ``StepPhase``."""
        self._spheres, self._acceleration = self._settle(self._all_spheres)

    @property
    def spheres(self) -> Spheres:
        """The spheres that this slab owns, in order of ids."""
        return self._spheres

    @property
    def missing(self) -> tuple[SlabSide, ...]:
        """The sides whose message of this step has not arrived."""
        return tuple(side for side in self.sides if side not in self._incoming)

    def drift(self) -> None:
        """Begin a step: move all spheres.

        Raises ``SphereLostError`` if a sphere is too fast or outside the box. The slab cannot be
        used after that.
        """
        self._happen(StepEvent.DRIFT)

    def outgoing(self, side: SlabSide) -> bytes:
        """Return this step's message to the neighbour on that side.

        Raises ``StateError`` if there is no such neighbour, or ``drift`` has not begun a step.
        """
        self._happen(StepEvent.EXCHANGE)
        if side not in self.sides:
            raise StateError(f"slab {self.index} of {self.count} has no {side.name} neighbour")
        x = self._spheres.x[:, 0]
        near = x < self.low + self._halo if side is SlabSide.LEFT else x >= self.high - self._halo
        return pack(self._spheres.take(near), self.step)

    @untrusted
    def absorb_untrusted(self, side: SlabSide, data: bytes) -> None:
        """Store the neighbour's message of this step.

        Raises ``RemoteError``, without any change, for an invalid message, and ``StateError`` if no
        message is expected from this side.
        """
        self._happen(StepEvent.EXCHANGE)
        if side not in self.missing:
            raise StateError(f"step {self.step}: no message awaited from the {side.name} side")
        step, spheres = unpack_untrusted(data, self._all_spheres)
        if step != self.step:
            raise WireError(f"neighbour on the {side.name} side is at step {step}, not {self.step}")
        self._refuse_strange(side, spheres)
        self._incoming[side] = spheres

    def kick(self) -> None:
        """Finish the step: add the spheres that entered, and accelerate all spheres.

        Raises ``StateError`` if the message of a neighbour is missing.
        """
        if self.missing:
            names = " and ".join(side.name for side in self.missing)
            raise StateError(f"step {self.step}: no message yet from {names}")
        self._happen(StepEvent.KICK)

    def _happen(self, event: StepEvent) -> None:
        self._RUNNER.step(self, event)

    def _push(self) -> None:
        half = 0.5 * self.scenario.dt
        self._spheres = self._spheres.moved(
            self._spheres.x, self._spheres.v + self._acceleration * half
        )

    def _move(self) -> None:
        x, v = self._spheres.x, self._spheres.v
        self.step += 1
        limit = self.scenario.max_speed
        # The negated comparison also rejects a velocity that is not a number.
        too_fast = np.flatnonzero(~(squares(v) <= limit * limit))
        self._refuse_lost(too_fast, v, f"m/s is faster than max_speed, {limit:g}")
        x = x + v * self.scenario.dt
        outside = ((x < 0.0) | (x > np.array(self.scenario.box))).any(axis=1)
        self._refuse_lost(
            np.flatnonzero(outside), x, f"m is outside the box of {self.scenario.box}"
        )
        self._spheres = self._spheres.moved(x, v)

    def _gather(self) -> None:
        around = concat((self._spheres, *self._incoming.values()))
        self._incoming.clear()
        self._spheres, self._acceleration = self._settle(around)

    def _settle(self, around: Spheres) -> tuple[Spheres, Floats]:
        """Return the spheres that the slab owns, and their accelerations."""
        x = around.x[:, 0]
        local = around.take((x >= self.low - self._halo) & (x < self.high + self._halo))
        x = local.x[:, 0]
        owned = (x >= self.low) & (x < self.high)
        return local.take(owned), accelerations(local, self.scenario)[owned]

    _RUNNER = Runner(
        STEP,
        {StepAction.PUSH: _push, StepAction.MOVE: _move, StepAction.GATHER: _gather},
        raised=StepEvent,
    )

    def _refuse_lost(self, lost: Indices, where: Floats, what: str) -> None:
        for n in lost[:1]:
            vector = ", ".join(f"{value:.6g}" for value in where[n])
            raise SphereLostError(
                f"step {self.step}: sphere {self._spheres.id[n]}: ({vector}) {what}"
            )

    def _refuse_strange(self, side: SlabSide, spheres: Spheres) -> None:
        x, box = spheres.x, np.array(self.scenario.box)
        low, high = {
            SlabSide.LEFT: (self.low - self._halo, self.low + self._stride),
            SlabSide.RIGHT: (self.high - self._stride, self.high + self._halo),
        }[side]
        if not ((x[:, 0] >= low) & (x[:, 0] < high)).all() or not ((x >= 0) & (x <= box)).all():
            raise WireError(f"a sphere of the {side.name} neighbour is not near the border")
        if (np.abs(spheres.v) > self.scenario.max_speed).any():
            raise WireError(f"a sphere of the {side.name} neighbour is faster than max_speed")
        known = np.concatenate([self._spheres.id, *(part.id for part in self._incoming.values())])
        if np.isin(spheres.id, known).any():
            raise WireError(f"a sphere of the {side.name} neighbour is known to be elsewhere")
