from pathlib import Path

import pytest

GAS = """
title = "a small gas"
box = [1.2, 0.3, 0.3]
dt = 5e-5
steps = 30
stiffness = 1.6e4
max_speed = 6.0

[[spheres]]
kind = "gas"
count = 60
radius = 0.015
spread = 0.2
speed = 1.0
seed = 7
"""


@pytest.fixture
def gas_file(tmp_path: Path) -> Path:
    """A scenario of sixty spheres that can be cut into many slabs."""
    path = tmp_path / "gas.toml"
    path.write_text(GAS)
    return path
