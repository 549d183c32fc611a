"""The tree is read bottom up, and things are found by the words that an engineer knows."""

import re
from pathlib import Path

import pytest

from tests.scripts import ROOT, load_script

legibility = load_script("benchmarks/legibility.py")

MOST_LAYERS = 8
MOST_IMPORTS_OF_CONTROL = 110
MOST_FILES = 200
# "What a server does" is a question; "The task of a server" is a definition.
ASKING = re.compile(r'\s*"""(What|Who|How|Where|Which|When|Whether)\b')


PARTS = pytest.mark.parametrize(
    "folder",
    [legibility.CHANNEL, legibility.STREAM, legibility.CONTROL],
    ids=lambda it: it.name,
)


@PARTS
def test_imports_run_downwards_in_few_layers(folder: Path) -> None:
    graph = legibility.import_graph(folder)
    assert legibility.layers(graph) <= MOST_LAYERS
    assert legibility.folder_cycles(graph) == []


def test_the_library_has_few_files() -> None:
    files = [path for path in legibility.PACKAGE.rglob("*.py") if path.is_file()]
    assert len(files) <= MOST_FILES


def test_the_control_plane_has_few_imports() -> None:
    graph = legibility.import_graph(legibility.CONTROL)
    assert sum(map(len, graph.values())) <= MOST_IMPORTS_OF_CONTROL


def test_nothing_reaches_for_a_private_name() -> None:
    places = (legibility.PACKAGE, legibility.SERVER, legibility.CLIENT)
    files = [path for place in places for path in place.rglob("*.py")]
    assert [path.name for path in files if "noqa: SLF001" in path.read_text("utf-8")] == []


def test_the_core_calls_nobody_back() -> None:
    assert legibility.stored_callables(legibility.CORE) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    assert legibility.folder_cycles(legibility.import_graph(legibility.PACKAGE)) == []


def test_a_class_name_means_one_thing() -> None:
    places = legibility.PACKAGE, legibility.SERVER, legibility.CLIENT
    assert legibility.double_names(*places) == {}
    assert legibility.twins(*places) == []


@pytest.mark.parametrize(
    ("folder", "terms"),
    [
        (legibility.CHANNEL, legibility.TERMS),
        (legibility.STREAM, legibility.STREAM_TERMS),
    ],
    ids=["channel", "stream"],
)
def test_each_term_of_the_field_is_found_where_the_thing_is(
    folder: Path, terms: dict[str, str]
) -> None:
    found = legibility.find(terms, folder)
    elsewhere = {term: it and it.file for term, it in found.items() if not (it and it.expected)}
    assert elsewhere == {}


def test_a_docstring_defines_by_a_noun() -> None:
    tops = (legibility.PACKAGE, legibility.SERVER, ROOT / "client", ROOT / "benchmarks")
    lines = [
        f"{path.name}: {line.strip()}"
        for top in tops
        for path in top.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if ASKING.match(line)
    ]
    assert lines == []
