"""Write `sphtp/blocking.pyi` and `sphtp/aio.pyi` from the classes for Trio: `make docs`.

At run time `sphtp.shell.flavours` derives the two flavours from these classes. Type checkers do not
run this code, so the files have the same classes for them. `--check` writes nothing, and exits with
1 if a file differs from the classes.
"""

import argparse
import ast
import builtins
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

from sphtp.shell.flavours import CLASSES, OF_TRIO_ONLY, OPENERS, opens_block, public_members

ROOT = Path(__file__).resolve().parents[2]

HEAD = "# Written by docs/tools/flavours.py from the classes for Trio: run `make docs`.\n"

BLOCKS = {
    "blocking": "AbstractContextManager",
    "aio": "AbstractAsyncContextManager",
}
DEFINED = {*CLASSES, "T"}


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    for flavour in BLOCKS:
        if not options.check:
            page(flavour).write_text(render(flavour), encoding="utf-8")
        elif stale(flavour):
            sys.stderr.write(f"{page(flavour)} differs from the classes; run `make docs`\n")
            return 1
    return 0


def page(flavour: str) -> Path:
    """Return the file of a flavour."""
    return ROOT / "sphtp" / f"{flavour}.pyi"


def stale(flavour: str) -> bool:
    """Return True if the file of a flavour differs from the classes."""
    return page(flavour).read_text(encoding="utf-8") != render(flavour)


def render(flavour: str) -> str:
    """Return the text of the file of a flavour."""
    return Stub(flavour).text()


