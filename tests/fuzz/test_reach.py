"""No function that is fed network bytes is forgotten: what is kept reaches each of them."""

import ast
import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.fuzz.targets import TARGETS, kept

ROOT = Path(__file__).resolve().parents[2]
WINGS = ("sphtp", "server", "client")
SUFFIX = "_untrusted"

Function = tuple[str, str]
"""The file that it is in, and its name there."""


def defined(path: Path, text: str) -> Iterator[Function]:
    """Yield the functions that end in the suffix, but for those that say only what others do."""
    bodies = [("", ast.parse(text).body)]
    while bodies:
        prefix, body = bodies.pop()
        for node in body:
            if isinstance(node, ast.ClassDef):
                bodies.append((f"{prefix}{node.name}.", node.body))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_meant(node):
                yield str(path), prefix + node.name


def _is_meant(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return node.name.endswith(SUFFIX) and not all(map(_is_word, node.body))


def _is_word(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def reached(wanted: AbstractSet[Function]) -> set[Function]:
    """Return the functions that targets call with what is kept for them, or those wanted."""
    calls: set[Function] = set()
    inputs = {name: iter(kept(name)) for name in TARGETS}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name.endswith(SUFFIX):
            calls.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        while inputs and not wanted <= calls:
            # The first ones reach most, so that not all are needed.
            for name, paths in tuple(inputs.items()):
                path = next(paths, None)
                if path is None:
                    del inputs[name]
                else:
                    TARGETS[name](path.read_bytes())
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.soak
def test_every_function_that_is_fed_network_bytes_is_reached() -> None:
    files = [path for wing in WINGS for path in (ROOT / wing).rglob("*.py")]
    functions = {it for path in files for it in defined(path, path.read_text(encoding="utf-8"))}
    assert len(functions) > 20
    forgotten = [
        f"{Path(file).relative_to(ROOT)}: {name}"
        for file, name in sorted(functions - reached(functions))
    ]
    assert not forgotten, "no target reaches\n" + "\n".join(forgotten)


def test_what_is_fed_network_bytes_is_found() -> None:
    text = (
        "class A:\n"
        '    def b_untrusted(self): "What others do."\n'
        "    def c_untrusted(self): return 1\n"
        "    def d(self): return 1\n"
        "async def e_untrusted(): await f()\n"
    )
    path = Path("a.py")
    assert sorted(defined(path, text)) == [("a.py", "A.c_untrusted"), ("a.py", "e_untrusted")]
