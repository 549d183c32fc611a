"""The page on the four designs names things that exist, in the files that it says."""

from dataclasses import fields
from typing import NamedTuple

import pytest

from sphtp.config import StreamSettings
from tests.house.pages import CODE, ROOT, check_names, sections

PAGE = ROOT / "docs" / "explanation" / "seeds.md"
DESIGNS = (
    "SphereSim Transmission Protocol",
    "Reliable Ordered Messages",
    "Ultra Messaging lost packet recovery",
    "talk",
)
OPTIONS = "The options of Ultra Messaging"
CONFLICTS = "Where the designs disagree"


class Row(NamedTuple):
    theirs: str
    ours: str
    last: str
    taken: str = ""


def rows(title: str) -> list[Row]:
    """Return the rows of the table under a heading, without its own heading."""
    (section,) = [section for section in sections(PAGE) if section.title == title]
    lines = [line for line in section.text.splitlines() if line.startswith("|")]
    return [Row(*(cell.strip() for cell in line.split("|")[1:-1])) for line in lines[2:]]


@pytest.mark.parametrize("design", DESIGNS)
def test_each_name_stands_in_the_file_beside_it(design: str) -> None:
    found = rows(design)
    assert len(found) > 10
    for row in found:
        check_names(row.ours, row.last)


def test_each_option_has_a_setting() -> None:
    settings = {field.name for field in fields(StreamSettings)}
    for row in rows(OPTIONS):
        assert CODE.findall(row.theirs), row
        names = CODE.findall(row.ours)
        assert names, row
        assert settings.issuperset(names), row


def test_every_disagreement_is_decided() -> None:
    found = rows(CONFLICTS)
    questions = {row.theirs for row in found}
    assert questions >= {"byte order", "first byte", "messages in flight", "resend"}
    assert all(all(row) for row in found)
