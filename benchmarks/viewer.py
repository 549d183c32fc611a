"""Measure the cost of a viewer of the page for the peers that it looks at.

Four peers, each in a process of its own, step together a hundred times a second, and publish 500
spheres each as ``sphtp client`` does. Turns without a viewer alternate with turns in
which a viewer reads as a browser does: the status, the states of the spheres, and the metrics of a
peer. The pace is fixed, so that only the processor time of the peers in a second differs: the share
of a core that a viewer takes from a peer is the most that it can slow down a cluster whose peers
have no time left. The figures are that share, for the mean of the other peers and for the one whose
metrics are read, and the share of the page in a process of its own.
"""

import sys
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise
from statistics import mean, median, quantiles
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any, Final

import click
import numpy as np
import trio

import sphtp
from sphtp.groups import LockstepGroup
from sphtp.observe import serve_status
from sphtp.web import open_web
from sphtp_client.simulation.frames import FRAMES, FramePublisher, topic_of
from sphtp_client.simulation.state import Spheres

PEERS: Final = 4
SPHERES: Final = 500
PACE: Final = 0.01
"""Seconds of a step."""

METRICS_EVERY: Final = 2.5
"""Seconds between two requests of a page for metrics."""


async def run_peer(number: int, address: str) -> None:
    """Step and publish; print the processor time so far when asked."""
    async with (
        sphtp.open_client(address, name=f"peer-{number}", data={"slab": number}) as client,
        client.publish(topic_of(number), settings=FRAMES) as source,
        client.join("all", size=PEERS) as group,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(serve_status, client)
        nursery.start_soon(_step, group, FramePublisher(source, 1 << 40), number)
        print(client.id, flush=True)
        stdin = trio.lowlevel.FdStream(0)
        while await stdin.receive_some():
            print(time.process_time(), flush=True)
        nursery.cancel_scope.cancel()


async def _step(group: LockstepGroup, publisher: FramePublisher, number: int) -> None:
    chance = np.random.default_rng(number)
    ids = np.arange(SPHERES, dtype=np.uint32)
    x, v = chance.random((SPHERES, 3)), chance.random((SPHERES, 3))
    ones = np.ones(SPHERES)
    spheres = Spheres(id=ids, x=x, v=v, radius=ones, mass=ones)
    slab: Any = SimpleNamespace(step=0, spheres=spheres)
    due = trio.current_time()
    while True:
        await group.exchange(None)
        slab.step += 1
        publisher.on_step(slab)
        due = max(due + PACE, trio.current_time())
        await trio.sleep_until(due)


class Peer:
    """A process that runs a peer."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.id = 0

    async def read(self) -> float:
        """Return the number on its next line."""
        assert self.process.stdout is not None
        text = b""
        while not text.endswith(b"\n"):
            more = await self.process.stdout.receive_some()
            if not more:
                raise click.ClickException("a process has ended too early")
            text += more
        return float(text)

    async def used(self) -> float:
        """Return its processor time so far."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(b"?")
        return await self.read()


async def fetch(page: tuple[str, int], path: str) -> None:
    """Read an answer to its end, if it has one."""
    async with await trio.open_tcp_stream(*page) as stream:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode())
        async for _ in stream:
            pass


async def view(page: tuple[str, int], peer: int) -> None:
    """Send the requests of a browser that shows the page with the metrics of a peer."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch, page, "/status?follow")
        nursery.start_soon(fetch, page, "/states")
        while True:
            with trio.move_on_after(METRICS_EVERY):
                await fetch(page, f"/peers/{peer}/metrics")
            await trio.sleep(METRICS_EVERY)


async def run_page(address: str) -> None:
    """Serve the page; print its address, and the processor time so far when asked."""
    async with (
        sphtp.open_client(address, name="page") as client,
        open_web(page=True) as web,
    ):
        with web.observe_with(client):
            print(web.address[1], flush=True)
            stdin = trio.lowlevel.FdStream(0)
            while await stdin.receive_some():
                print(time.process_time(), flush=True)


async def measure(seconds: float, rounds: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return the shares of a core of the peers and of the page, with nobody and with a viewer."""
    without: list[list[float]] = []
    seen: list[list[float]] = []
    async with sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server:
        processes: list[Peer] = []
        try:
            for what in (*map(str, range(PEERS)), "page"):
                command = [sys.executable, __file__, "--part", what, str(server.address)]
                process = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE)
                processes.append(Peer(process))
            for each in processes:
                each.id = int(await each.read())
            place, watched = ("127.0.0.1", processes[-1].id), processes[0].id
            await trio.sleep(2)
            for turn in range(2 * rounds):
                async with trio.open_nursery() as nursery:
                    if turn % 2:
                        nursery.start_soon(view, place, watched)
                    # The work at the beginning and at the end of a turn is not measured.
                    await trio.sleep(0.5)
                    began, before = trio.current_time(), [await each.used() for each in processes]
                    await trio.sleep(seconds)
                    after, ended = [await each.used() for each in processes], trio.current_time()
                    nursery.cancel_scope.cancel()
                shares = [
                    (late - soon) / (ended - began)
                    for late, soon in zip(after, before, strict=True)
                ]
                (seen if turn % 2 else without).append(shares)
                kind = "viewer" if turn % 2 else "nobody"
                click.echo(f"{kind}: " + " ".join(f"{100 * it:.2f}" for it in shares))
        finally:
            for each in processes:
                with suppress(OSError):
                    each.process.terminate()
                with trio.CancelScope(shield=True):
                    await each.process.wait()
    return without, seen


@click.command()
@click.option("--seconds", default=3.0, help="Seconds of each turn.")
@click.option("--rounds", default=20, help="Turns with a viewer, and as many without.")
@click.option("--part", hidden=True, default="")
@click.argument("address", default="")
def main(seconds: float, rounds: int, part: str, address: str) -> None:
    """Measure the cost of a viewer of the page."""
    if part:
        with suppress(KeyboardInterrupt):
            work = run_page if part == "page" else partial(run_peer, int(part))
            trio.run(work, address)
        return
    without, seen = trio.run(measure, seconds, rounds)
    # Each turn with a viewer is compared with those before and after it, because machines become
    # slower and faster.
    around = [
        [(soon + late) / 2 for soon, late in zip(one, other, strict=True)]
        for one, other in pairwise([*without, without[-1]])
    ]
    added = [
        [100 * (late - soon) for late, soon in zip(one, other, strict=True)]
        for one, other in zip(seen, around, strict=True)
    ]
    low, middle, high = quantiles([mean(row[1:-1]) for row in added], n=4)
    click.echo(f"of a core, a viewer takes from a peer {middle:.2f} % ({low:.2f} to {high:.2f})")
    click.echo(f"from the peer whose metrics it reads {median(row[0] for row in added):.2f} %")
    click.echo(f"and the page takes {median(row[-1] for row in added):.2f} % more than with nobody")


if __name__ == "__main__":
    main()
