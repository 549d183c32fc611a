"""Count the modules of ``tests`` that depend on internals of the core.

A test may import the public names, and the modules at the border of ``sphtp.core``: the vocabulary
of settings, events and statistics; tables; codecs; data structures; ``Endpoint`` and the other
machines. ``BORDER`` lists them by kind. The other modules are internals: a test that imports one
has to change with it. A name that is also in ``sphtp``, ``sphtp.events`` or ``sphtp.testing`` is
better imported from there.

The script also lists uses of names with an underscore that ruff does not see: imports, and names in
strings.
"""

import re
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
"""The most modules of tests that may know internals."""

VOCABULARY: Final[Mapping[str, str]] = {
    "channel.settings": "settings of users: ChannelSettings, Delivery, Lane",
    "channel.security": "settings of users: Security, PeerPin, HandshakeLimits, authenticators",
    "channel.statistics": "the figures that users read",
    "channel.receipts": "Ticket and Outcome: the outcome of a message",
    "channel.instrument": "the interface of instruments, and their events",
    "control.counters": "the figures that users read",
    "control.outputs": "events of clients and servers, and commands of their machines to the bus",
    "control.settings": "settings of users: ControlTimers, ClientLimits, ServerLimits",
    "control.vocabulary": "Reason, Command and other words of the wire",
    "stream.events": "outputs of sources and streams: Loss, StreamEnd",
    "stream.settings": "settings of users: StreamSettings",
    "stream.statistics": "the figures that users read",
    "entropy": "the protocols of random generators, which a driver passes",
    "schema": "the schemas that two programs compare when they connect",
    "secure.identity": "Identity, an object of users",
    "secure.signing": "ClusterKey and ServerKey, objects of users",
}

TABLES: Final[Mapping[str, str]] = {
    "channel.lifecycle": "the table of a connection, its states and events",
    "channel.initiator": "INITIATOR, the table of the side that opens a handshake",
    "channel.path_mtu": "PATH_MTU, the table of RFC 8899, and the search that runs it",
    "channel.congestion.hystart": "the table of HyStart++ (RFC 9406)",
    "channel.congestion.tolerant": "the table of the loss-tolerant controller",
    "control.client_table": "CLIENT",
    "control.server_table": "SERVER",
    "fsm": "the parts of tables",
}

CODECS: Final[Mapping[str, str]] = {
    "channel.frames": "frames of data packets",
    "channel.handshake": "CONNECT, ACCEPT, REFUSE",
    "channel.noise": "GREET, WELCOME, CONFIRM",
    "channel.path_validation": "CHALLENGE and RESPONSE",
    "channel.stateless_reset": "RESET",
    "control.announcement": "announcements of servers for discovery",
    "control.client_messages": "messages of clients",
    "control.codec": "the format of control messages",
    "control.lists": "lists of records in parts",
    "control.records": "records of clients and servers",
    "control.server_messages": "messages of servers",
    "datagrams": "the front of every datagram, and rows of them",
    "group": "nothing by itself",
    "group.messages": "messages between members of a group",
    "messages": "messages of types: sphtp.messages",
    "packing": "msgpack",
    "wire": "fields of the wire, and payloads in a row",
    "requests": "nothing by itself",
    "requests.wire": "messages of requests",
    "secure.noise_framework": "the Noise protocol framework, with its published vectors",
    "secure.seal": "sealed datagrams",
    "secure.vouch": "vouched control messages",
    "stream.late_join_wire": "requests and answers of late join",
    "stream.membership": "JOIN, WELCOME and the other messages of membership",
    "stream.records": "records of messages in stream datagrams",
    "stream.sealing": "sealed stream datagrams",
    "stream.wire": "NAK, NCF, STATUS, data",
}

