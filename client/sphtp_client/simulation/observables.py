"""Energy and momentum of a run. Sums are exactly rounded, so they are equal for every division."""

from dataclasses import dataclass
from math import fsum

from sphtp_client.simulation.forces import squares, touching, wall_overlaps
from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.state import Floats, Spheres


@dataclass(frozen=True, slots=True)
class Observables:
    """Energies in J, momentum in kg m/s; the potential energy is that of contacts and gravity."""

    count: int
    kinetic: float
    potential: float
    momentum: tuple[float, float, float]

    @property
    def energy(self) -> float:
        """Total energy in J."""
        return self.kinetic + self.potential


def observe(spheres: Spheres, scenario: Scenario) -> Observables:
    """Return the energies and the momentum of all spheres of a scenario, in order of ids."""
    kinetic, momentum = observe_motion(spheres)
    return Observables(
        count=len(spheres),
        kinetic=kinetic,
        potential=fsum([_in_contacts(spheres, scenario), _in_gravity(spheres, scenario)]),
        momentum=momentum,
    )


def observe_motion(spheres: Spheres) -> tuple[float, tuple[float, float, float]]:
    """Return the kinetic energy in J and the momentum in kg m/s of some spheres."""
    kinetic = 0.5 * spheres.mass * squares(spheres.v)
    x, y, z = (_total(spheres.mass * spheres.v[:, axis]) for axis in range(3))
    return _total(kinetic), (x, y, z)


def _in_contacts(spheres: Spheres, scenario: Scenario) -> float:
    overlaps = [touching(spheres, scenario).overlap]
    for axis in range(3):
        overlaps += wall_overlaps(spheres, scenario, axis)
    return 0.5 * scenario.stiffness * fsum(_total(overlap * overlap) for overlap in overlaps)


def _in_gravity(spheres: Spheres, scenario: Scenario) -> float:
    heights = (spheres.x[:, axis] * scenario.gravity[axis] for axis in range(3))
    return fsum(_total(spheres.mass * -height) for height in heights)


def _total(values: Floats) -> float:
    return fsum(values.tolist())
