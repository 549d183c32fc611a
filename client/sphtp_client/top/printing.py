"""One state of all places as tables or as JSON, for scripts and pipes."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sphtp_client.terminal.connection import Output
from sphtp_client.top.causes import find_causes
from sphtp_client.top.model import Observation
from sphtp_client.top.places import SERVERS_ALONE, PlaceReader, are_servers_alone
from sphtp_client.top.tables import VIEWS, TableRow, View, arranged, as_lines


async def observe(readers: Sequence[PlaceReader], interval: float) -> list[Observation]:
    """Read all places twice, ``interval`` seconds apart, so that there are rates.

    If every place has an error at first, there is no second reading.
    """
    first = await asyncio.gather(*(reader.read() for reader in readers))
    if all(state.error for state in first):
        return [Observation(state) for state in first]
    await asyncio.sleep(interval)
    second = await asyncio.gather(*(reader.read() for reader in readers))
    return [Observation(before).followed_by(now) for before, now in zip(first, second, strict=True)]


def print_state(readers: Sequence[PlaceReader], interval: float, output: Output) -> bool:
    """Print the reports of all places; return True if at least one has no error."""
    observed = asyncio.run(observe(readers, interval))
    if output.as_json:
        output.event("state", "", **document(observed))
    else:
        for line in lines(observed):
            output.line(line)
        if are_servers_alone(readers):
            output.line(f"({SERVERS_ALONE})")
    return any(not one.now.error for one in observed)


def document(observed: Sequence[Observation]) -> dict[str, Any]:
    """Return the observations for JSON: reports, tables with rates, and causes."""
    return {
        "places": [{"seconds": one.seconds, **asdict(one.now)} for one in observed],
        "views": {view.name: _table(view, observed) for view in VIEWS},
        "causes": [
            {"weight": it.weight.name.lower(), "text": it.text, "about": list(it.about)}
            for it in find_causes(observed)
        ],
    }


def _table(view: View, observed: Sequence[Observation]) -> list[dict[str, Any]]:
    titles = [column.title for column in view.columns]
    return [
        {title: cell.value for title, cell in zip(titles, row.cells, strict=True)}
        for row in _rows(view, observed)
    ]


def _rows(view: View, observed: Sequence[Observation]) -> list[TableRow]:
    return arranged(view.rows(observed), view.index(view.sorted_by), descends=view.descends)


def lines(observed: Sequence[Observation]) -> list[str]:
    """Return the lines of all tables that have rows, and the sentences of the causes."""
    found: list[str] = []
    for view in VIEWS:
        rows = _rows(view, observed)
        if rows:
            found += [f"{view.name.upper()}", *as_lines(view, rows), ""]
    causes = [cause.text for cause in find_causes(observed)] or ["Nothing waits."]
    return [*found, "WAITING", *causes]
