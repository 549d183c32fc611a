"""Counts the modules of ``tests`` that know how the core is made, and not only what it does.

A test may import what users have, and of ``sphtp.core`` what stands at its border: the vocabulary
of settings, events and statistics; tables; codecs; data structures; ``Endpoint`` and the other
machines. ``BORDER`` says which module is which, and why. The rest is internals: who imports one of
those has to change with it. What has another name in ``sphtp``, ``sphtp.events`` or
``sphtp.testing`` is better imported from there.

Beside that, it names what touches a name with an underscore without an attribute that ruff would
see: imports, and names in strings.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CORE: Final = ROOT / "sphtp" / "core"
TESTS: Final = ROOT / "tests"

MOST: Final = 60
"""Modules of tests that may know internals."""

VOCABULARY: Final[Mapping[str, str]] = {
    "channel.settings": "what a user sets: ChannelSettings, Delivery, Lane",
    "channel.security": "what a user sets: Security, PeerPin, HandshakeLimits, authenticators",
    "channel.statistics": "the figures that users read",
    "channel.receipts": "Ticket and Outcome: what became of a message",
    "channel.instrument": "the interface of instruments, and what they are told",
    "control.counters": "the figures that users read",
    "control.events": "what clients and servers tell: sphtp.events",
    "control.outputs": "what control machines ask their driver to do",
    "control.settings": "what a user sets: ControlTimers, ClientLimits, ServerLimits",
    "control.vocabulary": "Reason, Command and other words of the wire",
    "stream.events": "what sources and streams tell: Loss, StreamEnd",
    "stream.settings": "what a user sets: StreamSettings",
    "stream.statistics": "the figures that users read",
    "entropy": "the protocol of what draws at random, which a driver hands in",
    "schema": "what two programs compare when they connect",
    "secure.identity": "Identity: what a user has",
    "secure.signing": "ClusterKey, ServerKey: what a user has",
}

TABLES: Final[Mapping[str, str]] = {
    "channel.lifecycle": "the table of a connection, its states and events",
    "channel.initiator": "INITIATOR, the table of who opens a handshake",
    "channel.path_mtu": "PATH_MTU, the table of RFC 8899, and the search that runs it",
    "channel.congestion.hystart": "the table of HyStart++ (RFC 9406)",
    "channel.congestion.tolerant": "the table of the loss-tolerant controller",
    "control.client_table": "CLIENT",
    "control.server_table": "SERVER",
    "fsm": "what tables are made of",
}

CODECS: Final[Mapping[str, str]] = {
    "channel.frames": "frames of data packets",
    "channel.handshake": "CONNECT, ACCEPT, REFUSE",
    "channel.noise": "GREET, WELCOME, CONFIRM",
    "channel.packet": "data packets as they come",
    "channel.path_validation": "CHALLENGE and RESPONSE",
    "channel.stateless_reset": "RESET",
    "control.client_messages": "messages of clients",
    "control.codec": "the format of control messages",
    "control.lists": "lists of records in parts",
    "control.records": "records of clients and servers",
    "control.server_messages": "messages of servers",
    "datagrams": "the front of every datagram, and rows of them",
    "messages": "messages of types: sphtp.messages",
    "packing": "msgpack",
    "payloads": "payloads in a row",
    "secure.cookie": "cookies",
    "secure.noise_framework": "the Noise protocol framework, with its published vectors",
    "secure.seal": "sealed datagrams",
    "secure.vouch": "vouched control messages",
    "stream.late_join_wire": "requests and answers of late join",
    "stream.membership": "JOIN, WELCOME and the other messages of membership",
    "stream.records": "records of messages in stream datagrams",
    "stream.sealing": "sealed stream datagrams",
    "stream.session_messages": "session messages",
    "stream.wire": "NAK, NCF, STATUS, data",
    "wire": "fields of bytes",
}

STRUCTURES: Final[Mapping[str, str]] = {
    "arrays": "NumPy's arrays as bytes",
    "channel.congestion.delivery_rate": "the estimator of delivery rates, by packets",
    "channel.reassembly": "the bytes of a message by offset",
    "channel.sent_packets": "sent packets by number",
    "channel.received_packets": "received numbers, and the timer of acks",
    "control.registry": "the ids of clients",
    "printable": "text for terminals",
    "secure": "nothing by itself",
    "serial": "serial arithmetic (RFC 1982), and buffers by sequence",
    "stream.loss_map": "what is missing, by number",
    "stream.ranges": "sets of numbers as ranges",
    "stream.retention": "history by number",
    "stream.transmission_window": "datagrams by number",
    "timers": "deadlines, and dicts that forget",
    "token_bucket": "token buckets and the pacer",
    "topics": "names of topics",
}

MACHINES: Final[Mapping[str, str]] = {
    "channel.endpoint": "Endpoint",
    "channel.connection": "Connection: what Endpoint.dial and Pair.open return",
    "control.client": "ClientMachine",
    "control.server": "ServerMachine",
    "stream.receiver": "Receiver: the transport of one subscription",
    "stream.source": "SourceTransport",
    "stream.subscription": "Subscription",
}

BORDER: Final[Mapping[str, Mapping[str, str]]] = {
    "vocabulary": VOCABULARY,
    "tables": TABLES,
    "codecs": CODECS,
    "data structures": STRUCTURES,
    "machines": MACHINES,
}


@cache
def kind_of(module: str) -> str:
    """What a module of ``sphtp.core`` is, by its name without that; messages are all one."""
    name = "messages" if module.startswith("messages.") else module
    return next((kind for kind, modules in BORDER.items() if name in modules), "internals")


@cache
def is_module(name: str) -> bool:
    """Whether ``sphtp.core`` has a module or a folder of this name."""
    path = CORE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules of ``sphtp.core`` that a module imports or imports from, without that."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (it.name for it in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def core_modules(tree: ast.Module) -> set[str]:
    """The same, without the names that are taken out of them."""
    found = set[str]()
    for name in imported(tree):
        if name.startswith("sphtp.core."):
            inner = name.removeprefix("sphtp.core.")
            found.add(inner if is_module(inner) else inner.rpartition(".")[0])
    return found - {""}


def is_private(name: str) -> bool:
    """Whether a name is for its own module or class only."""
    return name.startswith("_") and not name.endswith("__")


NAMING: Final = {"getattr", "setattr", "delattr", "hasattr", "__setattr__", "attrgetter", "object"}
OPEN: Final = {"_fields", "_replace", "_asdict", "_make", "_field_defaults"}
"""Names of NamedTuple's own interface."""


