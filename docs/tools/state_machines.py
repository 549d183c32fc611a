"""Write `docs/reference/state-machines/` from the tables: `make diagrams`.

`--check` writes nothing and exits with 1 if a page differs from its table.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sphtp.core.fsm import Machine, diagram, table

PAGES = Path(__file__).resolve().parents[1] / "reference" / "state-machines"


class Source(NamedTuple):
    """The source of a page: the module's docstring gives the prose, the machine the tables."""

    page: str
    module: str
    machine: str


SOURCES = (
    Source("control-client", "sphtp.core.control.client_table", "CLIENT"),
    Source("control-server", "sphtp.core.control.server_table", "SERVER"),
    Source("channel-lifecycle", "sphtp.core.channel.lifecycle", "LIFECYCLE"),
    Source("noise-initiator", "sphtp.core.channel.initiator", "INITIATOR"),
    Source("noise-responder", "sphtp.core.channel.responder", "RESPONDER"),
    Source("path-mtu", "sphtp.core.channel.path_mtu", "PATH_MTU"),
    Source("slow-start", "sphtp.core.channel.congestion.hystart", "SLOW_START"),
    Source("requests", "sphtp.core.requests.table", "USE"),
    Source("stream-receiver", "sphtp.core.stream.receiver", "RECEIVER"),
    Source("stream-missing-range", "sphtp.core.stream.loss_map", "GAP"),
    Source("tolerant-congestion", "sphtp.core.channel.congestion.tolerant", "TOLERANT"),
    Source("stream-source", "sphtp.core.stream.source", "SOURCE"),
    Source("stream-rate-limit", "sphtp.core.stream.rate_limit", "RATE_LIMIT"),
    Source("stream-delivery", "sphtp.core.stream.delivery", "DELIVERY"),
    Source("group-member", "sphtp.core.group.lifecycle", "GROUP"),
    Source("stream-fetcher", "sphtp.core.stream.late_join", "FETCH"),
)

PAGE = """\
# {title}

<!-- Written from {module} by docs/tools/state_machines.py: change the table, `make diagrams`. -->

{prose}

```mermaid
{diagram}
```

{table}
{meanings}"""

INDEX = """\
# State machines

The states of the protocols are in tables: in state *at*, event *on* leads to state *to* and causes
the actions *do*, in order. An event that a state refuses changes nothing. Each runner declares one
of three rules for such an event. It raises an error, mostly if the application causes the event. It
counts the event, mostly if the network causes it. Or it ignores an event that only states a fact,
such as a timer that fires too late. The last tables of a page have the meanings of most names.
These pages are generated from the tables, and a test fails when they are stale.

{links}
"""


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--directory", type=Path, default=PAGES, help="the folder of the pages")
    options = parser.parse_args(arguments)
    pages = render()
    if options.check:
        return report(stale(options.directory, pages))
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (options.directory / name).write_text(text, encoding="utf-8")
    return 0


def render() -> Mapping[str, str]:
    """Return every page by file name."""
    links = "\n".join(f"- [{title(source)}]({source.page}.md)" for source in SOURCES)
    pages = {f"{source.page}.md": page(source) for source in SOURCES}
    return {"README.md": INDEX.format(links=links), **pages}


def load(source: Source) -> Machine[Any, Any, Any]:
    """Import the table of a page."""
    machine: Machine[Any, Any, Any] = getattr(import_module(source.module), source.machine)
    return machine


def page(source: Source) -> str:
    """Return the text of one page."""
    machine = load(source)
    return PAGE.format(
        title=title(source),
        module=source.module,
        prose=(import_module(source.module).__doc__ or "").strip(),
        diagram=diagram(machine),
        table=table(machine),
        meanings=meanings(machine),
    )


def meanings(machine: Machine[Any, Any, Any]) -> str:
    """Return tables of the states, events and actions, without those whose value is their name."""
    events = type(machine.rows[0].on)
    actions = {type(action) for action in machine.actions}
    kinds: list[tuple[str, Iterable[Enum] | type[Enum]]] = [
        ("state", machine.states),
        ("event", events),
    ]
    kinds += [("action", those) for those in actions]
    tables = []
    for kind, names in kinds:
        rows = [
            f"| {name.name} | {name.value} |\n"
            for name in names
            if name.value != name.name.lower().replace("_", " ")
        ]
        if rows:
            tables.append(f"\n| {kind} | meaning |\n|---|---|\n{''.join(rows)}")
    return "".join(tables)


def title(source: Source) -> str:
    """Return the heading of a page."""
    return source.page.replace("-", " ").capitalize().replace("mtu", "MTU")


def stale(directory: Path, pages: Mapping[str, str]) -> list[str]:
    """Return the pages that are missing or differ from their tables."""
    found = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.md")}
    return [name for name, text in pages.items() if found.get(name) != text]


def report(names: list[str]) -> int:
    """Print the names of the stale pages, and the remedy; return the exit code."""
    for name in names:
        sys.stderr.write(f"docs/reference/state-machines/{name} differs from its table\n")
    if names:
        sys.stderr.write("Run `make diagrams`, look at the difference, and commit it.\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
