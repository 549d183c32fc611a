"""Servers that are drained, restarted and reloaded, while everybody works and nobody may notice."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

import sphtp
from sphtp.config import ControlTimers
from sphtp.security import Security, load_identity
from tests.chaos.actors import WORKER, Peer, Server, timers
from tests.chaos.process import DEADLINE, Line
from tests.chaos.programs.worker import run_alone
from tests.chaos.stage import Stage, open_stage

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

EXPIRY = 5.0
"""Seconds: longer than any of ten processes on two cores has to wait for its turn."""

LONGEST_GAP = 0.5
"""Seconds between two messages of a channel, if both sides have their turns: five keepalives."""

NAMES = ("ada", "bob", "cleo", "dan")


@pytest.fixture
def runtime(tmp_path: Path) -> dict[str, str]:
    """Where servers announce themselves, and `sphtp drain` finds these and no others."""
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


class Page:
    """The documents of the page of a cluster, as a browser gets them."""

    def __init__(self, stage: Stage) -> None:
        self.documents: list[dict[str, Any]] = []
        self._stage = stage

    async def read(self, host: str, port: int) -> None:
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(b"GET /status?follow HTTP/1.0\r\nHost: localhost\r\n\r\n")
            rest = b""
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\n")
                self.documents += [json.loads(line) for line in lines if line.startswith(b"{")]

    async def shows(self, servers: Iterable[Server]) -> None:
        """Wait until it shows these servers and no others, and that every worker knows them."""
        expected = {server.id: "active" for server in servers}

        async def difference() -> str | None:
            last = self.documents[-1]
            found = {server["id"]: server["state"] for server in last["servers"]}
            known = {peer["name"]: peer["servers"] for peer in last["peers"]}
            wanted = dict.fromkeys(NAMES, sorted(expected))
            return None if (found, known) == (expected, wanted) else f"{found}, {known}"

        await self._stage.until("the page", difference)

    def troubles(self) -> Iterator[str]:
        """What it has ever said of a peer that a user would worry about."""
        for document in self.documents:
            for peer in document["peers"]:
                if peer["state"] not in (None, "established"):
                    yield f"{peer['name']} is {peer['state']}"
            for cause in document["causes"]:
                if cause["level"] == "serious":
                    yield cause["text"]


@asynccontextmanager
async def followed_page(stage: Stage, peer: Peer) -> AsyncIterator[Page]:
    page, place = Page(stage), await peer.program.heard("page")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.read, place["host"], place["port"])
        yield page
        nursery.cancel_scope.cancel()


async def worker(stage: Stage, at: int, **plan: Any) -> Peer:
    """Start a worker that speaks to the next one, as soon as all are there."""
    others = [name for name in NAMES if name != NAMES[at]]
    to = [NAMES[(at + 1) % len(NAMES)]]
    return await stage.peer(NAMES[at], to=to, program=WORKER, others=others, **plan)


async def drain(stage: Stage, server: Server) -> None:
    """Drain a server as its operator does, and wait for its end."""
    command = [sys.executable, "-m", "sphtp", "drain", str(server.address)]
    environment = {**os.environ, **stage.environment}
    done = await trio.run_process(command, capture_stdout=True, env=environment)
    assert done.stdout.decode() == f"server {server.address} has left\n"
    assert await server.program.ended() == 0
    assert server.program.of("leaving", because="drained")


def unharmed(workers: Iterable[Peer]) -> None:
    """No worker has noticed anything: its registration, its channels and their messages."""
    by_name = {one.name: one for one in workers}
    for one in by_name.values():
        for event in ("Suspended", "channel closed", "stopped speaking", "stopped hearing"):
            assert not one.program.of(event), one.program.story(event)
        received = one.program.of("received")
        (stream,) = {line["stream"] for line in received}
        speaker = by_name[stream.partition("/")[0]]
        stalls = [*one.program.of("stalled"), *speaker.program.of("stalled")]
        gap = longest_gap([line["at"] for line in received], stalls)
        assert gap < LONGEST_GAP, f"{one.name} received nothing for {gap} s"


def longest_gap(times: Sequence[float], stalls: Sequence[Line]) -> float:
    """Return the longest time without a message in which both sides had their turns."""
    spans = [(stall["since"], stall["until"]) for stall in stalls]
    longest = 0.0
    for last, following in pairwise(times):
        if following - last > LONGEST_GAP:
            gap, end = 0.0, last
            for since, until in sorted([*spans, (following, following)]):
                gap += max(min(since, following) - end, 0.0)
                end = max(end, until)
            longest = max(longest, gap)
    return longest


async def stepping(workers: Iterable[Peer]) -> None:
    """Wait until each of them has made some more steps."""
    marks = [(one, len(one.program.lines)) for one in workers]
    for one, mark in marks:
        await one.program.heard("step", after=mark)


async def test_a_rolling_restart_is_seen_on_the_page_and_by_no_group_in_lock_step(
    seed: int, runtime: dict[str, str]
) -> None:
    async with open_stage(seed, expiry=EXPIRY) as stage:
        stage.environment = runtime
        servers = [await stage.server(name, options=()) for name in ("red", "green", "blue")]
        workers = [
            await worker(stage, at, pace=0.02, group=len(NAMES), page=not at)
            for at in range(len(NAMES))
        ]
        await stage.converged()
        orders = [(await one.program.heard("stepping"))["members"] for one in workers]
        async with followed_page(stage, workers[0]) as page:
            await stepping(workers)
            await page.shows(servers)
            for server, is_drained in zip(servers, (True, False, True), strict=True):
                ports, others = server.listens_at, [one for one in servers if one is not server]
                if is_drained:
                    await drain(stage, server)
                else:
                    server.program.leave()
                    assert await server.program.ended() == 0
                await page.shows(others)
                await stage.begin(server)
                assert server.listens_at == ports
                await stage.converged()
                await page.shows(servers)
                await stepping(workers)
            assert list(page.troubles()) == []
        unharmed(workers)
        for one in workers:
            await one.program.tell("finish")
        results = {one.name: await one.program.heard("stepped") for one in workers}
        steps = {result["steps"] for result in results.values()}
        assert len(steps) == 1
        assert orders == [orders[0]] * len(NAMES)
        alone = run_alone(orders[0], steps.pop())
        assert {name: result["digest"] for name, result in results.items()} == alone
        await stage.finish()


async def test_a_drain_moves_clients_that_never_stop_sending_without_a_gap(
    seed: int, runtime: dict[str, str]
) -> None:
    async with open_stage(seed, expiry=EXPIRY) as stage:
        stage.environment = runtime
        old = await stage.server("old", options=())
        # They know of no other server, and send without a pause.
        workers = [await worker(stage, at, pace=0.001) for at in range(len(NAMES))]
        await stage.converged()
        for one in workers:
            await stage.flowing(one)
        new = await stage.server("new", options=())
        await drain(stage, old)
        await stage.converged()
        marks = [len(one.program.lines) for one in workers]
        for one, mark in zip(workers, marks, strict=True):
            await one.program.heard("received", after=mark)
        unharmed(workers)
        assert new.program.is_alive
        await stage.finish()


class Churn:
    """Clients that come, look for the workers, and go, one after the other."""

    def __init__(self, server: Server, key: Path) -> None:
        self._count = 0
        self._changed = trio.lowlevel.ParkingLot()
        self._address = server.listens_at
        self._config = sphtp.Config(
            timers=ControlTimers(**timers(EXPIRY)),
            security=Security(identity=load_identity(key)),
        )

    async def run(self) -> None:
        while True:
            await self.come()
            self._count += 1
            self._changed.unpark_all()

    async def come(self) -> None:
        """Be a client until every worker is seen."""
        async with sphtp.open_client(self._address, config=self._config) as client:
            for name in NAMES:
                with trio.fail_after(DEADLINE):
                    await client.wait_for_peer(name)

    async def more(self, by: int = 2) -> None:
        """Wait until some more have come and gone."""
        wanted = self._count + by
        with trio.fail_after(DEADLINE):
            while self._count < wanted:
                await self._changed.park()


async def make_key(file: Path) -> str:
    """Make an identity; return its public key."""
    command = [sys.executable, "-m", "sphtp", "keygen", "--json", f"--identity={file}"]
    done = await trio.run_process(command, capture_stdout=True)
    return str(json.loads(done.stdout)["identity"]["public"])


async def test_a_reload_under_load_drops_nothing(seed: int, tmp_path: Path) -> None:
    file, allowed = tmp_path / "server.toml", tmp_path / "allowed"
    names = (*NAMES, "guest", "stranger")
    public = {name: await make_key(tmp_path / name) for name in names}

    def configure(*guests: str, **settings: float | str) -> None:
        allowed.write_text("".join(f"{public[name]}\n" for name in (*NAMES, *guests)))
        lines = {"allow_file": str(allowed), "data_per_second": 100, **settings}
        file.write_text("".join(f"{name} = {value!r}\n" for name, value in lines.items()))

    configure("guest")
    async with open_stage(seed, expiry=EXPIRY) as stage:
        server = await stage.server("server", options=("--no-announce", f"--config={file}"))
        # Each changes its data fifty times a second, which the server tells to all.
        workers = [
            await worker(stage, at, pace=0, data_pace=0.02, key=str(tmp_path / NAMES[at]))
            for at in range(len(NAMES))
        ]
        for one in workers:
            await stage.flowing(one)
        guest, stranger = Churn(server, tmp_path / "guest"), Churn(server, tmp_path / "stranger")

        async def reload() -> list[str]:
            mark = len(server.program.lines)
            server.program.process.send_signal(signal.SIGHUP)
            told = await server.program.heard("reloaded", after=mark)
            return sorted(told["changed"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(guest.run)
            for level, most in (("debug", 50), ("info", 60), ("debug", 70), ("info", 80)):
                await guest.more()
                configure("guest", log_level=level, max_clients=most)
                assert await reload() == ["log_level", "max_clients"]
            with pytest.raises(sphtp.RefusedError):
                await stranger.come()
            # The file has other keys, and one setting for the next start.
            mark = len(server.program.lines)
            configure("guest", "stranger", log_level="info", max_clients=80, jitter=0.2)
            assert await reload() == []
            await server.program.heard(
                "these settings need a restart", after=mark, settings=["jitter"]
            )
            await stranger.come()
            # What is wrong changes nothing.
            mark = len(server.program.lines)
            configure(log_level="loud")
            server.program.process.send_signal(signal.SIGHUP)
            await server.program.heard("not reloaded: all settings stay as they were", after=mark)
            await stranger.come()
            await guest.more()
            nursery.cancel_scope.cancel()
        unharmed(workers)
        for one in workers:
            await one.program.tell("finish")
        # Nor has the server dropped a message: all have the last data of all.
        last = {one.name: (await one.program.heard("data"))["number"] for one in workers}
        for one in workers:
            for name, number in last.items():
                await one.program.heard("seen", name=name, number=number)
        assert not server.program.of("a limit was reached")
        assert not server.program.of("messages dropped or refused")
        await stage.finish()
