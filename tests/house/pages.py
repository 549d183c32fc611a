"""The documents as tests see them: pages, their sections, and the fenced blocks in those."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
ANY_FENCE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
CODE = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"^#+ +(?P<title>.+)$", re.M)


class Block(NamedTuple):
    """A fenced piece of a document."""

    where: str
    text: str


class Section(NamedTuple):
    """A heading and what follows it, up to the next heading."""

    page: Path
    title: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    def blocks(self, language: str) -> list[Block]:
        return [
            Block(f"{self.page.name}:{line}", text)
            for line, text in _fenced(self.text, language, self.line)
        ]


def documents(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> Iterator[Block]:
    for line, text in _fenced(page.read_text(encoding="utf-8"), language, 1):
        yield Block(f"{page.name}:{line}", text)


def sections(page: Path) -> Iterator[Section]:
    """Cut a page at its headings; what stands before the first one is a section as well."""
    text = page.read_text(encoding="utf-8")
    # A comment in a program begins like a heading: blot out all blocks before looking.
    bare = ANY_FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    headings = list(HEADING.finditer(bare))
    starts = [0, *(heading.start() for heading in headings), len(text)]
    titles = ["", *(heading["title"] for heading in headings)]
    for title, (start, end) in zip(titles, pairwise(starts), strict=True):
        yield Section(page, title, text.count("\n", 0, start) + 1, text[start:end])


def table_rows(section: str) -> Iterator[list[str]]:
    """Yield the cells of every table in a piece of a page, without the heads of the tables."""
    in_body = False
    for line in section.splitlines():
        if not line.startswith("|"):
            in_body = False
        elif set(line) <= set("|-: "):
            in_body = True
        elif in_body:
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            yield [cell.strip().replace("\\|", "|") for cell in cells]


def check_names(here: str, where: str) -> None:
    """Check that the names of one cell of a table stand in the one file that another cell names."""
    names = CODE.findall(here)
    assert names, f"no name beside {where}"
    (file,) = CODE.findall(where)
    text = _source(file)
    for name in names:
        assert re.search(rf"\b{name}\b", text), f"{name} is not in {file}"


@cache
def _source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _fenced(text: str, language: str, first_line: int) -> Iterator[tuple[int, str]]:
    for fence in FENCE.finditer(text):
        if fence["language"] == language:
            line = text.count("\n", 0, fence.start()) + first_line
            yield line, re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.M)


def load_tool(name: str) -> ModuleType:
    """Import a generator of pages, which is part of the documents and of no package."""
    return load_script(f"docs/tools/{name}.py")
