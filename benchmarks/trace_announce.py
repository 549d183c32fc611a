"""Count the Python calls of an announcement, and the times that they enter each file.

The announcement's way in the client begins with the first heartbeat of a server, one of three, and
ends with the bytes of the announcement; its way in the server begins with these bytes and ends when
the answer is queued. The ways of an acknowledgement and of heartbeats follow. Each is one call of
``handle_message`` with the number of a connection: nothing is sent, so the figures are the same
every time. Calls into the library are counted, those of other packages and of the interpreter are
not. A file is entered by a call that comes after one into another file.
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
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Command

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


def _sent(machine: ServerMachine) -> dict[int, bytes]:
    """Return the last message of each command that a server has to send."""
    messages: dict[int, bytes] = {}
    while (outgoing := machine.poll_transmit()) is not None:
        messages[decode_message_untrusted(outgoing.data).command] = outgoing.data
    return messages


def trace() -> dict[str, list[str]]:
    """Return the calls of each way."""
    servers = [_server(number) for number in range(MEMBERS)]
    for server in servers:
        heartbeat = _sent(server)[Command.HEARTBEAT]
        for other in servers:
            if other is not server:
                other.handle_message(0.1, heartbeat)
    for server in servers:
        server.handle_timeout(1.2)
    first = servers[0]
    heartbeats = [_sent(server)[Command.HEARTBEAT] for server in servers]
    client = ClientMachine(
        random.Random(1),
        ControlTimers(),
        secrets=random.Random(1),
        servers=[_address(0)],
        candidates=[Candidate("192.0.2.1", 5000)],
        key=bytes(range(32)),
    )
    client.handle_start(1.3)
    ways: dict[str, list[str]] = {}

    def follow(way: str, work: Callable[[], object]) -> None:
        ways[way] = traced(work)

    follow(
        "announcement in the client",
        lambda: client.handle_message(1.3, heartbeats[0], 0),
    )
    announcement = client.poll_transmit()
    assert announcement is not None
    for connection in range(1, MEMBERS):
        client.handle_message(1.3, heartbeats[connection], connection)
    follow("announcement in the server", lambda: first.handle_message(1.4, announcement, 1))
    for server in servers[1:]:
        server.handle_message(1.4, announcement, 1)
    acks = [_sent(server)[Command.ACK] for server in servers]
    follow("acknowledgement in the client", lambda: client.handle_message(1.5, acks[0], 0))
    for connection in range(1, MEMBERS):
        client.handle_message(1.5, acks[connection], connection)
    assert client.state is ClientState.ESTABLISHED
    while (data := client.poll_transmit()) is not None:
        if decode_message_untrusted(data).command == Command.HEARTBEAT:
            alive = data
    follow("heartbeat of the client in the server", lambda: first.handle_message(1.6, alive, 1))
    first.handle_timeout(2.4)
    again = _sent(first)[Command.HEARTBEAT]
    follow("heartbeat of the server in the client", lambda: client.handle_message(2.4, again, 0))
    return ways


@click.command()
@click.option("--calls", is_flag=True, help="List each call, and not only the files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def main(*, calls: bool, as_json: bool) -> None:
    """Count the calls of an announcement, of its answer and of heartbeats, and their files."""
    trace()  # what is looked up once in a process is not counted
    ways = trace()
    if as_json:
        document = {
            way: {"calls": len(passed), "entries": entries(passed), "list": passed}
            for way, passed in ways.items()
        }
        click.echo(json.dumps(document, indent=2))
        return
    for way, passed in ways.items():
        files = entries(passed)
        click.echo(
            f"{way}: {len(passed)} calls in {len(files)} files, entered {sum(files.values())} "
            f"times, one of them at most {max(files.values())} times"
        )
        lines = passed if calls else [f"{count:3} {path}" for path, count in files.items()]
        for line in lines:
            click.echo(f"  {line}")


def entries(passed: list[str]) -> dict[str, int]:
    """Return the times that each file is entered from another one, in the order of the first."""
    return dict(Counter(path for path, _ in groupby(call.partition(":")[0] for call in passed)))


if __name__ == "__main__":
    main()
