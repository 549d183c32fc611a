"""Pages that list promises name, for each one, tests that exist."""

import functools
import re
from collections.abc import Iterator

import pytest

from tests.house.pages import ROOT

PAGES = ("channel-promises.md", "robustness.md", "security.md", "streams.md")

PROMISE = re.compile(r"^\| *(\d+) *\| *(.+?) *\| *(.+?) *\|$", re.MULTILINE)
NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FUNCTION = re.compile(r"^(?:async )?def (\w+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_tests_that_exist(page: str) -> None:
    text = (ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8")
    promises = PROMISE.findall(text)
    assert [int(number) for number, _, _ in promises] == list(range(1, len(promises) + 1))
    assert promises
    wrong = [complaint for promise in promises for complaint in complaints(*promise)]
    assert not wrong, "\n".join(wrong)


def complaints(number: str, what: str, tests: str) -> Iterator[str]:
    named = NAME.findall(tests)
    if ", ".join(f"`{path}::{name}`" for path, name in named) != tests:
        yield f"{number} ({what}): not names of tests: {tests}"
    for path, name in named:
        if name not in functions(path):
            yield f"{number} ({what}): there is no {path}::{name}"


@functools.cache
def functions(path: str) -> set[str]:
    file = ROOT / path
    return set(FUNCTION.findall(file.read_text(encoding="utf-8"))) if file.is_file() else set()
