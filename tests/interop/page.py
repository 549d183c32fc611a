"""Reads `docs/reference/wire-format.md`: its vectors, and the tables under its headings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "wire-format.md"

BLOCK = re.compile(r"^```vector\n(?P<text>.*?)^```$", re.M | re.S)
# A key begins its line; indented lines continue it.
KEY = re.compile(r"^(?P<key>\w+):(?P<value>.*(?:\n[ \t]+.*)*)", re.M)
# Bytes in parentheses, so many times.
REPEATED = re.compile(r"\((?P<bytes>[0-9a-f\s]*)\)\*(?P<times>\d+)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.M)


class Vector(NamedTuple):
    """Named fields, and the bytes that they travel as."""

    name: str
    fields: dict[str, Any]
    data: bytes

    def __str__(self) -> str:
        return self.name


def read_vectors(text: str | None = None) -> tuple[Vector, ...]:
    """Return every vector, in the order of the page."""
    text = PAGE.read_text(encoding="utf-8") if text is None else text
    return tuple(_vector(block["text"]) for block in BLOCK.finditer(text))


def rows_under(title: str) -> list[list[str]]:
    """Return the cells of the tables between a heading and the next one, without their heads."""
    text = PAGE.read_text(encoding="utf-8")
    titles = list(HEADING.finditer(text))
    for here, after in zip(titles, [*titles[1:], None], strict=True):
        if here["title"] == title:
            return list(_rows(text[here.end() : after.start() if after else None]))
    raise KeyError(title)


def _vector(block: str) -> Vector:
    keys = {match["key"]: match["value"].strip() for match in KEY.finditer(block)}
    text = REPEATED.sub(lambda match: match["bytes"] * int(match["times"]), keys["hex"])
    return Vector(keys["name"], json.loads(keys["fields"]), bytes.fromhex(text))


def _rows(section: str) -> Iterator[list[str]]:
    in_body = False
    for line in section.splitlines():
        if not line.startswith("|"):
            in_body = False
        elif set(line) <= set("|-: "):
            in_body = True
        elif in_body:
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]
