"""Measures how well an engineer finds his way in ``sphtp/core/channel``.

Five figures: how many files there are; how many layers their import graph has, and whether folders
import each other in a circle; how many stored callables; which class names mean two things; and for
each term of the field, the file that speaks most of it. A term is found when that file bears its
name, or when a class or function that bears it stands there.
"""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

import click

LIBRARY: Final = Path(__file__).resolve().parents[1] / "sphtp"
CHANNEL: Final = LIBRARY / "core" / "channel"

TERMS: Final[Mapping[str, str]] = {
    # What RFC 9000, RFC 9002 and RFC 6479 call it: the words that a file's name may have.
    "retransmit": "send_queue sent_packets loss_detection send_side",
    "loss detection": "loss_detection",
    "sent packet": "sent_packets",
    "packet number": "received_packets sent_packets",
    "token bucket": "token_bucket path",
    "path validation": "path_validation",
    "stateless reset": "stateless_reset",
    "amplification": "endpoint noise handshake path_validation stateless_reset",
    "idle timeout": "lifecycle connection",
    "persistent congestion": "loss_detection path controller",
    "head-of-line": "send_queue receive_queue",
    "app-limited": "delivery_rate path",
    "send window": "flow_control",
    "anti-replay": "noise protection",
    "scheduler": "send_queue",
    "in flight": "loss_detection",
    "spurious": "loss_detection new_reno",
    "eliciting": "sent_packets received_packets frames",
    "probe timeout": "loss_detection",
    "replay": "noise protection",
    "reassembly": "reassembly",
    "handshake": "handshake noise",
}


class Found(NamedTuple):
    """Where a term stands most often."""

    file: str
    times: int
    expected: bool


def modules(folder: Path) -> dict[str, Path]:
    """The modules of a folder, by their dotted names."""
    return {
        ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports when it runs, by their dotted names."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(folder: Path) -> dict[str, set[str]]:
    """Which module of a folder imports which others of it."""
    known = modules(folder)
    return {name: {it for it in imports(path) if it in known} for name, path in known.items()}


def layers(graph: Mapping[str, set[str]]) -> int:
    """The longest chain of imports. Raises ``CycleError`` when there is a circle."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        depth[name] = 1 + max((depth[it] for it in graph[name]), default=0)
    return max(depth.values(), default=0)


def folder_cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Folders that import each other in a circle."""
    folders: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        here = name.rpartition(".")[0]
        folders[here] |= {it.rpartition(".")[0] for it in targets} - {here}
    try:
        list(TopologicalSorter(folders).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def stored_callables(folder: Path) -> list[str]:
    """Attributes and fields that hold a callable, as ``file:line``."""
    found = []
    for path in modules(folder).values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            stores = isinstance(node, ast.AnnAssign) and "Callable" in ast.unparse(node.annotation)
            takes = (
                isinstance(node, ast.FunctionDef)
                and node.name == "__init__"
                and any("Callable" in ast.unparse(it) for it in node.args.args if it.annotation)
            )
            if stores or takes:
                found.append(f"{path.relative_to(LIBRARY.parent)}:{node.lineno}")
    return found


def double_names(folder: Path) -> dict[str, list[str]]:
    """Names that two classes of a folder share, with their files."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in modules(folder).values():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(LIBRARY)))
    return {name: files for name, files in homes.items() if len(files) > 1}


def find(term: str, files: str) -> Found | None:
    """Find the file of the channel, or leaf of the core, that speaks most of a term."""
    spelled = re.compile(r"[\s_-]*".join(map(re.escape, re.split(r"[\s_-]", term))), re.IGNORECASE)
    times: Counter[str] = Counter()
    for path in (*modules(CHANNEL).values(), *LIBRARY.joinpath("core").glob("*.py")):
        # A name counts most: of the file, of a class, of a function.
        text = path.read_text(encoding="utf-8")
        weight = 100 * bool(spelled.search(path.stem)) + len(spelled.findall(text))
        if weight:
            times[path.stem] += weight
    if not times:
        return None
    file, number = times.most_common(1)[0]
    return Found(file, number, file in files.split())


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
def main(*, as_json: bool) -> None:
    """Print the figures."""
    graph = import_graph(CHANNEL)
    found = {term: find(term, files) for term, files in TERMS.items()}
    overruled = sum(
        path.read_text(encoding="utf-8").count("noqa: SLF001") for path in LIBRARY.rglob("*.py")
    )
    figures = {
        "files": len(graph),
        "lines": sum(len(path.read_text().splitlines()) for path in modules(CHANNEL).values()),
        "layers": layers(graph),
        "folder_cycles": folder_cycles(graph),
        "stored_callables": stored_callables(CHANNEL),
        "double_names": double_names(CHANNEL),
        "private_names_reached": overruled,
        "terms": {term: it._asdict() if it else None for term, it in found.items()},
    }
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        if name != "terms":
            click.echo(f"{name:22} {value}")
    for term, it in found.items():
        where = "nowhere" if it is None else f"{it.file} ({it.times}){'' if it.expected else ' ?'}"
        click.echo(f"{term:22} {where}")


if __name__ == "__main__":
    main()
