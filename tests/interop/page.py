"""Reads `docs/reference/wire`: the vectors beside the pages, and the tables under headings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

WIRE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "wire"
PARTS: Final = ("control-plane", "channel", "sealing", "streams", "requests", "groups", "watching")
TEXT: Final = "\n".join(
    (WIRE / f"{page}.md").read_text(encoding="utf-8") for page in (*PARTS, "README")
)

# Bytes in parentheses, so many times.
REPEATED = re.compile(r"\((?P<bytes>[0-9a-f\s]*)\)\*(?P<times>\d+)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.M)
# A line that names the file, and a list of the names of vectors in it.
EXAMPLES = re.compile(
    r"^Examples \(\[(?P<part>[\w-]+)\.json\]\(.+\)\):\n\n(?P<list>(?:- `.+`\n)+)", re.M
)


class Vector(NamedTuple):
    """Named fields, and the bytes that they travel as."""

    name: str
    fields: dict[str, Any]
    data: bytes

    def __str__(self) -> str:
        return self.name


def read_vectors() -> tuple[Vector, ...]:
    """Return every vector, in the order of the pages."""
    return tuple(vector for part in PARTS for vector in vectors_of_part(part))


def vectors_of_part(part: str) -> Iterator[Vector]:
    """Yield the vectors of one file."""
    text = (WIRE / "vectors" / f"{part}.json").read_text(encoding="utf-8")
    for vector in json.loads(text)["vectors"]:
        digits = REPEATED.sub(
            lambda match: match["bytes"] * int(match["times"]), " ".join(vector["hex"])
        )
        yield Vector(vector["name"], vector["fields"], bytes.fromhex(digits))


def named_on_page(page: str) -> list[tuple[str, str]]:
    """Return the vectors that a page names, each with the part in whose file it is."""
    text = (WIRE / f"{page}.md").read_text(encoding="utf-8")
    return [
        (match["part"], line.removeprefix("- ").strip("`"))
        for match in EXAMPLES.finditer(text)
        for line in match["list"].splitlines()
    ]


def rows_under(title: str) -> list[list[str]]:
    """Return the cells of the tables between a heading and the next one, without their heads."""
    titles = list(HEADING.finditer(TEXT))
    for here, after in zip(titles, [*titles[1:], None], strict=True):
        if here["title"] == title:
            return list(_rows(TEXT[here.end() : after.start() if after else None]))
    raise KeyError(title)


def _rows(section: str) -> Iterator[list[str]]:
    in_body = False
    for line in section.splitlines():
        if not line.startswith("|"):
            in_body = False
        elif set(line) <= set("|-: "):
            in_body = True
        elif in_body:
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]
