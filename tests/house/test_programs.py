"""Every program in the documents runs, and prints what the document says that it prints.

Programs under one heading belong together: they run at the same time, each in a process of its
own, as a reader runs them in several terminals. They find a server of their own where documents
say that one listens. A `text` block under that heading is what one of them prints; `...` in it
stands for anything, so figures that differ from run to run can be left open.
"""

import re
from pathlib import Path

import pytest
import trio

from sphtp.core.control.records import ServerAddress
from sphtp.shell.server import open_server
from tests.deadline import within
from tests.house.pages import ROOT, Block, Section, blocks, documents, name_of, sections
from tests.interpreters import Ending, run_program
from tests.soaked import soaked

DEADLINE = 200.0

# Documents say where a server listens by default; here it listens wherever a port is free.
DEFAULT_ADDRESS = "tcp://127.0.0.1:8764"

MOST_AT_ONCE = 4
"""Headings of a page: most programs wait for each other, or take leave."""

PAGES = [page for page in documents("*.md", "docs/**/*.md") if any(blocks(page, "python"))]
FIRST = [page for page in PAGES if page in documents("README.md", "docs/tutorial/*.md")]
"""What a newcomer reads. The programs of all other pages take as long as a tenth of all tests, and
run before a change lands."""


@pytest.mark.trio(run=within(600))
@pytest.mark.parametrize(
    "page", [*FIRST, *soaked(page for page in PAGES if page not in FIRST)], ids=name_of
)
async def test_programs_run_and_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    limiter = trio.CapacityLimiter(MOST_AT_ONCE)

    async def check(section: Section, directory: Path) -> None:
        await trio.Path(directory).mkdir()
        async with limiter:
            await run_section(section, directory)

    async with trio.open_nursery() as nursery:
        for section in sections(page):
            if section.blocks("python"):
                nursery.start_soon(check, section, tmp_path / f"{section.line}")


async def run_section(section: Section, directory: Path) -> None:
    programs = section.blocks("python")
    async with open_server(ServerAddress.parse("tcp://127.0.0.1:0"), new_cluster=True) as server:
        await server.wait_active()
        endings = await run_together(programs, str(server.address), directory)
    for program, ending in zip(programs, endings, strict=True):
        assert ending.failure is None, f"{program.where}: {ending.failure}"
    for expected in section.blocks("text"):
        printed = [ending.printed for ending in endings]
        assert any(agrees(expected.text, text) for text in printed), (
            f"{expected.where}: no program there prints this, but {printed}"
        )


async def run_together(programs: list[Block], server: str, directory: Path) -> list[Ending]:
    endings: dict[int, Ending] = {}

    async def run(number: int, program: str) -> None:
        endings[number] = await run_program(program, directory, f"{number}", DEADLINE)

    async with trio.open_nursery() as nursery:
        for number, program in enumerate(programs):
            nursery.start_soon(run, number, program.text.replace(DEFAULT_ADDRESS, server))
    return [endings[number] for number in range(len(programs))]


def agrees(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.rstrip().split("..."))
    return re.fullmatch(pattern, printed.rstrip(), re.S) is not None


async def test_a_program_that_fails_is_caught(tmp_path: Path) -> None:
    for wrong in ("1 / 0", "import warnings; warnings.warn('careful')", "raise SystemExit(3)"):
        assert (await run_program(wrong, tmp_path, "wrong", DEADLINE)).failure is not None
    late = await run_program("import threading; threading.Event().wait()", tmp_path, "late", 0.1)
    assert (late.failure or "").startswith("still running")


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-channel.md"])
def test_pages_that_teach_python_have_programs(page: str) -> None:
    assert ROOT / page in PAGES
