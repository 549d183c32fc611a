"""Measure the core as plain Python and compiled, in turns: processor time for each message.

Needs `make compiled`. Both sides of a channel are in one process, so that a figure is the time of
sender, receiver and Trio together, and other programs on the machine hardly matter. The core alone
runs without sockets and Trio: each endpoint gets the datagrams that the other one sends.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from time import process_time
from typing import Final

import click
import trio

import sphtp
from sphtp.core.channel import connection
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).parents[1]
PYTHONS: Final = {"plain": ".venv/bin/python", "compiled": ".venv-compiled/bin/python"}
SMALL, LARGE = bytes(64), bytes(65_536)
WIDE: Final = ChannelSettings(shared_memory=0)
NARROW: Final = ChannelSettings(max_datagram=1200, shared_memory=0)
LONE, TRIPS, SMALLS, LARGES = 600, 1500, 100_000, 150
PAUSE: Final = 0.002
DEADLINE: Final = 120.0

PAGE: Final = """\
# The core compiled

Written by `benchmarks/compiled.py --markdown FILE`; not edited by hand. `make compiled` installs
the core compiled with mypyc into `.venv-compiled`. This page compares it with the plain core, which
is the default. The two take turns in {rounds} rounds; a figure is the least of them, because other
programs on the machine can only increase it. {machine}, Python {python}.

A figure is processor time for each message or round trip: that of the sender, the receiver and Trio
together, in one process. So it includes Trio and the system calls, which no compiler makes faster.
The rows of the core alone have no sockets and no Trio. Shared memory is off, so that all messages
go in packets. A pause of 2 ms follows each lone message. Messages have 64 bytes unless their size
is given.