STRUCTURES: Final[Mapping[str, str]] = {
    "arrays": "NumPy's arrays as bytes",
    "channel.congestion.delivery_rate": "the estimator of delivery rates, by packets",
    "channel.reassembly": "the bytes of a message by offset",
    "channel.sent_packets": "sent packets by number",
    "channel.received_packets": "received numbers, and the timer of acks",
    "control.registry": "the ids of clients",
    "group.seats": "members of a group, with the steps that they take part in",
    "printable": "text for terminals",
    "secure": "nothing by itself",
    "serial": "serial arithmetic (RFC 1982), and buffers by sequence",
    "stream.loss_map": "missing datagrams by number",
    "stream.ranges": "sets of numbers as ranges",
    "stream.retention": "history by number",
    "stream.transmission_window": "datagrams by number",
    "timers": "deadlines, and dicts that forget",
    "token_bucket": "token buckets and the pacer",
    "topics": "names of topics",
    "channel.shared_memory": "the ledger of a segment, and its descriptors",
    "clock": "bounds on the offset of a clock, and their intersection",
}

MACHINES: Final[Mapping[str, str]] = {
    "channel.endpoint": "Endpoint",
    "channel.connection": "Connection: what Endpoint.dial and Pair.open return",
    "control.client": "ClientMachine",
    "control.server": "ServerMachine",
    "group.machine": "GroupMachine",
    "nat": "NatTraversal",
    "requests.table": "RequestTable: requests of both sides, and the table of their channel",
    "stream.receiver": "Receiver: the transport of one subscription",
    "stream.source": "SourceTransport",
    "stream.subscription": "SubscriptionMachine",
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
    """Return the kind of a module of ``sphtp.core``; all modules of messages are of one kind."""
    name = "messages" if module.startswith("messages.") else module
    return next((kind for kind, modules in BORDER.items() if name in modules), "internals")


@cache
def is_module(name: str) -> bool:
    """Return True if ``sphtp.core`` has a module or a folder of this name."""
    path = CORE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


IMPORT: Final = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
PLAIN: Final = re.compile(r"^\s*import ([\w.]+)", re.MULTILINE)
NAMED: Final = re.compile(
    r"(?:getattr|setattr|delattr|hasattr|attrgetter)\([^()]*?[\"']([\w.]+)[\"']"
)
OPEN: Final = {"_fields", "_replace", "_asdict", "_make"}
"""Names of NamedTuple's own interface."""


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules that a text imports from, each with a name, empty for the whole module."""
    yield from ((name, "") for name in PLAIN.findall(text))
    for module, names in IMPORT.findall(text):
        yield from (
            (module, word.split()[0]) for word in names.strip("()").split(",") if word.split()
        )


def core_modules(text: str) -> set[str]:
    """Return the modules of ``sphtp.core`` in the imports of a text, without that prefix."""
    found = set[str]()
    for module, name in imported(text):
        inner = module.removeprefix("sphtp.core").removeprefix(".")
        if module.startswith("sphtp.core"):
            whole = f"{inner}.{name}".strip(".")
            found.add(whole if is_module(whole) else inner)
    return found - {""}


def private_names(text: str) -> list[str]:
    """Return the private names that a text imports, or uses in ``getattr`` and such."""
    names = [*(name for _, name in imported(text)), *NAMED.findall(text)]
    last = {name: name.rpartition(".")[2] for name in names}
    return [
        name
        for name in names
        if last[name].startswith("_") and not last[name].endswith("__") and last[name] not in OPEN
    ]


def texts(folder: Path = TESTS) -> dict[str, str]:
    """Return the texts of the modules of a folder, by their path."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(folder.rglob("*.py"))}


def users_of_internals(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the modules that import internals of the core, each with these internals."""
    found = {
        path: sorted(it for it in core_modules(text) if kind_of(it) == "internals")
        for path, text in modules.items()
    }
    return {path: names for path, names in found.items() if names}


def touches(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the modules that use private names, each with these names."""
    found = {path: private_names(text) for path, text in modules.items()}
    return {path: names for path, names in found.items() if names}


def main() -> int:
    """Print the uses of internals and private names; return the exit code.

    It is 1 if more than ``MOST`` modules use internals, or if any uses a private name; else 0.
    """
    modules = texts()
    users, private = users_of_internals(modules), touches(modules)
    importers = defaultdict[str, set[str]](set)
    for path, text in modules.items():
        for name in core_modules(text):
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
