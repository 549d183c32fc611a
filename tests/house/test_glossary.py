"""The glossary names things that exist, in the files that it says, and each of them once."""

from collections import Counter
from typing import Final

from tests.house.pages import ROOT, check_names, table_rows

GLOSSARY: Final = ROOT / "docs" / "reference" / "glossary.md"
ROWS: Final = list(table_rows(GLOSSARY.read_text(encoding="utf-8")))


def test_each_name_stands_in_the_file_beside_it() -> None:
    assert len(ROWS) > 100
    for concept, here, file, source in ROWS:
        check_names(here, file)
        assert concept, here
        assert source, concept


def test_each_concept_has_one_row() -> None:
    for cells in (
        Counter(concept for concept, *_ in ROWS),
        Counter((here, file) for _, here, file, _ in ROWS),
    ):
        assert [cell for cell, times in cells.items() if times > 1] == []
