"""Explores all cases and all mutants, on all cores: `make check-model`.

The first ones are those of the embedded registry, the others those of a registry on etcd.

It prints a line for each, and the way to a violation. The status is 0 if no case has a violation,
and every mutant has one. ``--replay NUMBER`` walks such a way again, and prints each step and the
states that it changes.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from multiprocessing import Pool
from random import Random
from time import monotonic, process_time
from typing import Any, Final, NamedTuple

from tests.apps.server.registry import etcd_cases
from tests.apps.server.registry.etcd_model import EtcdExplorer
from tests.core.control.model import Case, Explorer, ViolationError
from tests.core.control.model_mutants import MUTANTS

_OWNED: Final = partial(Case, is_established=True)

CASES: Final = (
    Case(name="two servers, divided for 4 ticks", ticks=4, partition="XA"),
    Case(name="two servers, 1 duplicate", ticks=1, duplicates=1),
    _OWNED(name="two servers, divided for 6 ticks, an owner", wishes=9, ticks=6, partition="XA"),
    _OWNED(
        name="two servers, divided for 6 ticks, an owner with the higher nonce",
        lower="Y",
        wishes=9,
        ticks=6,
        partition="XA",
    ),
    Case(name="two servers, 1 loss", ticks=1, losses=1),
    Case(name="two servers, not heard yet", has_announced=False, ticks=1),
    _OWNED(name="two servers, divided for 3 ticks, an owner", ticks=3, partition="XA"),
    _OWNED(name="one server, another one joins, an owner", servers="A", late="B", ticks=1),
    _OWNED(name="two servers, an owner that may leave", ticks=1, leaves=1),
    _OWNED(name="two servers, one restarts, an owner", restarts=1),
    _OWNED(name="two servers, 1 loss, an owner", ticks=1, losses=1),
    _OWNED(
        name="three servers, 1 loss, 1 duplicate, an owner that may leave",
        servers="ABC",
        losses=1,
        duplicates=1,
        leaves=1,
    ),
    _OWNED(
        name="two servers, an owner that is not received",
        wishes=9,
        ticks=3,
        partition="X",
        is_one_way=True,
        divided_before=5,
    ),
    _OWNED(
        name="one server, an owner that is not received",
        servers="A",
        wishes=9,
        ticks=8,
        partition="X",
        is_one_way=True,
    ),
    _OWNED(name="three servers, 2 losses", servers="ABC", losses=2),
    _OWNED(name="three servers, divided", servers="ABC", partition="XA"),
    _OWNED(
        name="three servers, a tick, an owner, the first million",
        servers="ABC",
        ticks=1,
        most=1_000_000,
    ),
    Case(name="one server, 3 losses", servers="A", ticks=3, losses=3),
    Case(name="one server, 2 duplicates", servers="A", ticks=3, duplicates=2),
    Case(name="one server, a delay", servers="A", ticks=2, delays=1),
    Case(name="one server, foreign answers", servers="A", foreign_answers=True, ticks=2),
    _OWNED(name="one server, 4 losses, an owner", servers="A", ticks=5, losses=4),
    _OWNED(name="one server, it restarts, 1 loss", servers="A", ticks=3, losses=1, restarts=1),
    _OWNED(name="one server, it restarts and opens", servers="A", wishes=9, ticks=8, restarts=1),
    _OWNED(name="one server, the owner cut off", servers="A", ticks=5, partition="X"),
    _OWNED(
        name="one server, the owner cut off, 1 loss", servers="A", ticks=4, losses=1, partition="X"
    ),
)
"""The largest come first, so that no core is left with one at the end."""

WAYS: Final = 2_000
"""The random ways that are tried with a mutant before its case is explored."""


class Search(NamedTuple):
    """One search: through a whole case, or for a mutant's violation."""

    is_mutant: bool
    name: str
    case: Case
    change: Callable[[], AbstractContextManager[Any]] = nullcontext
    explorer: type[Explorer] = Explorer


SEARCHES: Final = (
    *(Search(False, case.name, case) for case in CASES),
    *(Search(True, mutant.rule, mutant.case, mutant.change) for mutant in MUTANTS),
    *(Search(False, case.name, case, explorer=EtcdExplorer) for case in etcd_cases.CASES),
    *(
        Search(True, mutant.rule, mutant.case, mutant.change, EtcdExplorer)
        for mutant in etcd_cases.MUTANTS
    ),
)


class Result(NamedTuple):
    """The result of one search."""

    number: int
    """The place of the search in ``SEARCHES``."""
    moments: int
    ends: int
    depth: int
    seconds: float
    """Of processor time."""
    rule: str
    """The broken rule, or empty."""
    way: tuple[int, ...]


def explore(number: int) -> Result:
    """Run one of ``SEARCHES``."""
    search = SEARCHES[number]
    began, rule, way = process_time(), "", tuple[int, ...]()
    with search.change():
        explorer = search.explorer(search.case)
        try:
            if search.is_mutant:
                explorer.hunt(Random(search.name), WAYS)
            explorer.run()
        except ViolationError as violation:
            rule, way = str(violation), violation.way
    seconds = process_time() - began
    return Result(number, explorer.moments, explorer.ends, explorer.depth, seconds, rule, way)


def replay(number: int, way: tuple[int, ...]) -> Iterator[str]:
    """Yield the steps of a way in one of ``SEARCHES``."""
    search = SEARCHES[number]
    with search.change():
        yield from search.explorer(search.case).replay(way)


def main(arguments: list[str]) -> int:
    """Run all searches, or replay one way; return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="of a line of the output")
    parser.add_argument("--way", help="as printed; else a violation is searched first")
    chosen = parser.parse_args(arguments)
    if chosen.replay is None:
        return _explore_all()
    way = map(int, chosen.way.split(".")) if chosen.way else explore(chosen.replay).way
    for line in replay(chosen.replay, tuple(way)):
        print(line)
    return 0


def _explore_all() -> int:
    began, seconds, failed = monotonic(), 0.0, 0
    moments = dict.fromkeys((Explorer, EtcdExplorer), 0)
    print(f"{'':>2} {'moments':>10} {'at rest':>8} {'depth':>6} {'s':>6}")
    with Pool() as pool:
        for it in pool.imap(explore, range(len(SEARCHES))):
            is_mutant, name, _, _, explorer = SEARCHES[it.number]
            moments[explorer] += 0 if is_mutant else it.moments
            seconds += it.seconds
            failed += is_mutant != bool(it.rule)
            figures = f"{it.moments:>10,} {it.ends:>8,} {it.depth:>6} {it.seconds:>6.1f}"
            name = f"without: {name}" if is_mutant else name
            print(f"{it.number:>2} {figures}  {name}: {it.rule or 'no violation'}", flush=True)
            if it.rule and not is_mutant:
                _show(it)
    for explorer, cases, mutants in (
        (Explorer, CASES, MUTANTS),
        (EtcdExplorer, etcd_cases.CASES, etcd_cases.MUTANTS),
    ):
        kind = "embedded registry" if explorer is Explorer else "registry on etcd"
        print(f"{kind}: {moments[explorer]:,} moments of {len(cases)} cases, ", end="")
        print(f"{len(mutants)} mutants")
    print(f"{seconds:.0f} s of processor time in {monotonic() - began:.0f} s")
    print(f"{failed} failed" if failed else "no violation, every mutant caught")
    return int(failed > 0)


def _show(result: Result) -> None:
    for line in replay(result.number, result.way):
        print(f"      {line}")
    way = ".".join(map(str, result.way))
    print(f"      python -m tests.core.control.check_model --replay {result.number} --way {way}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
