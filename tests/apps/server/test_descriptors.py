"""How many descriptors a server takes, on systems that say yes and on those that say no."""

import json
import resource
from tempfile import TemporaryFile

import pytest

from sphtp_server.descriptors import SPARE, raise_limit
from sphtp_server.logs import open_log

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "kernel", "limit", "events"),
    [
        (1024, 4096, 4096, 4096, []),
        (4096, 4096, 4096, 4096, []),
        (1024, 1500, 1500, 1500, ["few descriptors"]),
        # macOS has no hard limit, and refuses what is over its kernel's.
        (256, INFINITE, 10_240, 2000 + SPARE, ["the system allows"]),
        (256, INFINITE, 1000, 256, ["the system allows", "few descriptors"]),
        (5000, INFINITE, 10_240, 5000, ["the system allows"]),
    ],
)
def test_a_server_takes_the_descriptors_that_it_can_get(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    kernel: int,
    limit: int,
    events: list[str],
) -> None:
    has = [soft]

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        if not 0 <= limits[0] <= kernel:
            raise ValueError("current limit exceeds maximum limit")
        has[0] = limits[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    with TemporaryFile("w+") as output:
        raise_limit(open_log("debug", "json", output), 1000)
        output.seek(0)
        lines = [json.loads(line) for line in output]
    assert has == [limit]
    assert len(lines) == len(events)
    for line, start in zip(lines, events, strict=True):
        assert line["event"].startswith(start)
        assert line["limit"] == limit
