"""What a peer tells of its part in a simulation, as those see it who only watch."""

from typing import NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from sphtp import Peer
from sphtp_client.simulation.events import Record
from sphtp_client.simulation.frames import topic_of


class Run(NamedTuple):
    """A simulation: so many slabs and steps, and the digest of its scenario."""

    slabs: int
    steps: int
    scenario: str


class Part(Record):
    """The slab that a peer simulates."""

    slab: int = Field(strict=True, ge=0)
    slabs: int = Field(strict=True, ge=1)
    steps: int = Field(strict=True, ge=0)
    scenario: str = Field(strict=True, max_length=64)

    @property
    def run(self) -> Run:
        """What it is a part of."""
        return Run(self.slabs, self.steps, self.scenario)

    @model_validator(mode="after")
    def _is_among_them(self) -> Self:
        if self.slab >= self.slabs:
            raise ValueError(f"slab {self.slab} of {self.slabs}")
        return self


def part_of(peer: Peer) -> Part | None:
    """Return the part of a peer that publishes its slab; None of anybody else."""
    try:
        part = Part.model_validate(peer.data)
    except ValidationError:
        return None
    return part if topic_of(part.slab) in peer.topics else None
