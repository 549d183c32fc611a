"""Measure the cost of entering clients for a client that watches all, and one that watches ten.

A server has thousands of registered clients, which are as light as possible: one publisher
announces them all. Two real clients, each in a process of its own, run beside them: one watches
everybody, the other a group of ten. Then others enter one after the other, and both clients report
the messages that they received and the CPU that they used; for the same time before, nothing
happens. A bare subscriber counts the messages that arrive at each client's socket: PUB/SUB sends
everything to everybody, and NNG filters it.
"""

import json
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from subprocess import DEVNULL, PIPE, Popen
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final

import click
import trio

import sphtp
from sphtp.core.control.client_messages import Announce, ClientData
from sphtp.shell.bus_dialing import SubSocket

GROUP: Final = "fluid"
MEMBERS: Final = 10
PUB, SUB = 32, 33
FRONT: Final = struct.Struct(">Q")
Report = dict[str, Any]


class BareSocket:
    """One connection of the bus: SP over TCP, a greeting each way, then messages with lengths."""

    def __init__(self, port: int, protocol: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"\0SP\0" + struct.pack(">HH", protocol, 0))
        self._take(8)
        self.bytes = self.messages = 0

    def publish(self, *messages: bytes) -> None:
        """Send messages."""
        self._socket.sendall(b"".join(FRONT.pack(len(data)) + data for data in messages))

    def count(self) -> None:
        """Count the messages that arrive, until the connection ends."""
        while True:
            (size,) = FRONT.unpack(self._take(FRONT.size))
            self._take(size)
            self.bytes += size
            self.messages += 1

    def _take(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise SystemExit
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


async def _watch(port: int, sub: int, groups: list[str] | None) -> None:
    """Run one client; at each line of input print its received messages, its peers and its CPU."""
    received = 0
    whole = SubSocket.receive_arrivals

    async def counted(self: Any, limit: int = 256) -> Any:
        nonlocal received
        batch = await whole(self, limit)
        received += len(batch)
        return batch

    SubSocket.receive_arrivals = counted  # type: ignore[method-assign]
    async with sphtp.open_client([f"tcp://127.0.0.1:{port},{sub}"], presence=groups) as client:
        while await trio.to_thread.run_sync(sys.stdin.readline):
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu = used.ru_utime + used.ru_stime
            click.echo(json.dumps({"messages": received, "peers": len(client.peers), "cpu": cpu}))
            sys.stdout.flush()


def _ask(process: Popen[str]) -> Report:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    report: Report = json.loads(process.stdout.readline())
    return report


@contextmanager
def _child(*command: str) -> Iterator[Popen[str]]:
    process = Popen([sys.executable, *command], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def _connect(port: int, protocol: int) -> BareSocket:
    until = monotonic() + 20
    while True:
        try:
            return BareSocket(port, protocol)
        except OSError:
            if monotonic() > until:
                raise
            sleep(0.1)


def _measure(others: int, entering: int, seconds: float) -> Report:
    port, sub = _free_port(), _free_port()
    with ExitStack() as stack:
        ports = f"--pub-port={port}", f"--sub-port={sub}"
        stack.enter_context(_child("-m", "sphtp", "server", *ports, "--new", "--expiry=1000"))
        publisher, line = _connect(sub, PUB), _connect(port, SUB)
        Thread(target=line.count, daemon=True).start()
        sleep(0.5)
        ids = iter(range(3, 1 << 20, 2))
        for done in range(0, others, 100):
            publisher.publish(*(Announce(next(ids), 5).encode() for _ in range(100)))
            sleep(0.1 if done else 0.2)
        members = [next(ids) for _ in range(MEMBERS)]
        publisher.publish(*(Announce(number, 5).encode() for number in members))
        # A server drops the data of a client that it has not registered yet.
        sleep(0.5)
        publisher.publish(
            *(ClientData(number, 5, 1, b"", (), (GROUP,)).encode() for number in members)
        )
        watchers = {
            "watches all": stack.enter_context(_child(__file__, f"--port={port}", f"--sub={sub}")),
            "watches ten": stack.enter_context(
                _child(__file__, f"--port={port}", f"--sub={sub}", "--group")
            ),
        }
        wanted = {"watches all": others + MEMBERS + 1, "watches ten": MEMBERS}
        until = monotonic() + 60
        while any(_ask(watchers[name])["peers"] < wanted[name] for name in watchers):
            if monotonic() > until:
                raise click.ClickException("the clients do not know their peers after 60 s")
            sleep(0.2)
        sleep(5)

        def enter() -> None:
            for _ in range(entering):
                publisher.publish(Announce(next(ids), 5).encode())
                sleep(seconds / entering)

        def phase(action: Callable[[], None]) -> Report:
            before = {name: _ask(watcher) for name, watcher in watchers.items()}
            began = line.bytes, line.messages
            action()
            after = {name: _ask(watcher) for name, watcher in watchers.items()}
            used = {
                name: {
                    "messages": after[name]["messages"] - before[name]["messages"],
                    "cpu_ms": round(1000 * (after[name]["cpu"] - before[name]["cpu"]), 1),
                    "peers": after[name]["peers"],
                }
                for name in watchers
            }
            at_socket = {"bytes": line.bytes - began[0], "messages": line.messages - began[1]}
            return {**used, "at each socket": at_socket}

        return {"quiet": phase(lambda: sleep(seconds)), f"{entering} enter": phase(enter)}


@click.command()
@click.option("--others", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--entering", type=click.IntRange(1), default=100, show_default=True)
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Of each phase.")
@click.option("--port", type=int, hidden=True)
@click.option("--sub", type=int, default=0, hidden=True)
@click.option("--group", is_flag=True, hidden=True)
def main(
    others: int, entering: int, seconds: float, port: int | None, sub: int, *, group: bool
) -> None:
    """Measure the cost of entering clients for one that watches all, and one that watches ten."""
    if port is not None:
        trio.run(_watch, port, sub, [GROUP] if group else None)
    else:
        click.echo(json.dumps(_measure(others, entering, seconds), indent=2))


if __name__ == "__main__":
    main()
