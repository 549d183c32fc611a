"""The page on the testing kit: its programs run, and it leaves nothing out."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import sphtp.testing
from sphtp.testing import Faults, LinkStatistics
from tests.cases import each

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "testing-kit.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.mark.parametrize("program", PROGRAMS)
def test_its_programs_run(program: str) -> None:
    exec(compile(program, PAGE.name, "exec"), {})


def test_it_has_programs() -> None:
    assert len(PROGRAMS) == 5


@each("field", fields(Faults))
def test_every_fault_is_in_its_table_with_its_default(field) -> None:
    row = re.search(rf"^\| `{field.name}` \| .+ \| (.+) \| .+ \|$", TEXT, re.M)
    assert row is not None
    words = {"no": False, "no limit": float("inf")}
    shown = words[row[1]] if row[1] in words else float(row[1])
    assert shown == field.default


def test_every_figure_and_every_class_is_there() -> None:
    classes = {name for name in vars(sphtp.testing) if name[0].isupper()}
    names = classes | {field.name for field in fields(LinkStatistics)}
    assert not {name for name in names if f"`{name}" not in TEXT}
