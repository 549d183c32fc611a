"""Machines for `sphtp cluster --on`: namespaces with a network, and the engines in them."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.apps.cluster.running import QUICK, Run
from tests.apps.server.registry.real_etcd import EtcdMembers
from tests.certificates import Authority
from tests.chaos.namespaces import HUB, into, open_machines

HOSTS: Final = {f"n{number}": f"10.83.0.{number}" for number in range(1, 5)}
LOOK_AGAIN: Final = 0.05


@dataclass
class Site:
    """Four machines, and a hub from which runs start. Each command runs in one of them."""

    folder: Path
    hub: int
    keepers: Mapping[str, int]
    stack: AsyncExitStack
    daemons: dict[str, trio.Process] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    async def daemon(self, name: str, command: Sequence[str], machine: str | None = None) -> None:
        """Run a program on a machine, or on the hub, until the end of the test."""
        log = self.stack.enter_context(self.log(name).open("wb"))
        process = await trio.lowlevel.open_process(
            [*self.entry(machine), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=self.environment,
        )  # fmt: skip
        self.daemons[name] = process
        self.stack.push_async_callback(_end, process)

    async def said(self, name: str, words: str, times: int = 1) -> None:
        """Wait until a daemon has logged something."""
        log = self.log(name)
        await _until(lambda: log.read_text().count(words) >= times)

    async def cut(self, machine: str) -> None:
        """Let nothing pass to a machine and from it; it does not notice."""
        switch = ("bridge", "link", "set", "dev", machine, "state", "0")
        await trio.run_process([*self.entry(), *switch])

    def entry(self, machine: str | None = None) -> tuple[str, ...]:
        return into(self.hub if machine is None else self.keepers[machine])

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | self.variables

    @asynccontextmanager
    async def cluster(
        self, scenario: Path | str, *options: str, before: Sequence[str] = ()
    ) -> AsyncIterator[Run]:
        """Run `sphtp cluster` on the hub for the length of the block; nothing is left then."""
        command = (sys.executable, "-m", "sphtp", "cluster", "--scenario", str(scenario), *QUICK)
        process = await trio.lowlevel.open_process(
            [*self.entry(), *before, *command, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=self.environment,
        )  # fmt: skip
        run = Run(process)
        try:
            with trio.fail_after(400):
                yield run
        finally:
            print("\n".join(run.lines))
            with trio.CancelScope(shield=True):
                if process.returncode is None:
                    process.terminate()
                await process.wait()
                await run.source.aclose()
                assert process.stdout is not None
                await process.stdout.aclose()


async def _end(process: trio.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@asynccontextmanager
async def open_site(folder: Path) -> AsyncIterator[Site]:
    """Make the machines for the length of the block."""
    async with open_machines(HOSTS) as machines, AsyncExitStack() as stack:
        yield Site(folder, machines.hub, machines.keepers, stack)


@asynccontextmanager
async def dask_site(folder: Path, threads: int = 3, scheme: str = "tcp") -> AsyncIterator[Site]:
    """A scheduler on the hub, and a worker on each machine."""
    async with open_site(folder) as site:
        if scheme == "tls":
            site.variables.update(_certificates(folder))
        dask = (sys.executable, "-m", "dask")
        scheduler = f"{scheme}://{HUB}:8786"
        at = ("--host", HUB, "--protocol", scheme)
        await site.daemon("scheduler", (*dask, "scheduler", *at, "--no-dashboard"))
        await site.said("scheduler", "Scheduler at")
        for name, host in HOSTS.items():
            options = ("--host", host, "--nthreads", str(threads), "--no-nanny", "--no-dashboard")
            place = ("--local-directory", str(folder / f"dask-{name}"))
            await site.daemon(name, (*dask, "worker", scheduler, *options, *place), name)
        await site.said("scheduler", "Starting worker compute stream", len(HOSTS))
        yield site


def _certificates(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the variables by which Dask's programs know their certificates."""
    authority = Authority(folder)
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    yield f"{prefix}CA_FILE", str(authority.ca)
    for role in ("scheduler", "worker", "client"):
        cert, key = authority.issue(role)
        yield f"{prefix}{role.upper()}__CERT", str(cert)
        yield f"{prefix}{role.upper()}__KEY", str(key)


ON_DASK: Final = ("--on", f"dask://{HUB}:8786")
ON_SLURM: Final = ("--on", "slurm")

SLURM = """
ClusterName=test
SlurmctldHost={controller}({hub})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldPort=26817
SlurmdPort=26818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={controller} NodeAddr={host} Sockets={slots} CPUs={slots}"

SLURM_IS_THERE = all(map(shutil.which, ("munged", "slurmctld", "slurmd", "salloc")))
ETCD_IS_THERE = shutil.which("etcd") is not None


@asynccontextmanager
async def slurm_site(folder: Path, slots: int = 3) -> AsyncIterator[Site]:
    """A controller on the hub, and a node of some task slots on each machine."""
    async with open_site(folder) as site:
        controller = os.uname().nodename
        nodes = "\n".join(
            NODE.format(name=name, controller=controller, host=host, slots=slots)
            for name, host in HOSTS.items()
        )
        conf = folder / "slurm.conf"
        conf.write_text(SLURM.format(controller=controller, hub=HUB, folder=folder, nodes=nodes))
        site.variables["SLURM_CONF"] = str(conf)
        for name in ("state", *HOSTS):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(64))
        files = (f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed"))
        socket = f"--socket={folder}/munge.socket"
        await site.daemon("munged", ("munged", "--foreground", "--force", socket, *files))
        await _until((folder / "munge.socket").exists)
        await site.daemon("slurmctld", ("slurmctld", "-D"))
        for name in HOSTS:
            await site.daemon(name, ("slurmd", "-D", "-N", name), name)
        for name in HOSTS:
            await site.said(name, "slurmd started")
        await _until(partial(_all_idle, site))
        yield site
        # What watches over the last steps would stay, and wait for the daemons.
        await _until(partial(_all_idle, site))


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    with trio.fail_after(60):
        while not await trio.to_thread.run_sync(holds):  # noqa: ASYNC110
            await trio.sleep(LOOK_AGAIN)


def _all_idle(site: Site) -> bool:
    command = [*site.entry(), "sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(command, env=site.environment, capture_output=True, check=False)
    return done.stdout.decode().split() == ["idle"] * len(HOSTS)


def allocation(tasks: int) -> tuple[str, ...]:
    """The words that run a command in an allocation of so many tasks, one processor each."""
    return ("salloc", "--quiet", "--no-kill", f"--ntasks={tasks}", "--immediate=60")


@asynccontextmanager
async def etcd_of(site: Site) -> AsyncIterator[EtcdMembers]:
    """Three members of etcd on the hub, for the length of the block."""
    folder = site.folder / "etcd"
    folder.mkdir()
    etcd = EtcdMembers(folder, 3, HUB, site.entry())
    try:
        for member in etcd.members:
            member.start()
        health = f"http://{HUB}:{etcd.members[0].port}/health"
        script = f"import urllib.request as r; r.urlopen({health!r}, timeout=2)"
        await _until(partial(_works, [*site.entry(), sys.executable, "-S", "-c", script]))
        yield etcd
    finally:
        for member in etcd.members:
            member.kill()


def _works(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def words_of(pid: int) -> Iterator[bytes]:
    """Yield the command line of a process, which others may see, and its variables."""
    for name in ("cmdline", "environ"):
        yield Path(f"/proc/{pid}/{name}").read_bytes()


def namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")
