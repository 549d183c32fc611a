"""Choose the inputs that are kept: `python -m tests.fuzz.keep`, or `make fuzz-keep`.

Of what is kept and what runs have found, as few small ones as together reach the most lines. What
regression tests need is not here but in those tests.
"""

import sys
from collections.abc import Iterator, Mapping
from random import Random
from types import CodeType, FrameType
from typing import Any, Final

import click

from tests.fuzz.run import DEN, ROOT, chosen
from tests.fuzz.starts import starts
from tests.fuzz.targets import CORPUS, TARGETS, kept

MOST: Final = 16
"""Inputs of one target."""

LONGEST: Final = 1024
"""Bytes of an input."""

MOST_TRIED: Final = 120
"""Inputs of those found that are looked at, which takes long for each."""

OURS: Final = tuple(f"{ROOT / wing}/" for wing in ("sphtp", "server", "client"))

Line = tuple[CodeType, int]


@click.command()
@click.option("--targets", default="", help="Names, or parts of them; by default all.")
def keep(targets: str) -> None:
    """Put the best inputs where the tests find them, and the others away."""
    for name in chosen(targets):
        found = sorted(path.read_bytes() for path in (DEN / "corpus" / name).glob("*"))
        # Any will do, but the same ones at each try.
        some = Random(name).sample(found, min(len(found), MOST_TRIED))
        inputs = {*starts(name), *(path.read_bytes() for path in kept(name)), *some}
        best = list(smallest_cover({it: reach(name, it) for it in inputs if len(it) <= LONGEST}))
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in kept(name):
            path.unlink()
        for number, data in enumerate(best):
            (folder / f"{number:02}").write_bytes(data)
        size = sum(map(len, best))
        click.echo(f"{name:24} {len(best):3} of {len(inputs):5} inputs, {size:6} bytes")


def smallest_cover(reached: Mapping[bytes, set[Line]]) -> Iterator[bytes]:
    """Yield the inputs that add most, one after the other, until nothing is added."""
    left = dict(sorted(reached.items(), key=lambda it: (len(it[0]), it[0])))
    seen: set[Line] = set()
    for _ in range(MOST):
        best = max(left, key=lambda data: len(left[data] - seen), default=None)
        if best is None or left[best] <= seen:
            return
        seen |= left.pop(best)
        yield best


def reach(name: str, data: bytes) -> set[Line]:
    """Return the lines of the library that a target reaches with an input."""
    lines: set[Line] = set()

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            lines.add((frame.f_code, frame.f_lineno))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        TARGETS[name](data)
    finally:
        sys.settrace(before)
    return lines


if __name__ == "__main__":
    keep()
