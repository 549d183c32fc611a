"""Change the core's behaviour in one place at a time, and find a test that fails.

A mutant is one change of one statement: a comparison negated or its boundary moved, an operator of
arithmetic or logic exchanged, a condition negated, a constant changed, a statement removed, another
value returned. A statement is drawn from all that can be changed, each as likely as another; then a
kind of change, then a place in the statement. The same seed draws the same from the same sources.

The tests run in a copy of the checkout: first those of the module's own name, then those of its
folder, then all that concern the core. A test catches the mutant if it fails again alone, and
passes without the mutant; other failures are noted as unsteady, and the run goes on without these
tests. A mutant that no test catches is a hole in the tests, unless no caller can notice the change,
which only a reader can decide.
"""

import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

import click
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final = (
    *("sphtp", "server", "client", "benchmarks", "tests"),
    *("docs", "examples", "scenarios", "share"),
)
# The last is that of settings against the page that documents them.
WHOLE: Final = [
    *(f"tests/{part}" for part in ("core", "shell", "interop", "attack", "testing", "apps")),
    "tests/house/test_reference.py",
]
# A mutant that allocates without end must not take the machine with it.
MEMORY: Final = 8 << 30

NEGATED: Final[dict[type[Any], type[Any]]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
MOVED: Final[dict[type[Any], type[Any]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
SWAPPED: Final[dict[type[Any], type[Any]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip

# The block of a statement and its index there, its function's name, and the annotated result.
Statement = tuple[list[Any], int, str, str]
# The kind of a change, its owner and key (attributes of a node, or a list), and the new value.
Change = tuple[str, Any, Any, object]


def _statements(tree: ast.AST, function: str = "", returns: str = "") -> Iterator[Statement]:
    """Yield all statements but definitions, and assertions, which change nothing."""
    for _, field in ast.iter_fields(tree):
        for index, node in enumerate(field if isinstance(field, list) else [field]):
            inside = function, returns
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = node.name, ast.unparse(node.returns) if node.returns else ""
            elif isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef | ast.Assert):
                yield field, index, function, returns
            if isinstance(node, ast.AST):
                yield from _statements(node, *inside)


def _changes(block: list[Any], index: int, function: str, returns: str) -> Iterator[Change]:
    statement = block[index]
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            yield "condition", vars(statement), "test", ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            other: ast.expr = ast.Constant(None)
            if returns == "bool":
                other = ast.UnaryOp(ast.Not(), value)
            elif returns in ("int", "float"):
                other = ast.BinOp(value, ast.Add(), ast.Constant(1))
            yield "return", vars(statement), "value", other
        case ast.Expr(value=ast.Call() | ast.Yield()) | ast.AugAssign() | ast.Raise():
            yield "removal", block, index, ast.Pass()
        case ast.Delete() | ast.Break() | ast.Continue():
            yield "removal", block, index, ast.Pass()
        # Without an attribute that the constructor sets, nothing would run at all.
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if function != "__init__":
            yield "removal", block, index, ast.Pass()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):  # Mostly the words of an error, which no test holds.
            continue
        yield from _changes_of(node)
        # Not the statements in its block, which are drawn for themselves.
        for name, field in ast.iter_fields(node):
            for each in field if isinstance(field, list) else [field]:
                is_apart = isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
                if isinstance(each, ast.AST) and not is_apart and name != "annotation":
                    waiting.append(each)


def _changes_of(node: Any) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[comparison, *_]):
            yield "comparison", node.ops, 0, NEGATED[type(comparison)]()
            if type(comparison) in MOVED:
                yield "boundary", node.ops, 0, MOVED[type(comparison)]()
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in SWAPPED:
            kind = "logic" if isinstance(node, ast.BoolOp) else "arithmetic"
            yield kind, vars(node), "op", SWAPPED[type(node.op)]()
        case ast.IfExp():
            yield "condition", vars(node), "test", ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=bool()):
            yield "constant", vars(node), "value", not node.value
        case ast.Constant(value=int() | float()):
            # One more would be within the rounding of a large figure, which is doubled instead.
            more = 1 if abs(node.value) < 256 else node.value
            yield "constant", vars(node), "value", node.value + more


def _draw(seed: int) -> list[tuple[Path, int]]:
    """Return all statements that can be changed, in an order from this seed."""
    pool = []
    for path in sorted((ROOT / "sphtp/core").rglob("*.py")):
        for index, statement in enumerate(_statements(ast.parse(path.read_text()))):
            if any(_changes(*statement)):
                pool.append((path, index))
    random.Random(seed).shuffle(pool)
    return pool


def _mutate(path: Path, index: int, seed: int) -> tuple[dict[str, Any], str]:
    """Return the description of the mutant of a statement, and the text of its module."""
    tree = ast.parse(path.read_text())
    block, place, *context = list(_statements(tree))[index]
    changes: dict[str, list[Change]] = {}
    for change in _changes(block, place, *context):
        changes.setdefault(change[0], []).append(change)
    file, line, before = str(path.relative_to(ROOT)), block[place].lineno, _header(block[place])
    chance = random.Random(f"{seed} {file} {index}")
    kind = chance.choice(sorted(changes))
    _, owner, key, value = chance.choice(changes[kind])
    owner[key] = value
    found = {"file": file, "line": line, "kind": kind, "before": before}
    return found | {"after": _header(block[place])}, ast.unparse(ast.fix_missing_locations(tree))


def _header(statement: ast.stmt) -> str:
    """Return the text of a statement without its block."""
    alone = copy.copy(statement)
    vars(alone).update({name: [] for name in ("body", "orelse", "cases") if hasattr(alone, name)})
    return ast.unparse(alone)


def _stages(tree: Path, file: str) -> Iterator[list[str]]:
    """Yield the tests to run, the nearest first."""
    path = Path(file)
    own = sorted((tree / "tests/core").rglob(f"test_{path.stem}*.py"))
    if own:
        yield [str(each.relative_to(tree)) for each in own]
    folder = Path("tests", *path.parent.parts[1:3])
    if folder != Path("tests/core"):
        yield [str(folder)]
    yield WHOLE


def _run(
    tree: Path, tests: list[str], without: Iterable[str] = (), *, workers: int, timeout: float
) -> str | None:
    """Run tests in the copy; return the first that failed, or None if none failed.

    Return "timeout" if they take too long, and the end of their output if it names no test.
    """
    options = ["-x", "-q", "-m", "not soak", "--tb=no", "-p", "no:cacheprovider"]
    options += [f"--deselect={test}" for test in without]
    paths = os.pathsep.join(str(tree / part) for part in ("", "server", "client", "benchmarks"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *tests, *options, f"-n{workers if workers > 1 else 0}"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        # The workers of a mutant that never ends do not end with the process that started them.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else output[-300:]


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Python's cache would hold if the file had the same size and, to the second, the same age.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _catch(path: Path, text: str, tree: Path, stages: list[list[str]], **limits: Any) -> Any:
    """Return the test that catches a mutant, and those that failed for other reasons."""
    whole = path.read_text()
    unsteady: list[str] = []
    try:
        for tests in stages:
            _write(path, text)
            while failed := _run(tree, tests, unsteady, **limits):
                # Without "::" it is no test: a module that fails to load, or a timeout.
                is_test = "::" in failed
                alone = [failed] if is_test else tests
                if not is_test or _run(tree, alone, **limits):
                    _write(path, whole)
                    if not _run(tree, alone, **limits):
                        return {"caught": failed, "unsteady": unsteady}
                    _write(path, text)
                unsteady.append(failed)
                if not is_test:
                    break
    finally:
        _write(path, whole)
    return {"caught": None, "unsteady": unsteady}


@click.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--count", type=click.IntRange(1), default=40, show_default=True)
@click.option("--first", type=click.IntRange(0), default=0, help="Number of mutants to leave out.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Of one run, in s.")
@click.option("--near", is_flag=True, help="Leave out the last run, of all that concern the core.")
@click.option("--show", is_flag=True, help="Print the mutants, and run nothing.")
def main(seed: int, count: int, first: int, *, near: bool, show: bool, **limits: float) -> None:
    """Draw mutants of the core by a seed, and print a line of JSON for each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory)
        for each in () if show else ROOT.iterdir():
            if each.name in PARTS:
                shutil.copytree(each, tree / each.name)
            elif each.is_file():
                shutil.copy(each, tree)
        for number, (path, index) in enumerate(_draw(seed)[first : first + count], first):
            found, text = _mutate(path, index, seed)
            if not show:
                stages = list(_stages(tree, found["file"]))[: -1 if near else None]
                found |= _catch(tree / found["file"], text, tree, stages, **limits)
            click.echo(json.dumps({"seed": seed, "number": number} | found))


if __name__ == "__main__":
    main()
