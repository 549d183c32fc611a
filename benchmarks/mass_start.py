"""Start many clients at once over real sockets, and measure the time and the CPU that this takes.

Servers have a process each; the clients share some. The time is that from the moment at which all
processes are told to begin to the one at which the last client is established. Then the cluster is
left alone for a while, to measure the cost of a server at rest.

A crowd on the servers' own machine competes with them. A client that watches a group needs 25 ms of
a processor to start with three servers. For thousands on two cores, use a longer `--heartbeat`, and
a positive `--nice`, without which the scheduler gives a server no more than each of the clients'
processes. With `--spread` clients begin evenly over this many seconds.

By default a client watches everybody, so that n clients handle n * n records. With `--group` each
watches the members of its own group only, as a large simulation does.

A client learns each other client from its record. The decodings of records are counted, too. One
for each record is enough: the same bytes come again, alone and in lists, from several servers.

The memory of a server per client is the growth of its anonymous memory from before the first
client to the end of the rest, divided by the clients.
"""

import json
import os
import resource
import sys
from pathlib import Path
from subprocess import PIPE
from time import monotonic
from typing import Any, Final

import click
import trio

import sphtp
from sphtp.core.control import lists

DEADLINE: Final = 600.0
Report = dict[str, Any]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory() -> int:
    """Return the anonymous memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def _say(report: Report) -> None:
    click.echo(json.dumps(report))
    sys.stdout.flush()


async def _line() -> bool:
    """Wait for a line of standard input. Return False at its end."""
    return bool(await trio.to_thread.run_sync(sys.stdin.readline))


def _config(heartbeat: float, patience: float) -> sphtp.Config:
    """Return the configuration of servers and clients, with an expiry of ten heartbeats."""
    return sphtp.Config(
        timers=sphtp.config.ControlTimers(
            heartbeat=heartbeat,
            expiry=10 * heartbeat,
            answer_timeout=patience,
        )
    )


async def _serve(join: tuple[str, ...], config: sphtp.Config) -> None:
    """Run a server: print its address and, at each line of input, its CPU, memory and clients."""
    async with sphtp.open_server(
        sphtp.ServerAddress.parse("tcp://127.0.0.1:0,0"),
        join=tuple(map(sphtp.ServerAddress.parse, join)),
        new_cluster=not join,
        config=config,
    ) as server:
        await server.wait_active()
        _say({"address": str(server.address)})
        while await _line():
            _say({"cpu": _cpu(), "memory": _memory(), "clients": len(server.clients)})


class _Crowd:
    """The clients of one process."""

    def __init__(self) -> None:
        self.opened: list[float] = []
        self.took: list[float] = []
        self.failures: list[str] = []
        self.clients: list[sphtp.Client] = []
        self.decoded = 0
        self._changed = trio.lowlevel.ParkingLot()
        _count_decoded(self)

    async def attend(
        self, servers: list[str], group: str | None, delay: float, config: sphtp.Config
    ) -> None:
        """Run one client until it is cancelled; record when it is established, or its failure."""
        groups = None if group is None else [group]
        await trio.sleep(delay)
        began = monotonic()
        try:
            async with sphtp.open_client(
                servers,
                host="127.0.0.1",
                config=config,
                presence=groups,
            ) as client:
                client.set_groups(groups or ())
                self.clients.append(client)
                self.opened.append(monotonic())
                self.took.append(self.opened[-1] - began)
                self._changed.unpark_all()
                await trio.sleep_forever()
        except sphtp.SphtpError as error:
            self.failures.append(str(error))
            self._changed.unpark_all()

    async def wait(self, clients: int) -> None:
        """Wait until this many clients are established, or have failed."""
        while len(self.opened) + len(self.failures) < clients:
            await self._changed.park()


def _count_decoded(crowd: _Crowd) -> None:
    """Count the records that this process decodes from now on."""
    decode = lists.decode_record

    def counted(*arguments: Any, **options: Any) -> Any:
        crowd.decoded += 1
        return decode(*arguments, **options)

    lists.decode_record = counted


async def _attend(
    servers: list[str], delays: list[float], group: int, config: sphtp.Config
) -> None:
    """Run one client for each delay, from the first line of input to the end of the input."""
    crowd = _Crowd()
    _say({"ready": True})
    await _line()
    async with trio.open_nursery() as nursery:
        for number, delay in enumerate(delays):
            name = f"{os.getpid()}, {number // group}" if group else None
            nursery.start_soon(crowd.attend, servers, name, delay, config)
        await crowd.wait(len(delays))
        _say({"opened": crowd.opened, "took": crowd.took, "failures": crowd.failures})
        while await _line():
            known = sum(len(client.peers) for client in crowd.clients)
            _say({"cpu": _cpu(), "known": known, "decoded": crowd.decoded})
        nursery.cancel_scope.cancel()


class _Child:
    """A process of this script that answers lines with JSON."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._buffer = b""

    @classmethod
    async def start(cls, *arguments: str) -> "_Child":
        command = [sys.executable, __file__, *arguments]
        return cls(await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE))

    async def read(self) -> Report:
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            data = await self._process.stdout.receive_some(1 << 16)
            if not data:
                raise click.ClickException("a process ended too early")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        report: Report = json.loads(line)
        return report

    async def ask(self) -> Report:
        await self.tell()
        return await self.read()

    async def tell(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(b"\n")

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()


async def _measure(
    clients: int,
    servers: int,
    processes: int,
    group: int,
    spread: float,
    steady: float,
    timing: list[str],
    nice: int,
) -> Report:
    children: list[_Child] = []
    try:
        with trio.fail_after(DEADLINE):
            addresses: list[str] = []
            for _ in range(servers):
                joined = (f"--join={each}" for each in addresses[:1])
                child = await _Child.start("--serve", *timing, *joined)
                children.append(child)
                addresses.append((await child.read())["address"])
            parts = [
                clients // processes + (rank < clients % processes) for rank in range(processes)
            ]
            crowds = [
                await _Child.start(
                    f"--attend={part}",
                    f"--group={group}",
                    f"--first={spread * rank / clients}",
                    f"--every={spread * processes / clients}",
                    f"--nice={nice}",
                    *timing,
                    *(f"--join={address}" for address in addresses),
                )
                for rank, part in enumerate(parts)
            ]
            children += crowds
            for crowd in crowds:
                await crowd.read()
            sizes = [size for part in parts for size in _sizes(part, group)] if group else [clients]
            known = sum(size * (size - 1) for size in sizes)
            return await _watch(children[:servers], crowds, clients, known, steady)
    finally:
        for child in children:
            await child.stop()


def _sizes(clients: int, group: int) -> list[int]:
    """Return the sizes of the groups in one process."""
    return [min(group, clients - first) for first in range(0, clients, group)]


async def _watch(
    servers: list[_Child], crowds: list[_Child], clients: int, all_known: int, steady: float
) -> Report:
    before = [await server.ask() for server in servers]
    began = monotonic()
    for crowd in crowds:
        await crowd.tell()
    told = [await crowd.read() for crowd in crowds]
    opened = sorted(moment - began for each in told for moment in each["opened"])
    took = sorted(seconds for each in told for seconds in each["took"])
    failures = [failure for each in told for failure in each["failures"]]
    used = [(await server.ask())["cpu"] for server in servers]
    known_after = None
    with trio.move_on_after(60):
        while True:
            states = [await crowd.ask() for crowd in crowds]
            if sum(state["known"] for state in states) >= all_known:
                known_after = monotonic() - began
                break
            await trio.sleep(0.5)
    states = [await crowd.ask() for crowd in crowds]
    await trio.sleep(steady / 3)
    settled = [(await server.ask())["cpu"] for server in servers]
    await trio.sleep(steady)
    after = [await server.ask() for server in servers]
    decoded = sum(state["decoded"] for state in states)
    records = all_known + clients  # Each client gets its own record, too.
    return {
        "clients": clients,
        "servers": len(servers),
        "established": len(opened),
        "failures": failures[:3],
        "last_established_s": round(opened[-1], 2) if opened else None,
        "median_established_s": round(opened[len(opened) // 2], 2) if opened else None,
        "slowest_client_s": round(took[-1], 2) if took else None,
        "all_known_s": None if known_after is None else round(known_after, 2),
        "servers_cpu_s": [round(b - a["cpu"], 2) for a, b in zip(before, used, strict=True)],
        "clients_cpu_s": round(sum(state["cpu"] for state in states), 2),
        "decoded_per_record_and_client": round(decoded / records, 2),
        "steady_server_cores": [
            round((b["cpu"] - a) / steady, 3) for a, b in zip(settled, after, strict=True)
        ],
        "server_kb_per_client": [
            round((b["memory"] - a["memory"]) / clients / 1000, 1)
            for a, b in zip(before, after, strict=True)
        ],
        "clients_left": [server["clients"] for server in after],
    }


@click.command()
@click.option("--clients", type=click.IntRange(1), default=500, show_default=True)
@click.option("--servers", type=click.IntRange(1), default=1, show_default=True)
@click.option("--processes", type=click.IntRange(1), default=4, show_default=True)
@click.option(
    "--group", type=click.IntRange(0), default=0, show_default=True, help="Watch a group; 0 is all."
)
@click.option("--spread", type=float, default=0.0, show_default=True, help="Seconds of starting.")
@click.option("--steady", type=float, default=10.0, show_default=True, help="Seconds of rest.")
@click.option("--timeout", type=float, default=120.0, show_default=True)
@click.option("--heartbeat", type=float, default=1.0, show_default=True, help="Seconds.")
@click.option("--nice", type=click.IntRange(0, 19), default=0, show_default=True)
@click.option("--serve", is_flag=True, hidden=True)
@click.option("--attend", type=int, hidden=True)
@click.option("--first", type=float, hidden=True)
@click.option("--every", type=float, hidden=True)
@click.option("--join", multiple=True, hidden=True)
def main(
    clients: int,
    servers: int,
    processes: int,
    group: int,
    spread: float,
    steady: float,
    timeout: float,
    heartbeat: float,
    nice: int,
    attend: int | None,
    first: float,
    every: float,
    join: tuple[str, ...],
    *,
    serve: bool,
) -> None:
    """Start clients, at once or evenly; print the times until they are established, and the CPU."""
    if serve:
        trio.run(_serve, join, _config(heartbeat, timeout))
    elif attend is not None:
        os.nice(nice)
        delays = [first + every * rank for rank in range(attend)]
        trio.run(_attend, list(join), delays, group, _config(heartbeat, timeout))
    else:
        timing = [f"--heartbeat={heartbeat}", f"--timeout={timeout}"]
        measured = trio.run(
            _measure, clients, servers, processes, group, spread, steady, timing, nice
        )
        click.echo(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
