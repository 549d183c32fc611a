"""The reading and checking of scenario files.

The file and the number of steps determine the result of a run completely.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from reprlib import Repr
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.scenario import (
    GROUPS,
    Problem,
    Scenario,
    ScenarioError,
    check,
    place_of,
)

_SHORT = Repr()
_SHORT.maxother = _SHORT.maxstring = 60


def load_scenario(path: str | Path) -> Scenario:
    """Read and check a scenario file. Raises ``ScenarioError`` with the problems found."""
    source = str(path)
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        problem = Problem("file", source, f"cannot be read: {error.strerror}")
        raise ScenarioError([problem], source) from error
    except ValueError as error:
        raise ScenarioError([Problem("file", source, f"is not TOML: {error}")], source) from error
    return parse_scenario(values, source)


def parse_scenario(values: Mapping[str, Any], source: str = "scenario") -> Scenario:
    """Check a scenario in a mapping, and place its spheres; ``source`` is its name in errors.

    Raises ``ScenarioError``, also if the spheres do not fit or overlap.
    """
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        problems = [_problem(details) for details in error.errors(include_url=False)]
        raise ScenarioError(problems, source) from error
    try:
        check(scenario)
        initial_spheres(scenario)
    except ScenarioError as error:
        raise error.found_in(source) from error
    return scenario


def _problem(details: ErrorDetails) -> Problem:
    place = [part for n, part in enumerate(details["loc"]) if not (n == 2 and part in GROUPS)]
    table = GROUPS[str(details["loc"][2])] if len(place) < len(details["loc"]) else Scenario
    names = [part for part in place if isinstance(part, str)]
    field = table.model_fields.get(names[-1])
    allowed = details["msg"][:1].lower() + details["msg"][1:]
    if field is not None and field.description is not None:
        allowed += f" ({field.description})"
    value = _SHORT.repr(details["input"])
    match details["type"]:
        case "extra_forbidden":
            allowed = f"unknown key; known are {', '.join(table.model_fields)}"
        case "missing":
            value = "nothing"
        case "union_tag_invalid" | "union_tag_not_found":
            place.append("kind")
            value = repr(details["input"].get("kind", "nothing"))
            allowed = f"must be one of {', '.join(GROUPS)}"
    return Problem(place_of(place), value, allowed)
