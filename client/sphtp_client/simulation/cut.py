"""How a box is cut along x into slabs, and how much neighbouring slabs must know of each other."""

from sphtp.errors import SettingsError
from sphtp_client.simulation.contacts import MARGIN
from sphtp_client.simulation.models import Scenario


def halo(scenario: Scenario) -> float:
    """Return how far from a border, in m, spheres matter to the other side."""
    return 2.0 * MARGIN * scenario.largest_radius


def stride(scenario: Scenario) -> float:
    """Return how far, in m, a sphere may move in one step."""
    return MARGIN * scenario.max_speed * scenario.dt


def max_slabs(scenario: Scenario) -> int:
    """Return into how many slabs this scenario can be cut."""
    return max(int(scenario.box[0] / (MARGIN * _narrowest(scenario))), 1)


def borders(scenario: Scenario, count: int, name: str = "slabs") -> tuple[float, ...]:
    """Return the ``count + 1`` borders of that many slabs in m; ``name`` is what they are called.

    Raises ``SettingsError`` if a slab would be narrower than halo and stride: then a sphere could
    matter to a peer that is not a neighbour of its owner.
    """
    most = max_slabs(scenario)
    if not 1 <= count <= most:
        raise SettingsError(
            f"{name} = {count}: must be 1 to {most} for this scenario, because a slab of the "
            f"{scenario.box[0]:g} m long box must be wider than {_narrowest(scenario):.4g} m"
        )
    return tuple(scenario.box[0] * n / count for n in range(count + 1))


def _narrowest(scenario: Scenario) -> float:
    return halo(scenario) + stride(scenario)
