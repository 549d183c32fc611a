"""How long to watch."""

from dataclasses import dataclass

from sphtp_client.watch.scene import Scene


@dataclass(frozen=True)
class Goal:
    """What is enough: so many steps or seconds since the first state, or each slab seen once.

    Without any of them, the end of the simulation.
    """

    steps: int | None = None
    seconds: float | None = None
    once: bool = False

    def is_reached(self, scene: Scene) -> bool:
        """Whether enough has been seen, as far as that does not depend on time."""
        if not scene.is_complete or scene.first is None:
            return False
        is_far = self.steps is not None and min(scene.steps) - scene.first >= self.steps
        return self.once or is_far
