"""Measure the legibility of ``sphtp``.

For the whole library, these are the number of files, circles of imports among folders, and the
callables that the core stores; for library, daemon and client programs, class names with two
meanings, and two names with one meaning. For channel, streams and control plane, there are also the
lines, the imports and the layers of the import graph. For channel and streams, it is also the file
in which a reader finds each term of the field first, which should be the file with the thing
itself.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

PACKAGE: Final = Path(__file__).resolve().parents[1] / "sphtp"
CORE: Final = PACKAGE / "core"
CHANNEL: Final = CORE / "channel"
STREAM: Final = CORE / "stream"
CONTROL: Final = CORE / "control"

SERVER: Final = PACKAGE.parent / "server" / "sphtp_server"
CLIENT: Final = PACKAGE.parent / "client" / "sphtp_client"

TERMS: Final[Mapping[str, str]] = {
    # The terms of RFC 9000, RFC 9002 and RFC 6479, each with the file that has the thing itself.
    "retransmit": "send_lane",
    "loss detection": "loss_detection",
    "sent packet": "sent_packets",
    "packet number": "sent_packets",
    "token bucket": "token_bucket",
    "path validation": "path_validation",
    "stateless reset": "stateless_reset",
    "amplification": "noise",
    "idle timeout": "lifecycle",
    "persistent congestion": "loss_detection",
    "head-of-line": "receive_queue",
    "app-limited": "delivery_rate",
    "send window": "flow_control",
    "anti-replay": "seal",
    "scheduler": "send_queue",
    "in flight": "loss_detection",
    "spurious": "new_reno",
    "eliciting": "sent_packets",
    "probe timeout": "loss_detection",
    "replay": "responder",
    "reassembly": "reassembly",
    "handshake": "handshake",
}

STREAM_TERMS: Final[Mapping[str, str]] = {
    # The terms of Ultra Messaging.
    "source": "source",
    "receiver": "receiver",
    "transmission window": "transmission_window",
    "nak generation": "nak",
    "backoff": "nak",
    "suppression": "nak",
    "loss map": "loss_map",
    "retransmission": "retransmission",
    "ignore interval": "retransmission",
    "retransmit rate limit": "rate_limit",
    "rate limit": "rate_limit",
    "session message": "transmission_window",
    "bundling": "transmission",
    "flow control": "flow_control",
    "late join": "late_join",
    "off-transport recovery": "late_join",
    "retention": "retention",
    "unrecoverable loss": "unrecoverable_loss",
    "ordered delivery": "ordered_delivery",
    "order map": "ordered_delivery",
    "delivery controller": "delivery",
    "status message": "wire",
}


class Found(NamedTuple):
    """The file in which a reader finds a term first, and the counts that decide this."""

    file: str
    in_file_name: bool
    in_names: int
    words: int
    expected: bool


# What stands at the left margin needs no syntax tree, which takes ten times as long.
IMPORT: Final = re.compile(r"^from ([\w.]+) import (\([^)]*\)|.*)", re.M)
CLASS: Final = re.compile(r"^class (\w+)[(:\[]", re.M)


def modules(folder: Path) -> dict[str, Path]:
    """Return the modules of a folder except ``__init__``, by their dotted names."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted names of modules and names that ``from`` imports at a file's top level."""
    for module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
        yield module
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


def import_graph(folder: Path) -> dict[str, set[str]]:
    """Return the imports among the modules of a folder."""
    known = modules(folder)
    return {name: {it for it in imports(path) if it in known} for name, path in known.items()}


