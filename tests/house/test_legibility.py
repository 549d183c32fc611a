"""The channel can be found by the words that an engineer knows, and read from the bottom up."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "legibility.py"
SPEC = importlib.util.spec_from_file_location("legibility", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
legibility = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(legibility)

MOST_LAYERS = 8


def test_imports_run_downwards_in_few_layers() -> None:
    graph = legibility.import_graph(legibility.CHANNEL)
    assert legibility.layers(graph) <= MOST_LAYERS
    assert legibility.folder_cycles(graph) == []


def test_the_channel_calls_nobody_back_but_its_users_predicates() -> None:
    found = legibility.stored_callables(legibility.CHANNEL)
    assert found == list(legibility.USER_PREDICATES)


def test_a_class_name_means_one_thing() -> None:
    assert legibility.double_names(legibility.CHANNEL) == {}


def test_each_term_of_the_field_is_found_where_the_thing_is() -> None:
    found = legibility.find(legibility.TERMS)
    elsewhere = {term: it and it.file for term, it in found.items() if not (it and it.expected)}
    assert elsewhere == {}
