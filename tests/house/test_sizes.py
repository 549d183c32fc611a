"""A file stays within 300 lines and a function within 50: what is longer has two jobs."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WINGS = ("sphtp", "server", "client")
FILE_LINES = 300
FUNCTION_LINES = 50


def sources() -> list[Path]:
    return sorted(path for wing in WINGS for path in (ROOT / wing).rglob("*.py"))


def too_long(name: str, text: str) -> Iterator[str]:
    if (lines := len(text.splitlines())) > FILE_LINES:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{name}:{node.lineno} {node.name}: {lines} lines"


def test_nothing_is_too_long() -> None:
    found = [
        complaint
        for path in sources()
        for complaint in too_long(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_ruler_measures() -> None:
    fits = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert list(too_long("a.py", fits)) == []
    assert list(too_long("a.py", fits + "    x = 1\n")) == ["a.py:1 f: 51 lines"]
    assert list(too_long("a.py", "x = 1\n" * FILE_LINES)) == []
    assert list(too_long("a.py", "x = 1\n" * (FILE_LINES + 1))) == ["a.py: 301 lines"]


def test_every_wing_is_measured() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in sources()} == set(WINGS)
