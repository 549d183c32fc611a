"""The examples of docs/reference/wire-format.md, for readers that know nothing but the page."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire-format.md"
FENCE = "```"
OPENING = "```vector"


class Vector(NamedTuple):
    """One example of the page."""

    name: str
    fields: dict[str, Any]
    data: bytes


def parse(block: list[str]) -> Vector:
    """Read one block: `key: value`, continued by indented lines."""
    values: dict[str, str] = {}
    key = ""
    for line in block:
        if line.startswith(" "):
            values[key] += "\n" + line
        else:
            key, colon, value = line.partition(":")
            assert colon, f"no key: {line!r}"
            assert key not in values, f"twice: {key}"
            values[key] = value.strip()
    assert values.keys() == {"name", "fields", "hex"}
    return Vector(values["name"], json.loads(values["fields"]), unhex(values["hex"]))


def unhex(text: str) -> bytes:
    """Read bytes in hex, in which `(00ff)*3` stands for three times the same."""
    data = b""
    for plain, repeated, times in re.findall(r"([0-9a-f]+)|\(([^()]*)\)\*([0-9]+)", text):
        data += bytes.fromhex(plain) if plain else unhex(repeated) * int(times)
    return data


def vectors(page: str) -> list[Vector]:
    """Read all examples of a page."""
    lines = iter(page.splitlines())
    return [parse(list(iter(lines.__next__, FENCE))) for line in lines if line == OPENING]


TEXT = PAGE.read_text(encoding="utf-8")
VECTORS = vectors(TEXT)


def each(chosen: list[Vector]) -> pytest.MarkDecorator:
    """Run a test once for each of these examples."""
    return pytest.mark.parametrize("vector", chosen, ids=[vector.name for vector in chosen])


def named(start: str) -> list[Vector]:
    """Choose examples by the beginning of their names; there is one at least."""
    chosen = [vector for vector in VECTORS if vector.name.startswith(start)]
    assert chosen, start
    return chosen
