"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a table; of more than two columns, all but the first are aligned right."""
    yield _line(headings)
    yield _line(["---"] + ["---:"] * (len(headings) - 1) if len(headings) > 2 else ["---"] * 2)
    for line in lines:
        yield _line(line)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
