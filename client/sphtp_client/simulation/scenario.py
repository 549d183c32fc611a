"""A scenario: the spheres of a simulation, the contact law and the time step.

The tables define the content of a scenario file, with the unit and the bounds of every value.
``check`` rejects values that contradict each other, and names the key to change.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import pi, sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Problem:
    """A rejected value: ``key`` as written in the file, such as ``spheres[0].radius``."""

    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.allowed}"


def place_of(parts: Iterable[int | str]) -> str:
    """Return a key in nested tables as written in the file, such as ``spheres[0].radius``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)[1:]


class ScenarioError(SettingsError):
    """A scenario that cannot be run; ``problems`` has the reasons, ``source`` names the file."""

    def __init__(self, problems: Iterable[Problem], source: str = "scenario") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))

    def found_in(self, source: str) -> "ScenarioError":
        """Return the same error for the file ``source``."""
        return ScenarioError(self.problems, source)


MOST_SPHERES = 100_000

Coordinate = Annotated[float, Field(strict=True, ge=-1e6, le=1e6)]
Vector = tuple[Coordinate, Coordinate, Coordinate]
Length = Annotated[float, Field(strict=True, ge=1e-6, le=1e6)]


class ScenarioTable(BaseModel):
    """The base of all tables of a scenario file; it rejects unknown keys, infinity and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SphereGroup(ScenarioTable):
    """The common part of all groups of spheres.

    ``place`` and ``motion`` are the keys that errors of positions and of velocities name.
    """

    place: ClassVar[str]
    motion: ClassVar[str]

    radius: Length = Field(description="m, radius of a sphere")
    density: float = Field(1000.0, strict=True, gt=0, le=1e6, description="kg/m3")

    @property
    def size(self) -> int:
        """Number of spheres."""
        return 1

    @property
    def smallest_radius(self) -> float:
        """Lower bound of the group's radii in m."""
        return self.radius

    @property
    def largest_radius(self) -> float:
        """Upper bound of the group's radii in m."""
        return self.radius

    def mass_of(self, radius: float) -> float:
        """Return the mass in kg of a sphere of this group with a radius in m."""
        return self.density * (4.0 / 3.0 * pi) * (radius * radius * radius)


class Cloud(SphereGroup):
    """Spheres at random positions in a region, without contacts."""

    place: ClassVar[str] = "count"

    count: int = Field(strict=True, ge=1, le=MOST_SPHERES, description="number of spheres")
    spread: float = Field(
        0.0, strict=True, ge=0, le=0.9, description="radii are uniform in radius x (1 +- spread)"
    )
    low: Vector | None = Field(None, description="m, lower corner of the region; default: box")
    high: Vector | None = Field(None, description="m, upper corner of the region; default: box")
    seed: int = Field(strict=True, ge=0, le=2**63 - 1, description="seed of the random generator")

    @property
    def size(self) -> int:
        """Number of spheres."""
        return self.count

    @property
    def smallest_radius(self) -> float:
        """Lower bound of the group's radii in m."""
        return self.radius * (1.0 - self.spread)

    @property
    def largest_radius(self) -> float:
        """Upper bound of the group's radii in m."""
        return self.radius * (1.0 + self.spread)


class Gas(Cloud):
    """Spheres with Maxwell-distributed velocities."""

    motion: ClassVar[str] = "speed"

    kind: Literal["gas"] = Field(description="the kind of group")
    speed: float = Field(strict=True, ge=0, le=1e6, description="m/s, root mean square speed")


class Rain(Cloud):
    """Spheres at random positions with one common velocity."""

    motion: ClassVar[str] = "velocity"

    kind: Literal["rain"] = Field(description="the kind of group")
    velocity: Vector = Field((0.0, 0.0, 0.0), description="m/s, velocity of all spheres")


class Rack(SphereGroup):
    """A triangle of resting spheres; row n has n spheres, rows follow each other along +x."""

    place: ClassVar[str] = "apex"
    motion: ClassVar[str] = "apex"

    kind: Literal["rack"] = Field(description="the kind of group")
    rows: int = Field(strict=True, ge=1, le=400, description="number of rows")
    apex: Vector = Field(description="m, centre of the first sphere")
    gap: float = Field(0.0, strict=True, ge=0, le=1e6, description="m, between two surfaces")

    @property
    def size(self) -> int:
        """Number of spheres."""
        return self.rows * (self.rows + 1) // 2


class Ball(SphereGroup):
    """One sphere."""

    place: ClassVar[str] = "position"
    motion: ClassVar[str] = "velocity"

    kind: Literal["ball"] = Field(description="the kind of group")
    position: Vector = Field(description="m, centre of the sphere")
    velocity: Vector = Field((0.0, 0.0, 0.0), description="m/s")


AnySphereGroup = Annotated[Gas | Rain | Rack | Ball, Field(discriminator="kind")]
GROUPS: dict[str, type[SphereGroup]] = {"gas": Gas, "rain": Rain, "rack": Rack, "ball": Ball}


def _not_empty(groups: tuple[AnySphereGroup, ...]) -> tuple[AnySphereGroup, ...]:
    if not groups:
        raise PydanticCustomError("no_groups", "must hold at least one group")
    return groups


