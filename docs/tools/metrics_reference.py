"""Write `docs/reference/metrics.md` from the table of metrics: `make docs`.

`--check` writes nothing, and exits with 1 if the page differs from the table.
"""

import argparse
import sys
from pathlib import Path

from sphtp.shell import metrics

PAGE = Path(__file__).resolve().parents[1] / "reference" / "metrics.md"

HEAD = """\
# Metrics

<!-- Written from sphtp/shell/metrics.py by docs/tools/metrics_reference.py: `make docs`. -->

All metrics that servers, clients and nodes serve for Prometheus. [Monitor a
cluster](../how-to/monitor-a-cluster.md) shows how to get them. Times are in seconds, sizes in
bytes. When a channel, a stream or a group has ended, a program no longer reports its series.

| label | value |
|---|---|
| `server` | the id of the server |
| `node` | the name of the client, or its id; without a client, the UDP address of the node |
| `peer`, `member` | the name of the other side, or its id or address |
| `service` | `messages` (of the program), `streams`, `requests`, `group`, `watch` or `status` |
| `channel`, `receiver` | an id that distinguishes channels or receivers of one peer |
| `lane` | the number of the lane |
| `topics`, `topic` | the names of the topics of a source; the topic of a subscription |
| `group` | the name of the group |

If two clients of a program have the same name, the address of the second one follows its name. A
server reports the clock's error with its id as `node`.

The usual metrics of a process, such as `process_cpu_seconds_total` and
`process_resident_memory_bytes`, are served as well.
"""

SECTIONS = (
    ("Servers and clients", (*metrics.CONTROL, *metrics.SERVER)),
    ("Requests", metrics.REQUESTS),
    ("Nodes", metrics.NODE),
    ("Channels", (*metrics.CHANNEL, *metrics.LANE, *metrics.OBSTACLE)),
    ("Streams", (*metrics.SOURCE, *metrics.RECEIVER, *metrics.TRANSPORT, *metrics.DELIVERY)),
    ("Groups", metrics.GROUP),
    ("The simulation of spheres", metrics.step_metrics("simulation")),
)


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or compare it with the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    if not options.check:
        PAGE.write_text(render(), encoding="utf-8")
    elif stale(PAGE):
        sys.stderr.write(f"{PAGE} differs from the table; run `make docs`\n")
        return 1
    return 0


def stale(page: Path) -> bool:
    """Return True if a page is missing or differs from the table."""
    return not page.exists() or page.read_text(encoding="utf-8") != render()


def render() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *(section(title, table) for title, table in SECTIONS)])


def section(title: str, table: tuple[metrics.MetricText, ...]) -> str:
    """Return one section of the page."""
    lines = [f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {_meaning(metric)} |")
    return "\n".join([*lines, ""])


def _meaning(metric: metrics.MetricText) -> str:
    if isinstance(metric.fields, str):
        return metric.text
    return f"{metric.text} `{metric.labels[-1]}`: {', '.join(f'`{one}`' for one in metric.fields)}"


if __name__ == "__main__":
    sys.exit(main())