class Stub:
    """The text of the file of one flavour."""

    def __init__(self, flavour: str) -> None:
        self.is_blocking = flavour == "blocking"
        self.block = BLOCKS[flavour]
        self.imports = set[tuple[str, str]]()

    def text(self) -> str:
        """Return the whole text."""
        classes = [self.class_text(name) for name in CLASSES]
        openers = [self.opener_text(name) for name in OPENERS]
        limit = []
        if self.is_blocking:
            self.imports.add(("contextlib", "AbstractContextManager"))
            limit = ["def fail_after(seconds: float) -> AbstractContextManager[None]: ..."]
        self.imports |= {("typing", "Any"), ("typing", "Generic"), ("typing_extensions", "TypeVar")}
        by_module: dict[str, list[str]] = {}
        for module, name in sorted(self.imports):
            by_module.setdefault(module, []).append(name)
        imports = [
            f"from {module} import {', '.join(names)}" for module, names in by_module.items()
        ]
        variable = 'T = TypeVar("T", default=Any)'
        parts = [HEAD, *imports, "", variable, "", *classes, *openers, *limit]
        return "\n".join(parts) + "\n"

    def class_text(self, name: str) -> str:
        """Return the stub of a class."""
        cls = getattr(import_module(CLASSES[name]), name)
        takes = "T" in {each.id for each in ast.walk(source_of(cls)) if isinstance(each, ast.Name)}
        lines = [f"class {name}(Generic[T]):" if takes else f"class {name}:"]
        for base in reversed(cls.__mro__):
            if base.__module__.startswith("sphtp"):
                nodes = source_of(base).body
                several = {node.name for node in nodes if is_overload(node)}
                for node in nodes:
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                        is_overload(node) or node.name not in several
                    ):
                        lines += self.member(cls, node, base.__module__)
        return "\n".join([*lines, *self.special(cls)]) + "\n"

    def member(self, cls: type[Any], node: Any, module: str) -> Iterator[str]:
        """Yield the lines of a method or property."""
        member = public_members(cls).get(node.name)
        if member is None:
            return
        decorators = [ast.unparse(each) for each in node.decorator_list]
        kept = [
            each
            for each in decorators
            if each in ("property", "overload") or each.endswith(".setter")
        ]
        if "overload" in kept:
            self.imports.add(("typing", "overload"))
        for each in kept:
            yield f"    @{each}"
        is_block = not isinstance(member, property) and opens_block(member)
        yield f"    {self.signature(node, module, is_block=is_block)}"

    def opener_text(self, name: str) -> str:
        """Return the stub of a function that programs begin with."""
        module = OPENERS[name]
        function = getattr(import_module(module), name)
        node = next(each for each in tree_of(module).body if getattr(each, "name", "") == name)
        return self.signature(node, module, is_block=opens_block(function))

    def signature(self, node: Any, module: str, *, is_block: bool) -> str:
        """Return a function without its body."""
        node = deepcopy(node)
        arguments = node.args
        pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        pairs = [pair for pair in pairs if pair[0].arg not in OF_TRIO_ONLY]
        arguments.kwonlyargs = [argument for argument, _ in pairs]
        arguments.kw_defaults = [default and ast.Constant(...) for _, default in pairs]
        arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
        for argument in [*arguments.args, *arguments.kwonlyargs, arguments.vararg]:
            if argument is not None and argument.annotation is not None:
                argument.annotation = self.annotation(argument.annotation, module)
        returned = self.annotation(node.returns, module)
        if is_block:
            # ``AsyncIterator[X]`` of the generator is a block that gives an X; so is an overload.
            self.imports.add(("contextlib", self.block))
            returned = ast.Subscript(ast.Name(self.block), returned.slice)
        if returned == ast.Name("NoReturn"):
            self.imports.add(("typing", "NoReturn"))
        waits = isinstance(node, ast.AsyncFunctionDef) and not is_block and not self.is_blocking
        name = "close" if node.name == "aclose" and self.is_blocking else node.name
        head = f"{'async ' if waits else ''}def {name}({ast.unparse(arguments)})"
        return f"{head} -> {ast.unparse(returned)}: ..."

    def special(self, cls: type[Any]) -> Iterator[str]:
        """Yield the special methods for iteration, and for ``with`` and ``async with``."""
        a, wait = ("", "") if self.is_blocking else ("a", "async ")
        item = ITEMS.get(cls.__name__, "T")
        if hasattr(cls, "__anext__"):
            if item == "T | Loss":
                self.imports.add(("sphtp.core.stream.events", "Loss"))
            self.imports.add(("typing", "Self"))
            yield f"    def __{a}iter__(self) -> Self: ..."
            yield f"    {wait}def __{a}next__(self) -> {item}: ..."
        is_plain = hasattr(cls, "__exit__")
        if is_plain or hasattr(cls, "aclose"):
            a, wait = ("", "") if is_plain else (a, wait)
            self.imports |= {("typing", "Self"), ("types", "TracebackType")}
            yield f"    {wait}def __{a}enter__(self) -> Self: ..."
            yield (
                f"    {wait}def __{a}exit__(self, kind: type[BaseException] | None, "
                "error: BaseException | None, traceback: TracebackType | None) -> None: ..."
            )

    def annotation(self, node: Any, module: str) -> Any:
        """Return an annotation of a module as it is in this file, and note what it imports."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotation(ast.parse(node.value, mode="eval").body, module)
        if isinstance(node, ast.Subscript) and self.is_blocking and name_of(node) == "Awaitable":
            # The result of a handler.
            return self.annotation(node.slice, module)
        if isinstance(node, ast.Subscript) and name_of(node) == "Literal":
            self.imports.add(("typing", "Literal"))
            return node
        if isinstance(node, ast.Name):
            return self.name(node, module)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [self.annotation(each, module) for each in value])
            elif isinstance(value, ast.expr):
                setattr(node, field, self.annotation(value, module))
        return node

    def name(self, node: ast.Name, module: str) -> Any:
        """Return a name, imported from where it is defined; an alias is written out."""
        if node.id in DEFINED or hasattr(builtins, node.id):
            return node
        for found in ast.walk(tree_of(module)):
            if isinstance(found, ast.ImportFrom) and found.module:
                for alias in found.names:
                    if alias.name == node.id:
                        if is_alias(found.module, node.id):
                            return self.name(node, found.module)
                        self.imports.add((found.module, node.id))
                        return node
            if isinstance(found, ast.Assign) and ast.unparse(found.targets[0]) == node.id:
                return self.annotation(deepcopy(found.value), module)
        self.imports.add((module, node.id))
        return node


ITEMS = {"Subscription": "T | Loss", "TopicSubscription": "TopicMessage[T] | TopicLoss"}
"""The items of an iteration, where they are not of type T."""


def is_alias(module: str, name: str) -> bool:
    """Return True if a module of this library defines a name by an assignment."""
    if not module.startswith("sphtp"):
        return False
    return any(
        isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name
        for each in tree_of(module).body
    )


def is_overload(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Return True for one of the signatures of a function that has several."""
    return isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list)


def name_of(node: ast.Subscript) -> str:
    """Return the name that is subscripted."""
    return ast.unparse(node.value)


def source_of(cls: type[Any]) -> ast.ClassDef:
    """Return the source of a class."""
    for node in tree_of(cls.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return node
    raise LookupError(cls)


@cache
def tree_of(module: str) -> ast.Module:
    """Return the source of a module."""
    file = import_module(module).__file__
    assert file is not None
    return ast.parse(Path(file).read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