class Scenario(ScenarioTable):
    """Spheres in a box. Contacts are a linear spring and a dashpot along the normal."""

    title: str = Field("", max_length=200, description="one line for people")
    box: tuple[Length, Length, Length] = Field(description="m, size along x, y and z")
    gravity: Vector = Field((0.0, 0.0, 0.0), description="m/s2")
    dt: float = Field(strict=True, gt=0, le=1, description="s, time step")
    steps: int = Field(1000, strict=True, ge=0, le=10**9, description="steps of a whole run")
    stiffness: float = Field(strict=True, gt=0, le=1e12, description="N/m, spring of a contact")
    damping: float = Field(
        0.0, strict=True, ge=0, lt=1, description="fraction of critical damping; 0 keeps energy"
    )
    max_speed: float = Field(
        strict=True, gt=0, le=1e6, description="m/s; a run stops when a sphere is faster"
    )
    max_restarts: int = Field(
        0, strict=True, ge=0, le=1000, description="most replacements of lost processes"
    )
    spheres: Annotated[
        tuple[AnySphereGroup, ...],
        AfterValidator(_not_empty),
        Field(description="groups of spheres"),
    ]

    @property
    def smallest_radius(self) -> float:
        """Lower bound of all radii in m."""
        return min(group.smallest_radius for group in self.spheres)

    @property
    def largest_radius(self) -> float:
        """Upper bound of all radii in m."""
        return max(group.largest_radius for group in self.spheres)

    @property
    def smallest_mass(self) -> float:
        """Lower bound of all masses in kg."""
        return min(group.mass_of(group.smallest_radius) for group in self.spheres)

    @property
    def largest_mass(self) -> float:
        """Upper bound of all masses in kg."""
        return max(group.mass_of(group.largest_radius) for group in self.spheres)


STEPS_PER_CONTACT = 20
MOST_CELLS = 2**20
AXES = "xyz"


def check(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` with all contradictions between values, if there are any."""
    rules = (_box, _time_step, _displacement, _stiffness, _regions, _count)
    problems = [problem for rule in rules for problem in rule(scenario)]
    if problems:
        raise ScenarioError(problems)


def contact_time(scenario: Scenario) -> float:
    """Return the duration in s of the shortest contact of two spheres, without damping."""
    return pi * sqrt(0.5 * scenario.smallest_mass / scenario.stiffness)


def _box(scenario: Scenario) -> Iterator[Problem]:
    diameter = 2.0 * scenario.largest_radius
    for n, size in enumerate(scenario.box):
        if not 1.01 * diameter <= size <= MOST_CELLS * diameter:
            yield Problem(
                f"box[{n}]",
                f"{size:g}",
                f"must be {1.01 * diameter:g} to {MOST_CELLS * diameter:g} m along {AXES[n]}, "
                f"because the largest sphere measures {diameter:g} m",
            )


def _time_step(scenario: Scenario) -> Iterator[Problem]:
    limit = contact_time(scenario) / STEPS_PER_CONTACT
    if scenario.dt > limit:
        yield Problem(
            "dt",
            f"{scenario.dt:g}",
            f"must be at most {limit:.4g} s, 1/{STEPS_PER_CONTACT} of the shortest contact "
            f"at stiffness {scenario.stiffness:g} N/m",
        )


def _displacement(scenario: Scenario) -> Iterator[Problem]:
    limit = 0.5 * scenario.smallest_radius / scenario.dt
    if scenario.max_speed > limit:
        yield Problem(
            "max_speed",
            f"{scenario.max_speed:g}",
            f"must be at most {limit:.4g} m/s, so that no sphere moves further in a step "
            "than half its radius",
        )


def _stiffness(scenario: Scenario) -> Iterator[Problem]:
    closing = 2.0 * scenario.max_speed / scenario.smallest_radius
    limit = closing * closing * 0.5 * scenario.largest_mass
    if scenario.stiffness < limit:
        yield Problem(
            "stiffness",
            f"{scenario.stiffness:g}",
            f"must be at least {limit:.4g} N/m, so that spheres which meet at max_speed "
            "do not pass through each other",
        )


def _regions(scenario: Scenario) -> Iterator[Problem]:
    for n, group in enumerate(scenario.spheres):
        if not isinstance(group, Cloud):
            continue
        low, high = group.low or (0.0, 0.0, 0.0), group.high or scenario.box
        for axis, (start, end, size) in enumerate(zip(low, high, scenario.box, strict=True)):
            if not 0 <= start <= size:
                yield Problem(f"spheres[{n}].low[{axis}]", f"{start:g}", f"must be 0 to {size:g} m")
            elif not start < end <= size:
                yield Problem(
                    f"spheres[{n}].high[{axis}]",
                    f"{end:g}",
                    f"must be over low, {start:g}, and at most {size:g} m",
                )


def _count(scenario: Scenario) -> Iterator[Problem]:
    total = sum(group.size for group in scenario.spheres)
    if total > MOST_SPHERES:
        yield Problem("spheres", f"{total} spheres", f"must be at most {MOST_SPHERES} in all")