def private_touches(tree: ast.Module) -> Iterator[str]:
    """Names with an underscore that are imported, or named to ``getattr`` and such."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (it.name for it in node.names if is_private(it.name))
        elif isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            for word in node.args[:2] if name in NAMING else ():
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    last = word.value.rpartition(".")[2]
                    if is_private(last) and last not in OPEN:
                        yield word.value


def trees(folder: Path = TESTS) -> dict[str, ast.Module]:
    """The modules of a folder by their path."""
    paths = sorted(folder.rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def users_of_internals(modules: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """The modules that import internals of the core, and which."""
    found = {
        path: sorted(it for it in core_modules(tree) if kind_of(it) == "internals")
        for path, tree in modules.items()
    }
    return {path: names for path, names in found.items() if names}


def touches(modules: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """The modules that touch private names, and which."""
    found = {path: list(private_touches(tree)) for path, tree in modules.items()}
    return {path: names for path, names in found.items() if names}


def main() -> int:
    """Print who knows what; the status is that of a check."""
    modules = trees()
    users, private = users_of_internals(modules), touches(modules)
    importers = defaultdict[str, set[str]](set)
    for path, tree in modules.items():
        for name in core_modules(tree):
            importers[kind_of(name)].add(path)
    for path, names in users.items():
        print(f"{path}: {', '.join(names)}")
    for path, names in private.items():
        print(f"{path}: private {', '.join(names)}")
    for kind, paths in importers.items():
        print(f"{len(paths)} modules of tests import {kind}")
    print(f"{len(users)} of {len(modules)} modules of tests know internals, at most {MOST} may")
    return int(len(users) > MOST or bool(private))


if __name__ == "__main__":
    sys.exit(main())
