"""Options that several of the verbs have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from sphtp_benchmarks.catalog import Catalog

Command = TypeVar("Command", bound=Callable[..., Any])

as_json: Final = click.option(
    "--json", help="Print only one JSON document, at the end.", is_flag=True
)
to_markdown: Final = click.option(
    "--markdown",
    help="Write the result page to this file as well.",
    type=click.Path(dir_okay=False, path_type=Path),
)
rounds_of_median: Final = click.option(
    "--rounds",
    help="Number of measurements; rates and times are their medians.",
    type=click.IntRange(1),
    default=3,
    show_default=True,
)
rounds_of_all: Final = click.option(
    "--rounds",
    help="Number of rounds, each with every measurement; the result is the median.",
    type=click.IntRange(1),
    default=5,
    show_default=True,
)
seconds_of_each: Final = click.option(
    "--seconds",
    help="Seconds of each measurement, after a warm-up of a quarter of that.",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
)
seed_of_network: Final = click.option(
    "--seed",
    help="Seed of the random faults; the same seed gives the same figures.",
    type=click.IntRange(0),
    default=1,
    show_default=True,
)


def cases_of(catalog: Catalog) -> Callable[[Command], Command]:
    """Return the option that chooses cases."""
    return _some_of("case", list(catalog.cases))


def systems_of(catalog: Catalog, default: str) -> Callable[[Command], Command]:
    """Return the option that chooses systems; ``default`` describes those without it."""
    return _some_of("system", list(catalog.systems), default)


def _some_of(kind: str, names: list[str], default: str = "all") -> Callable[[Command], Command]:
    return click.option(
        f"--{kind}",
        f"{kind}s",
        help=f"A {kind} to measure; repeatable. Default: {default}.",
        type=click.Choice(names),
        multiple=True,
    )
