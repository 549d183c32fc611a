"""What one peer has to do, and how it knows those that do the rest."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from sphtp.errors import SettingsError
from sphtp_client.simulation.models import Scenario


@dataclass(frozen=True)
class SlabJob:
    """One slab of a run. Every peer says ``data`` of itself, so that others can find it."""

    scenario: Scenario
    slab: int
    slabs: int
    steps: int
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.slab < self.slabs:
            raise SettingsError(
                f"--slab = {self.slab}: must be 0 to {self.slabs - 1}, because --slabs, the number "
                f"of them, is {self.slabs}"
            )
        text = self.scenario.model_dump_json()
        object.__setattr__(self, "digest", sha256(text.encode()).hexdigest())

    @property
    def data(self) -> dict[str, Any]:
        """What this peer tells the others through the servers."""
        return {**self._common, "slab": self.slab}

    @property
    def others(self) -> tuple[int, ...]:
        """The slabs of all other peers."""
        return tuple(slab for slab in range(self.slabs) if slab != self.slab)

    def check(self, peer_id: int, data: dict[str, Any]) -> None:
        """Raise ``SettingsError``, naming the peer, when it runs something else."""
        for key, ours in self._common.items():
            if data.get(key) != ours:
                raise SettingsError(
                    f"slab {data.get('slab')} (id {peer_id:#010x}) runs something else: "
                    f"its {key} is {data.get(key)}, here it is {ours}"
                )

    @property
    def _common(self) -> dict[str, Any]:
        return {"slabs": self.slabs, "steps": self.steps, "scenario": self.digest}
