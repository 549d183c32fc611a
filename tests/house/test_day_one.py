"""Pages that list promises name, for each one, tests that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"day-one.md": 20, "robustness.md": 12, "security.md": 16, "streams.md": 16}
"""How many promises there are at least."""

PROMISE = re.compile(r"^\| *(\d+) *\| *(.+?) *\| *(.+?) *\|$", re.MULTILINE)
NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promises(text: str) -> list[tuple[int, str, str]]:
    return [(int(number), what, tests) for number, what, tests in PROMISE.findall(text)]


def complaints(text: str) -> Iterator[str]:
    for number, what, tests in promises(text):
        named = NAME.findall(tests)
        if ", ".join(f"`{path}::{name}`" for path, name in named) != tests:
            yield f"{number} ({what}): not names of tests: {tests}"
        for path, name in named:
            if name not in functions(ROOT / path):
                yield f"{number} ({what}): there is no {path}::{name}"


def functions(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def text_of(page: str) -> str:
    return (ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_tests_that_exist(page: str) -> None:
    assert not list(complaints(text_of(page)))


@pytest.mark.parametrize("page", PAGES)
def test_there_are_enough_promises_and_they_are_counted(page: str) -> None:
    numbers = [number for number, _, _ in promises(text_of(page))]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= PAGES[page]


def test_what_is_wrong_is_seen() -> None:
    here = "tests/house/test_day_one.py"
    good = f"| 1 | It holds. | `{here}::test_what_is_wrong_is_seen` |"
    assert not list(complaints(good))
    assert list(complaints(good.replace("is_wrong", "is_right"))) == [
        f"1 (It holds.): there is no {here}::test_what_is_right_is_seen"
    ]
    assert list(complaints(good.replace("house/", "hut/")))
    assert list(complaints("| 1 | It holds. | by faith |"))
