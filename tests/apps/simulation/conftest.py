"""Small worlds, built the way a file would be."""

from collections.abc import Callable
from typing import Any

import pytest

from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.scenario_file import parse_scenario
from tests.apps.simulation.hub import hub

__all__ = ["hub"]

World = Callable[..., Scenario]

VALUES: dict[str, Any] = {
    "box": [0.4, 0.08, 0.08],
    "dt": 3e-5,
    "stiffness": 2.5e4,
    "max_speed": 10.0,
    "spheres": [
        {"kind": "gas", "count": 40, "radius": 0.01, "spread": 0.2, "speed": 3.0, "seed": 1}
    ],
}


@pytest.fixture(scope="session")
def values() -> Callable[[], dict[str, Any]]:
    """A fresh mapping of a sound scenario at each call."""
    return lambda: {**VALUES, "spheres": [dict(group) for group in VALUES["spheres"]]}


@pytest.fixture(scope="session")
def world() -> World:
    """A sound scenario with some keys changed."""
    return lambda **changes: parse_scenario({**VALUES, **changes})


@pytest.fixture(scope="session")
def balls(world: World) -> World:
    """A scenario of single balls, each (position, velocity), of 0.01 m and 1000 kg/m3."""

    def build(*placed: tuple[list[float], list[float]], **changes: Any) -> Scenario:
        groups = [
            {"kind": "ball", "radius": 0.01, "position": position, "velocity": velocity}
            for position, velocity in placed
        ]
        return world(spheres=groups, **changes)

    return build
