"""Counts the Python calls and the files that an announcement passes, in a client and in a server.

The client's way begins with the first heartbeat of a server, one of three, and ends with the bytes
of the announcement; the server's begins with these bytes and ends when the answer is noted. Each is
one call of ``handle_message``: nothing is sent, so the figures are the same every time. Calls into
the library are counted, those of other packages and of the interpreter are not.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

import sphtp
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.settings import ControlTimers

LIBRARY: Final = Path(sphtp.__file__).parent
MEMBERS: Final = 3


def traced(work: Callable[[], object]) -> list[str]:
    """Return the library calls of some work in order, as ``file:function``."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(LIBRARY):
                name = path.relative_to(LIBRARY).with_suffix("")
                calls.append(f"{name}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def _server(number: int) -> ServerMachine:
    machine = ServerMachine(
        random.Random(number),
        ControlTimers(),
        secrets=random.Random(number),
        address=_address(number),
        new_cluster=True,
    )
    machine.handle_start(0.0)
    return machine


def _address(number: int) -> ServerAddress:
    return ServerAddress.parse(f"tcp://127.0.0.1:{8764 + 2 * number}")


def _last_message(machine: ServerMachine) -> bytes:
    """Return the last message for clients of what a server has to send."""
    data = b""
    while (outgoing := machine.poll_transmit()) is not None:
        data = outgoing.data
    return data


def _announce() -> dict[str, list[str]]:
    servers = [_server(number) for number in range(MEMBERS)]
    for server in servers:
        heartbeat = _last_message(server)
        for other in servers:
            if other is not server:
                other.handle_message(0.1, heartbeat)
    first = servers[0]
    first.handle_timeout(1.2)
    heartbeat = _last_message(first)
    client = ClientMachine(
        random.Random(1),
        ControlTimers(),
        secrets=random.Random(1),
        servers=[_address(0)],
        candidates=[Candidate("192.0.2.1", 5000)],
        key=bytes(range(32)),
    )
    client.handle_start(1.3)
    in_client = traced(lambda: client.handle_message(1.3, heartbeat, 1))
    announcement = client.poll_transmit()
    assert announcement is not None
    in_server = traced(lambda: first.handle_message(1.4, announcement, 1))
    return {"in the client": in_client, "in the server": in_server}


@click.command()
@click.option("--calls", is_flag=True, help="List each call, and not only the files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def main(*, calls: bool, as_json: bool) -> None:
    """Count the calls and files that an announcement passes on its way out and in."""
    _announce()  # what is looked up once in a process is not counted
    ways = _announce()
    if as_json:
        document = {
            way: {"calls": len(passed), "files": len(_files(passed)), "list": passed}
            for way, passed in ways.items()
        }
        click.echo(json.dumps(document, indent=2))
        return
    for way, passed in ways.items():
        files = _files(passed)
        entered = sum(1 for _ in groupby(_paths(passed)))
        click.echo(f"{way}: {len(passed)} calls in {len(files)} files, entered {entered} times")
        for line in passed if calls else _entries(passed):
            click.echo(f"  {line}")


def _paths(passed: list[str]) -> list[str]:
    return [call.partition(":")[0] for call in passed]


def _files(passed: list[str]) -> list[str]:
    return list(dict.fromkeys(_paths(passed)))


def _entries(passed: list[str]) -> list[str]:
    """Each file, with how often it is entered from another one."""
    counts = Counter(path for path, _ in groupby(_paths(passed)))
    return [f"{counts[path]:3} {path}" for path in _files(passed)]


if __name__ == "__main__":
    main()
