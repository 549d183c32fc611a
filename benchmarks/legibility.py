"""Measures how well an engineer finds his way in ``sphtp``.

Of the whole library: how many files there are, whether folders import each other in a circle, and
which callables the core stores. Of library, daemon and client programs: which class names mean two
things or are two names for one. Of each plane also how many imports and layers its import graph
has; of channel and streams for each term of the field the file that bears it first, which should be
where the thing is.
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
    # What RFC 9000, RFC 9002 and RFC 6479 call it, and the file where the thing itself is.
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
    # What Ultra Messaging calls it.
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
    """The file that bears a term first: by its own name, by names in it, by words."""

    file: str
    in_file_name: bool
    in_names: int
    words: int
    expected: bool


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file, made once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(folder: Path) -> dict[str, Path]:
    """The modules of a folder, by their dotted names."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports when it runs, by their dotted names."""
    for node in parse(path).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(folder: Path) -> dict[str, set[str]]:
    """The imports among the modules of a folder."""
    known = modules(folder)
    return {name: {it for it in imports(path) if it in known} for name, path in known.items()}


def layers(graph: Mapping[str, set[str]]) -> int:
    """The longest chain of imports. Raises ``CycleError`` when there is a circle."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        depth[name] = 1 + max((depth[it] for it in graph[name]), default=0)
    return max(depth.values(), default=0)


def folder_cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Folders that import each other in a circle.

    The root of the package is no folder in this sense: public modules above everything lie there,
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

    These are the attributes of objects and the fields of classes, by their annotation, and what an
    object keeps of a parameter that is one. A table of plain functions at module level calls nobody
    back, and does not count.
    """
    found = []
    for path in modules(folder).values():
        for kind in ast.walk(parse(path)):
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
    """The files that define each class name of some folders.

    A leading underscore changes no meaning: where ``_Entry`` stands beside an ``Entry`` of another
    file, a reader has to ask which is meant.
    """
    homes: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        for path in modules(folder).values():
            for node in parse(path).body:
                if isinstance(node, ast.ClassDef):
                    name = node.name.lstrip("_")
                    homes[name].add(path.relative_to(PACKAGE.parent).as_posix())
    return {name: sorted(files) for name, files in sorted(homes.items())}


def double_names(*folders: Path) -> dict[str, list[str]]:
    """Names that two classes share, with their files."""
    return {name: files for name, files in class_homes(*folders).items() if len(files) > 1}


def twins(*folders: Path) -> list[tuple[str, str]]:
    """Events that have two names: a client's, and the same of a peer, which is a client."""
    homes = class_homes(*folders)
    pairs = [(name, name.replace("Client", "Peer", 1)) for name in homes]
    verbs = ("Entered", "Changed", "Left")
    return [(one, two) for one, two in pairs if one != two in homes and one.endswith(verbs)]


def names_in(path: Path) -> set[str]:
    """Return the names of a file: its classes, functions, and the attributes of its methods.

    Fields of a record are left out: it hands on what others know.
    """
    names = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def squeeze(text: str) -> str:
    """Text in which a term is spelled one way: ``SentPackets``, ``sent_packets``, sent packets."""
    return re.sub(r"[\s_-]+", "", text).lower()


def find(terms: Mapping[str, str], folder: Path = CHANNEL) -> dict[str, Found | None]:
    """Find the file of a folder, or of the leaves it stands on, that bears each term first.

    Who looks for a word reads names before prose: so a file whose own name bears it comes first,
    then the one with most names that do (``names_in``), then the one with most words. A file that
    merely uses what another one defines says its name more often than that one does.
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
    """The figures of a folder."""
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
    """The figures of the library, and of daemon and client programs where they concern these."""
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
