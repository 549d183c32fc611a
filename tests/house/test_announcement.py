"""A reader of an announcement, its answer or a heartbeat meets each file once or twice."""

import pytest

from tests.scripts import load_script

trace_announce = load_script("benchmarks/trace_announce.py")

MOST_ENTRIES = 2

MOST_CALLS = {
    "announcement in the client": 104,
    "announcement in the server": 75,
    "acknowledgement in the client": 40,
    "heartbeat of the client in the server": 56,
    "heartbeat of the server in the client": 93,
}


@pytest.fixture(scope="module")
def ways() -> dict[str, list[str]]:
    trace_announce.trace()  # what is looked up once in a process is not counted
    ways: dict[str, list[str]] = trace_announce.trace()
    return ways


@pytest.mark.parametrize("way", MOST_CALLS)
def test_each_file_is_entered_once_or_twice(ways: dict[str, list[str]], way: str) -> None:
    entries = trace_announce.entries(ways[way])
    assert {file: count for file, count in entries.items() if count > MOST_ENTRIES} == {}


@pytest.mark.parametrize("way", MOST_CALLS)
def test_each_way_is_short(ways: dict[str, list[str]], way: str) -> None:
    assert 0 < len(ways[way]) <= MOST_CALLS[way]
