"""The examples beside docs/reference/wire, for readers that know nothing but these pages."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "wire"
PARTS = ["control-plane", "channel", "sealing", "streams", "requests", "groups", "watching"]


class Vector(NamedTuple):
    """One example of a page."""

    name: str
    fields: dict[str, Any]
    data: bytes


def vectors(part: str) -> list[Vector]:
    """Read all examples of a file."""
    text = (PAGES / "vectors" / f"{part}.json").read_text(encoding="utf-8")
    return [
        Vector(example["name"], example["fields"], unhex("\n".join(example["hex"])))
        for example in json.loads(text)["vectors"]
    ]


def unhex(text: str) -> bytes:
    """Read bytes in hex, in which `(00ff)*3` stands for three times the same."""
    data = b""
    for plain, repeated, times in re.findall(r"([0-9a-f]+)|\(([^()]*)\)\*([0-9]+)", text):
        data += bytes.fromhex(plain) if plain else unhex(repeated) * int(times)
    return data


TEXT = "\n".join((PAGES / f"{page}.md").read_text(encoding="utf-8") for page in [*PARTS, "README"])
VECTORS = [vector for part in PARTS for vector in vectors(part)]


def each(chosen: list[Vector]) -> pytest.MarkDecorator:
    """Run a test once for each of these examples."""
    return pytest.mark.parametrize("vector", chosen, ids=[vector.name for vector in chosen])


def named(start: str) -> list[Vector]:
    """Choose examples by the beginning of their names; there is one at least."""
    chosen = [vector for vector in VECTORS if vector.name.startswith(start)]
    assert chosen, start
    return chosen
