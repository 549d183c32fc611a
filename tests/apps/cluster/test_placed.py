"""`sphtp cluster --on` with real engines: a Dask scheduler, and Slurm, on four machines.

Each machine is a namespace with a network of its own. Made by root only.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from sphtp.security import format_key, load_secret
from tests.apps.cluster.machines import (
    ETCD_IS_THERE,
    HOSTS,
    ON_DASK,
    ON_SLURM,
    SLURM_IS_THERE,
    Site,
    allocation,
    dask_site,
    etcd_of,
    namespace_of,
    slurm_site,
    words_of,
)
from tests.apps.cluster.running import ENDLESS, MORTAL, Run, gone, is_alive

pytestmark = pytest.mark.soak

FROZEN = 2.0
"""Seconds for which a member of etcd stands still."""


class Engine(NamedTuple):
    """An engine, and how a run gets to it."""

    site: Callable[[Path], AbstractAsyncContextManager[Site]]
    options: tuple[str, ...]
    before: tuple[str, ...] = ()

    @asynccontextmanager
    async def cluster(self, site: Site, scenario: Path | str, *options: str) -> AsyncIterator[Run]:
        async with site.cluster(scenario, *self.options, *options, before=self.before) as run:
            yield run


DASK = Engine(dask_site, ON_DASK)
SLURM = Engine(slurm_site, ON_SLURM, allocation(12))

needs_slurm = pytest.mark.skipif(not SLURM_IS_THERE, reason="Slurm is not installed")
needs_etcd = pytest.mark.skipif(not ETCD_IS_THERE, reason="etcd is not installed")
both = pytest.mark.parametrize(
    "engine", [pytest.param(DASK, id="dask"), pytest.param(SLURM, id="slurm", marks=needs_slurm)]
)


def mortal(path: Path, restarts: int) -> Path:
    """Let a scenario say how often something may start again."""
    path.write_text(f"max_restarts = {restarts}\n{path.read_text()}")
    return path


@both
async def test_the_gas_of_make_run_is_verified(engine: Engine, tmp_path: Path) -> None:
    async with engine.site(tmp_path) as site:
        options = ("--servers", "2", "--clients", "4", "--steps", "300", "--verify")
        async with engine.cluster(site, "gas", *options) as run:
            await run.all_running(4)
            shown = next(line for line in run.lines if line.startswith("to watch it: "))
            file = Path(shown.rpartition(" ")[2])
            secret = load_secret(file)
            text = format_key(secret).encode()
            pids = run.placed_pids()
            assert len(pids) == 7
            machines = {namespace_of(keeper) for keeper in site.keepers.values()}
            assert {namespace_of(pid) for pid in pids.values() if is_alive(pid)} <= machines
            for pid in filter(is_alive, pids.values()):
                assert not any(secret in words or text in words for words in words_of(pid))
            assert await run.end() == 0
        assert run.lines[-1].startswith("verified: bit-identical")
        for pid in pids.values():
            await gone(pid)


@both
@needs_etcd
async def test_eight_clients_on_four_machines_while_members_of_etcd_die_and_freeze(
    engine: Engine, tmp_path: Path
) -> None:
    async with engine.site(tmp_path) as site, etcd_of(site) as etcd:
        options = ("--servers", "2", "--clients", "8", "--steps", "300", "--verify")
        async with engine.cluster(site, "gas", *options, "--registry", etcd.url) as run:
            await run.all_running(8)
            etcd.members[0].kill()
            etcd.members[1].send(signal.SIGSTOP)
            await trio.sleep(FROZEN)
            etcd.members[1].send(signal.SIGCONT)
            pids = run.placed_pids()
            clients = [pid for name, pid in pids.items() if name.startswith("client")]
            assert all(map(is_alive, clients))
            here = {namespace_of(pid) for pid in clients}
            assert await run.end() == 0
        assert run.lines[-1].startswith("verified: bit-identical")
        assert len(here) == len(HOSTS)
        for pid in pids.values():
            await gone(pid)


@both
async def test_a_signal_ends_everything(engine: Engine, tmp_path: Path, gas_file: Path) -> None:
    async with engine.site(tmp_path) as site:
        options = ("--servers", "1", "--clients", "3", "--steps", ENDLESS)
        async with engine.cluster(site, gas_file, *options) as run:
            await run.all_running(3)
            pids = run.placed_pids()
            os.kill(supervisor_of(run), signal.SIGTERM)
            assert await run.end() == 128 + signal.SIGTERM
        assert len(pids) == 4
        assert not any(is_alive(pid) for pid in pids.values())


@both
async def test_nothing_outlives_a_killed_supervisor(
    engine: Engine, tmp_path: Path, gas_file: Path
) -> None:
    async with engine.site(tmp_path) as site:
        options = ("--servers", "1", "--clients", "3", "--steps", ENDLESS)
        async with engine.cluster(site, gas_file, *options) as run:
            await run.all_running(3)
            os.kill(supervisor_of(run), signal.SIGKILL)
            pids = run.placed_pids()
            with trio.fail_after(30):
                for pid in pids.values():
                    await gone(pid)
        assert len(pids) == 4


@both
async def test_a_client_that_is_killed_ends_the_run_with_its_name(
    engine: Engine, tmp_path: Path, gas_file: Path
) -> None:
    async with engine.site(tmp_path) as site:
        options = ("--servers", "1", "--clients", "3", "--steps", ENDLESS, *MORTAL)
        async with engine.cluster(site, gas_file, *options) as run:
            await run.all_running(3)
            pids = run.placed_pids()
            os.kill(pids["client 1"], signal.SIGKILL)
            assert await run.end() == 3
        assert run.lines[-1].startswith("client 1 failed: killed by SIGKILL")
        assert not any(is_alive(pid) for pid in pids.values())


@both
async def test_what_is_killed_is_replaced_as_the_scenario_says(
    engine: Engine, tmp_path: Path, gas_file: Path
) -> None:
    async with engine.site(tmp_path) as site:
        options = ("--servers", "2", "--clients", "3", "--steps", "300", "--verify", *MORTAL)
        async with engine.cluster(site, mortal(gas_file, 2), *options) as run:
            await run.all_running(3)
            first = run.placed_pids()
            os.kill(first["client 1"], signal.SIGKILL)
            await run.line("client 1 was lost: .* start again")
            os.kill(first["server 2"], signal.SIGKILL)
            assert await run.end() == 0
        last = run.placed_pids()
        assert run.lines[-1].startswith("verified: bit-identical")
        assert not any(is_alive(pid) for pid in [*first.values(), *last.values()])


async def test_a_lost_worker_ends_the_run_with_its_name(tmp_path: Path, gas_file: Path) -> None:
    async with dask_site(tmp_path) as site:
        options = ("--servers", "1", "--clients", "4", "--steps", ENDLESS)
        async with DASK.cluster(site, gas_file, *options) as run:
            await run.all_running(4)
            pids = run.placed_pids()
            name = machine_of(site, pids["client 1"])
            site.daemons[name].kill()
            assert await run.end() == 3
        worker = f"its worker {HOSTS[name]}:"
        assert any("failed:" in line and worker in line for line in run.lines[-6:])
        for pid in pids.values():
            await gone(pid)


async def test_a_lost_worker_is_replaced_as_the_scenario_says(
    tmp_path: Path, gas_file: Path
) -> None:
    async with dask_site(tmp_path) as site:
        options = ("--servers", "2", "--clients", "4", "--steps", "300", "--verify", *MORTAL)
        async with DASK.cluster(site, mortal(gas_file, 8), *options) as run:
            await run.all_running(4)
            pids = run.placed_pids()
            # One with a client and no server that founded the cluster.
            name = machine_of(site, pids["client 1"])
            site.daemons[name].kill()
            assert await run.end() == 0
        assert run.lines[-1].startswith("verified: bit-identical")
        assert any("was replaced" in line for line in run.lines)
        for pid in [*pids.values(), *run.placed_pids().values()]:
            await gone(pid)


async def test_a_machine_that_is_cut_off_ends_the_run_and_keeps_nothing(
    tmp_path: Path, gas_file: Path
) -> None:
    async with dask_site(tmp_path) as site:
        options = ("--servers", "1", "--clients", "4", "--steps", ENDLESS, *MORTAL)
        async with DASK.cluster(site, gas_file, *options) as run:
            await run.all_running(4)
            pids = run.placed_pids()
            name = machine_of(site, pids["client 1"])
            await site.cut(name)
            assert await run.end() == 3
        cut_off = [who for who, pid in pids.items() if is_alive(pid)]
        assert all(machine_of(site, pids[who]) == name for who in cut_off)
        assert any("client 1 failed" in line or "slab 1" in line for line in run.lines[-6:])
        # The worker gives the scheduler up, and its processes end with it.
        with trio.fail_after(90):
            for pid in pids.values():
                await gone(pid)


async def test_dask_with_certificates(tmp_path: Path, gas_file: Path) -> None:
    async with dask_site(tmp_path, scheme="tls") as site:
        options = ("--servers", "1", "--clients", "2", "--steps", "30", "--verify")
        on = ("--on", f"tls+{ON_DASK[1]}")
        async with site.cluster(gas_file, *on, *options) as run:
            assert await run.end() == 0
        assert run.lines[-1].startswith("verified: bit-identical")
        async with site.cluster(gas_file, *ON_DASK, *options) as run:
            assert await run.end() == 2
        assert "no scheduler answers" in run.lines[-1]


def machine_of(site: Site, pid: int) -> str:
    """Return the machine on which a process runs."""
    here = namespace_of(pid)
    return next(name for name, keeper in site.keepers.items() if namespace_of(keeper) == here)


def supervisor_of(run: Run) -> int:
    """Return the process of `sphtp cluster`, which an allocation has as a child."""
    pid = run.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return pid if b"salloc" not in command else int(children[0])
