"""Every table of the core has a page, and the page says what the table says."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import sphtp.core
from sphtp.core.fsm import Machine
from tests.scripts import load_script

TOOL = load_script("docs/tools/state_machines.py")


@pytest.mark.plain  # mypyc 2.4.1 leaves out the docstrings of modules
def test_the_pages_are_fresh() -> None:
    stale = TOOL.stale(TOOL.PAGES, TOOL.render())
    assert not stale, f"stale: {', '.join(stale)}; run `make diagrams` and commit what it wrote"


def test_no_table_is_left_out() -> None:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(sphtp.core.__path__, "sphtp.core.")
    ]
    tables = {
        id(value): f"{module.__name__}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Machine)
    }
    shown = {id(TOOL.load(source)) for source in TOOL.SOURCES}
    left_out = sorted(name for key, name in tables.items() if key not in shown)
    assert not left_out, f"add them to SOURCES in docs/tools/state_machines.py: {left_out}"


def test_a_changed_page_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ["--directory", str(tmp_path / "pages")]
    assert TOOL.main([*directory, "--check"]) == 1
    assert TOOL.main(directory) == 0
    capsys.readouterr()
    assert TOOL.main([*directory, "--check"]) == 0

    page = tmp_path / "pages" / f"{TOOL.SOURCES[0].page}.md"
    page.write_text(page.read_text(encoding="utf-8").replace("-->", "->"), encoding="utf-8")
    assert TOOL.main([*directory, "--check"]) == 1
    complaint = capsys.readouterr().err
    assert page.name in complaint
    assert "make diagrams" in complaint
