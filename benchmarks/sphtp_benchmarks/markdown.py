"""Tables and paragraphs in Markdown."""

from collections.abc import Iterable, Sequence
from textwrap import fill


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a table; of more than two columns, all but the first are aligned right."""
    yield _line(headings)
    yield _line(["---"] + ["---:"] * (len(headings) - 1) if len(headings) > 2 else ["---"] * 2)
    for line in lines:
        yield _line(line)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def filled(text: str) -> str:
    """Return a paragraph in lines of at most 100 characters."""
    return fill(text, 100, break_on_hyphens=False)