def layers(graph: Mapping[str, set[str]]) -> int:
    """Return the length of the longest chain of imports. Raises ``CycleError`` for a circle."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        depth[name] = 1 + max((depth[it] for it in graph[name]), default=0)
    return max(depth.values(), default=0)


def folder_cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Return folders that import each other in a circle; an empty list if there are none.

    The root of the package is no folder in this sense: it has the public modules above everything,
    and ``errors`` below everything. Each of them counts for itself.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        here = _folder(name)
        folders[here] |= {_folder(it) for it in targets} - {here}
    try:
        list(TopologicalSorter(folders).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def _folder(module: str) -> str:
    parent = module.rpartition(".")[0]
    return module if parent == PACKAGE.name else parent


def stored_callables(folder: Path) -> list[str]:
    """Return the attributes that hold a callable, as ``file: Class.attribute``.

    These are attributes of objects and fields of classes with such an annotation, and attributes
    that get such a parameter of a method. A table of functions at module level does not count,
    because it makes no call back to an owner.
    """
    found = []
    for path in modules(folder).values():
        text = path.read_text(encoding="utf-8")
        for kind in ast.walk(ast.parse(text)) if "Callable" in text else ():
            if isinstance(kind, ast.ClassDef):
                file = path.relative_to(PACKAGE.parent).as_posix()
                found += [f"{file}: {kind.name}.{name}" for name in _callables_of(kind)]
    return sorted(found)


def _callables_of(kind: ast.ClassDef) -> Iterator[str]:
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and "Callable" in ast.unparse(node.annotation):
            yield ast.unparse(node.target)
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = (*node.args.args, *node.args.kwonlyargs)
        given = {it.arg for it in arguments if "Callable" in ast.unparse(it)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.AnnAssign):
                targets = [inner.target] if "Callable" in ast.unparse(inner.annotation) else []
            elif isinstance(inner, ast.Assign):
                used = {it.id for it in ast.walk(inner.value) if isinstance(it, ast.Name)}
                targets = list(inner.targets) if used & given else []
            else:
                continue
            yield from (it.attr for it in targets if isinstance(it, ast.Attribute))


def class_homes(*folders: Path) -> dict[str, list[str]]:
    """Return the files that define each class name of some folders.

    A leading underscore is left out: ``_Entry`` of one file and ``Entry`` of another one are hard
    to tell apart.
    """
    homes: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        for path in modules(folder).values():
            for name in CLASS.findall(path.read_text(encoding="utf-8")):
                homes[name.lstrip("_")].add(path.relative_to(PACKAGE.parent).as_posix())
    return {name: sorted(files) for name, files in sorted(homes.items())}


def double_names(*folders: Path) -> dict[str, list[str]]:
    """Return the names of classes that two files or more define, with these files."""
    return {name: files for name, files in class_homes(*folders).items() if len(files) > 1}


def twins(*folders: Path) -> list[tuple[str, str]]:
    """Return pairs of class names, ``Client...`` and ``Peer...``, that may mean the same event."""
    homes = class_homes(*folders)
    pairs = [(name, name.replace("Client", "Peer", 1)) for name in homes]
    verbs = ("Entered", "Changed", "Left")
    return [(one, two) for one, two in pairs if one != two in homes and one.endswith(verbs)]


@cache
def names_in(path: Path) -> set[str]:
    """Return the names of a file: its classes, functions, and the attributes of its methods.

    Fields of a record are left out, because it passes on values of other objects.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def squeeze(text: str) -> str:
    """Return a text with one spelling for ``SentPackets``, ``sent_packets`` and sent packets."""
    return re.sub(r"[\s_-]+", "", text).lower()


def find(terms: Mapping[str, str], folder: Path = CHANNEL) -> dict[str, Found | None]:
    """Return the file in which a reader finds each term first; None if it is in no file.

    The files are those of a folder, of ``secure``, and of the core itself. A reader looks for a
    word in names before prose. So a file with the word in its own name comes first, then the one
    with the word in most of its names (``names_in``), then the one with most occurrences. A file
    that only uses a thing often has its name in more places than the file that defines it.
    """
    core = PACKAGE / "core"
    paths = (*modules(folder).values(), *core.glob("*.py"), *core.joinpath("secure").glob("*.py"))
    files = [
        (squeeze(it.stem), list(map(squeeze, names_in(it))), squeeze(it.read_text()), it.stem)
        for it in paths
    ]
    found: dict[str, Found | None] = {}
    for term, file in terms.items():
        word = squeeze(term)
        ranks = [
            (word in stem, sum(word in name for name in names), text.count(word), name)
            for stem, names, text, name in files
        ]
        *rank, first = max(ranks)
        found[term] = Found(first, *rank, first == file) if any(rank) else None
    return found


def measure(folder: Path, terms: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of a folder; ``private_names_reached`` is that of the whole library."""
    graph = import_graph(folder)
    overruled = sum(
        path.read_text(encoding="utf-8").count("noqa: SLF001") for path in PACKAGE.rglob("*.py")
    )
    return {
        "files": len(graph),
        "lines": sum(len(path.read_text().splitlines()) for path in modules(folder).values()),
        "imports": sum(map(len, graph.values())),
        "layers": layers(graph),
        "folder_cycles": folder_cycles(graph),
        "stored_callables": stored_callables(folder),
        "double_names": double_names(folder),
        "private_names_reached": overruled,
        "terms": {term: it._asdict() if it else None for term, it in find(terms, folder).items()},
    }


def measure_whole() -> dict[str, Any]:
    """Return the figures of the library, some of them with the daemon and client programs."""
    graph = import_graph(PACKAGE)
    return {
        "files": len(graph),
        "folder_cycles": folder_cycles(graph),
        "stored_callables": stored_callables(CORE),
        "double_names": double_names(PACKAGE, SERVER, CLIENT),
        "twins": twins(PACKAGE, SERVER, CLIENT),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
def main(*, as_json: bool) -> None:
    """Print the figures."""
    measured = {"sphtp": measure_whole()} | {
        f"sphtp/core/{folder.name}": measure(folder, terms)
        for folder, terms in ((CHANNEL, TERMS), (STREAM, STREAM_TERMS), (CONTROL, {}))
    }
    if as_json:
        click.echo(json.dumps(measured))
        return
    for folder, figures in measured.items():
        click.echo(folder)
        for name, value in figures.items():
            if name != "terms":
                click.echo(f"  {name:22} {value}")
        for term, it in figures.get("terms", {}).items():
            where = "nowhere" if it is None else f"{it['file']}{'' if it['expected'] else ' ?'}"
            click.echo(f"  {term:22} {where}")


if __name__ == "__main__":
    main()