{table}
"""

Use = Callable[[sphtp.Channel, sphtp.Channel], Awaitable[int]]


# Whole: two nodes, their sockets, and Trio.


async def _lone(left: sphtp.Channel, right: sphtp.Channel) -> int:
    for _ in range(LONE):
        await left.send(SMALL)
        await right.receive()
        await trio.sleep(PAUSE)
    return LONE


async def _round_trips(left: sphtp.Channel, right: sphtp.Channel) -> int:
    for _ in range(TRIPS):
        await left.send(SMALL)
        await right.send(await right.receive())
        await left.receive()
    return TRIPS


async def _flow(left: sphtp.Channel, right: sphtp.Channel, payload: bytes, number: int) -> int:
    async def read() -> None:
        for _ in range(number):
            await right.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await left.send_many([payload] * number)
    return number


async def _smalls(left: sphtp.Channel, right: sphtp.Channel) -> int:
    return await _flow(left, right, SMALL, SMALLS)


async def _larges(left: sphtp.Channel, right: sphtp.Channel) -> int:
    return await _flow(left, right, LARGE, LARGES)


async def _measured(use: Use, settings: ChannelSettings, *, is_sealed: bool) -> float:
    """Return the microseconds of processor time for each message, after as many uncounted ones."""
    security = sphtp.security.Security() if is_sealed else None
    with trio.fail_after(DEADLINE):
        async with (
            sphtp.open_node(HOST, config=sphtp.Config(channel=settings, security=security)) as near,
            sphtp.open_node(HOST, config=sphtp.Config(channel=settings, security=security)) as far,
            near.open_channel(*far.address) as left,
            await far.accept() as right,
        ):
            await use(left, right)
            before = process_time()
            number = await use(left, right)
            return (process_time() - before) / number * 1e6


# The core alone


class Line:
    """Two endpoints in the clear, each of which gets the datagrams that the other one sends."""

    def __init__(self, settings: ChannelSettings) -> None:
        self.now = 0.0
        self._left = Endpoint(Random(1), settings, 1)
        self._right = Endpoint(Random(2), settings, 3)
        ends: tuple[Address, Address] = (("10.0.0.1", 1), ("10.0.0.2", 2))
        self._ways = (
            (self._left, self._right, ends[0]),
            (self._right, self._left, ends[1]),
        )
        self.left = self._left.dial(self.now, [ends[1]])
        self.settle()
        answered = self._right.poll_incoming()
        assert answered is not None
        self.right = answered
        self.settle()

    def settle(self) -> None:
        """Pass datagrams on until none is left."""
        is_moving = True
        while is_moving:
            is_moving = False
            self.now += 1e-4
            for source, destination, address in self._ways:
                source.handle_timeout(self.now)
                while (sent := source.poll_transmit(self.now)) is not None:
                    destination.handle_datagrams_untrusted(self.now, sent._replace(address=address))
                    is_moving = True
                while source.poll_active() is not None:
                    pass

    def pass_on(self, source: Connection, destination: Connection) -> None:
        """Send a message, and receive it."""
        source.port.send_many([SMALL])
        self.touch(source)
        self.settle()
        assert destination.port.receive_many(1) == [SMALL]
        self.touch(destination)

    def touch(self, end: Connection) -> None:
        """Mark a connection ready to be polled, after a command to it."""
        (self._left if end is self.left else self._right).touch(end)


def _core_trips() -> float:
    line, before = Line(WIDE), 0.0
    for number in range(2 * TRIPS):
        if number == TRIPS:
            before = process_time()
        line.pass_on(line.left, line.right)
        line.pass_on(line.right, line.left)
    return (process_time() - before) / TRIPS * 1e6


WHOLE: Final[Mapping[str, tuple[Use, ChannelSettings]]] = {
    "a lone message": (_lone, WIDE),
    "a round trip": (_round_trips, WIDE),
    "one of many messages, packets of 1200 bytes": (_smalls, NARROW),
    "a message of 64 KiB, packets of 1200 bytes": (_larges, NARROW),
}


def _measure() -> dict[str, float]:
    figures = {"a round trip, the core alone": _core_trips()}
    for how, is_sealed in (("in the clear", False), ("sealed", True)):
        for name, (use, settings) in WHOLE.items():
            spent = trio.run(lambda u=use, s=settings, k=is_sealed: _measured(u, s, is_sealed=k))
            figures[f"{name}, {how}"] = spent
    return figures


def _run(python: Path) -> dict[str, float]:
    command = [str(python), __file__, "--measure"]
    told = subprocess.run(command, env={**os.environ, "PYTHONSAFEPATH": "1"}, check=True,
                          stdout=subprocess.PIPE, timeout=DEADLINE).stdout  # fmt: skip
    document = json.loads(told)
    if document.pop("core").endswith(".so") is not (".venv-compiled" in command[0]):
        raise click.ClickException(f"{python} has the other core")
    return {name: float(figure) for name, figure in document.items()}


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Write a page.")
@click.option("--measure", is_flag=True, hidden=True)
def main(rounds: int, markdown: Path | None, *, measure: bool) -> None:
    """Compare the plain core with the compiled one; a figure is the least of the rounds."""
    if measure:
        click.echo(json.dumps({"core": connection.__file__, **_measure()}))
        return
    pythons = {name: ROOT / path for name, path in PYTHONS.items()}
    missing = [str(path) for path in pythons.values() if not path.exists()]
    if missing:
        raise click.ClickException(f"{', '.join(missing)} is missing: run `make compiled` first")
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for number in range(rounds):
        # Each round begins with the other one.
        for name in sorted(pythons, reverse=bool(number % 2)):
            taken[name].append(_run(pythons[name]))
            click.echo(f"round {number + 1} of {rounds}: {name}", err=True)
    table = _table(taken)
    click.echo(table)
    if markdown is not None:
        python, machine = (
            platform.python_version(),
            f"{os.cpu_count()} processors, {platform.machine()}",
        )
        page = PAGE.format(machine=machine, python=python, rounds=rounds, table=table)
        markdown.write_text(page, encoding="utf-8")


def _table(taken: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    rows = [
        "| processor time of both sides | plain | compiled | gain |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case in taken["plain"][0]:
        plain, compiled = (
            min(figures[case] for figures in taken[name]) for name in ("plain", "compiled")
        )
        rows.append(f"| {case} | {plain:,.1f} us | {compiled:,.1f} us | {plain / compiled:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
