"""The result page: a run as Markdown."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sphtp_benchmarks.figures import Sheet
from sphtp_benchmarks.markdown import table
from sphtp_benchmarks.text import (
    caption,
    condition_lines,
    legend,
    remarks,
    table_of,
)

HEAD: Final = """\
# Benchmarks

Written by one run of `sphtp bench channel --markdown FILE`; not edited by hand.

Every system is measured in the same way, with two processes on one machine: one sends, and the
other receives, or sends each message back. The systems take turns, and each round begins with
another system. The receiver counts messages from the end of the warm-up to the last message. A
measurement counts only if every message has arrived with its full length. CPU per message is the
processor time of both processes together. All processes keep the memory that they have freed
(`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`).

Each system sends in the way that is fastest with its interface. A channel of SphTP, a TCP stream
and a QUIC stream take many messages in one call. ENet, ZeroMQ and nng take one message per call, so
that the cost of a small message includes the cost of a call. The table of small messages therefore
compares interfaces more than protocols.

Workers in lock step that exchange arrays have [a page of their own](lockstep-benchmarks.md). The
core is plain Python here; [another page](compiled-benchmarks.md) compares it with the compiled one.
"""


def page(sheet: Sheet, conditions: Mapping[str, Any], head: str = HEAD) -> str:
    """Return the whole page, which begins with ``head``."""
    parts = [
        head,
        "## Conditions\n",
        *table(("condition", "value"), condition_lines(conditions)),
        "",
        *table(("system", "what is measured"), legend(sheet.catalog)),
        "",
        *(line for case in sheet.catalog.cases for line in _case(case, sheet)),
    ]
    if complaints := remarks(sheet):
        parts += ["## What is missing\n", *(f"- {remark}" for remark in complaints), ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def _case(name: str, sheet: Sheet) -> Iterable[str]:
    lines = table_of(name, sheet)
    if not lines:
        return []
    case = sheet.catalog.cases[name]
    return [
        f"## {name}\n",
        f"{case.text}. {caption(name, sheet, lines[0])}".rstrip() + "\n",
        *table(lines[0], lines[1:]),
        "",
    ]
