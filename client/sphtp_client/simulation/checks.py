"""Refusals that need more than one value of a scenario; each names the key to change."""

from collections.abc import Iterator
from math import pi, sqrt

from sphtp_client.simulation.models import MOST_SPHERES, Cloud, Scenario
from sphtp_client.simulation.problems import Problem, ScenarioError

STEPS_PER_CONTACT = 20
MOST_CELLS = 2**20
AXES = "xyz"


def check(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` with everything that does not go together."""
    rules = (_box, _time_step, _displacement, _stiffness, _regions, _count)
    problems = [problem for rule in rules for problem in rule(scenario)]
    if problems:
        raise ScenarioError(problems)


def contact_time(scenario: Scenario) -> float:
    """Duration in s of the shortest contact of two spheres, without damping."""
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
