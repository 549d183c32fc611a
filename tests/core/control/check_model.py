"""Explores all cases and all mutants, on all cores: `make check-model`.

It prints a line for each, and the way to a violation; the status is 0 if no case has a violation
and every mutant has one. ``--replay`` walks such a way again, and prints each step and the states
that it changes.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing import Pool
from time import process_time
from typing import Final, NamedTuple

from tests.core.control.model import Case, Explorer, ViolationError
from tests.core.control.model_mutants import MUTANTS

CASES: Final = (
    Case(name="two servers, divided", ticks=1, partition="XA"),
    Case(name="two servers", ticks=1),
    Case(name="one server, restart", servers="A", is_established=True, ticks=8, restarts=1),
    Case(name="one server, losses", servers="A", ticks=3, losses=3),
)
"""The largest come first, so that no core is left with one at the end."""


class Search(NamedTuple):
    """The result of one search."""

    number: int
    moments: int
    ends: int
    depth: int
    seconds: float
    """Of processor time."""
    rule: str
    """The broken rule, or empty."""
    way: tuple[int, ...]


def explore(index: int) -> Search:
    """Explore one case; after all cases come the mutants."""
    mutant = MUTANTS[index - len(CASES)] if index >= len(CASES) else None
    case = mutant.case if mutant else CASES[index]
    began, rule, way = process_time(), "", tuple[int, ...]()
    with mutant.change() if mutant else nullcontext():
        explorer = Explorer(case)
        try:
            explorer.run()
        except ViolationError as violation:
            rule, way = str(violation), violation.way
    seconds = process_time() - began
    return Search(index, explorer.moments, explorer.ends, explorer.depth, seconds, rule, way)


def replay(index: int, way: tuple[int, ...]) -> Iterator[str]:
    """Yield the steps of a way, by the index that ``explore`` has."""
    mutant = MUTANTS[index - len(CASES)] if index >= len(CASES) else None
    with mutant.change() if mutant else nullcontext():
        yield from Explorer(mutant.case if mutant else CASES[index]).replay(way)


def main(arguments: list[str]) -> int:
    """Explore everything, or replay one way; return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", nargs=2, metavar=("NUMBER", "WAY"))
    chosen = parser.parse_args(arguments)
    if chosen.replay:
        number, way = chosen.replay
        for line in replay(int(number), tuple(map(int, way.split(".")))):
            print(line)
        return 0
    return _explore_all()


def _explore_all() -> int:
    total, seconds, failed = 0, 0.0, 0
    print(f"{'':>3} {'moments':>10} {'at rest':>8} {'depth':>6} {'s':>6}")
    with Pool() as pool:
        for it in pool.imap(explore, range(len(CASES) + len(MUTANTS))):
            is_mutant = it.number >= len(CASES)
            name = MUTANTS[it.number - len(CASES)].rule if is_mutant else CASES[it.number].name
            total += 0 if is_mutant else it.moments
            seconds += it.seconds
            failed += is_mutant != bool(it.rule)
            verdict = f"caught: {it.rule}" if is_mutant and it.rule else it.rule or "no violation"
            label = f"without: {name}" if is_mutant else name
            figures = f"{it.moments:>10,} {it.ends:>8,} {it.depth:>6} {it.seconds:>6.1f}"
            print(f"{it.number:>3} {figures}  {label}: {verdict}", flush=True)
            if it.rule and not is_mutant:
                _show(it)
    print(
        f"{total:,} moments of {len(CASES)} cases, {len(MUTANTS)} mutants, {seconds:.0f} s: ",
        end="",
    )
    print(f"{failed} failed" if failed else "no violation, every mutant caught")
    return int(failed > 0)


def _show(result: Search) -> None:
    for line in replay(result.number, result.way):
        print(f"      {line}")
    way = ".".join(map(str, result.way))
    print(f"      python -m tests.core.control.check_model --replay {result.number} {way}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
