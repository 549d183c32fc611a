"""The course of a cluster run: its command lines, its secret, and the order of its starts."""

import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

import sphtp
from sphtp.config import ControlTimers
from sphtp.errors import SettingsError
from sphtp.security import ClusterSecurity, load_secret
from sphtp.shell.discovery import KEY_FILE, SERVER, TIMERS
from sphtp.shell.keys import draw_secret, save_secret
from sphtp.shell.status import OBSERVER_DATA
from sphtp_client.cluster.launcher import (
    LOCAL,
    LOOPBACK,
    OWN_ADDRESS,
    Launcher,
    ProcessSpec,
    find_launcher,
)
from sphtp_client.cluster.outcome import why
from sphtp_client.cluster.process import StopTimeouts
from sphtp_client.cluster.run_status import ProcessRole, ProcessStatus, RunStatus
from sphtp_client.cluster.supervisor import Supervisor, open_supervisor
from sphtp_client.program import ExitStatus, run_until_stopped


@contextmanager
def secret_file() -> Iterator[Path]:
    """Write a new secret to a file that only this user can read; delete it after the block.

    The secret is in a file, because every user can read the arguments of a process, and its child
    processes inherit its environment.
    """
    with TemporaryDirectory(prefix="sphtp-") as folder:
        file = Path(folder) / "secret"
        save_secret(file, draw_secret())
        yield file


@dataclass(frozen=True)
class ClusterPlan:
    """The parameters of a run; times in seconds.

    ``network`` is the network of the processes; None stands for the network of the launcher, which
    with ``--on local`` is the loopback of this machine.
    ``max_restarts`` is the highest number of replacements of lost processes.
    """

    servers: int
    clients: int
    scenario: Path
    steps: int
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    verify: bool = False
    seed: int | None = None
    heartbeat: float = 0.5
    expiry: float = 4.0
    channel_timeout: float = 5.0
    resend_time: float = 0.03
    wait: float = 30.0
    qlog: Path | None = None
    metrics: int | None = None
    web: int | None = None
    secret_file: Path | None = None
    on: str = LOCAL
    network: str | None = None
    registry: str | None = None
    max_restarts: int = 0

    @property
    def size(self) -> int:
        """The number of processes: servers, clients, and the reference of ``verify``."""
        return self.servers + self.clients + self.verify

    @property
    def grace(self) -> float:
        """Seconds within which the other clients detect and report the failure of a client."""
        return self.channel_timeout + 2 * self.expiry + 5.0

    def settings(self) -> dict[str, Any]:
        """Return the parameters that the JSON document repeats."""
        return {
            "servers": self.servers,
            "clients": self.clients,
            "scenario": str(self.scenario),
            "steps": self.steps,
            "loss": self.loss,
            "duplicate": self.duplicate,
            "reorder": self.reorder,
            "seed": self.seed,
            "on": self.on,
        }

    def server(self, number: int, join: Sequence[str]) -> ProcessSpec:
        """Return the process of a server. It joins the servers at ``join``, or founds the cluster.

        With a registry on etcd, it joins through the registry.
        """
        place = [word for address in join for word in ("--join", address)] or ["--new"]
        if self.registry is not None:
            place = ["--registry", self.registry]
        options = (
            *("--host", LOOPBACK if self.network is None else OWN_ADDRESS),
            *("--pub-port", "0", "--sub-port", "0", *place),
            *(*self._timers(), *self._secret()),
            *("--log-format", "json", "--exit-with-stdin"),
            # Other simulations must not find these servers. Servers without clients are for others.
            *(("--no-announce",) if self.clients else ()),
            *self._metrics(number - 1),
        )
        return ProcessSpec(
            f"server {number}",
            ProcessRole.SERVER,
            sphtp_command("server", *options),
            files=self._secret_files,
            network=self.network,
        )

    def client(self, slab: int, servers: Sequence[str], attempt: int = 0) -> ProcessSpec:
        """Return the process of the client that simulates one slab.

        Only clients of the same ``attempt`` work together, because the servers may still list a
        lost client of an earlier attempt.
        """
        addresses = [part for address in servers for part in ("--server", address)]
        options = (
            *addresses,
            *("--slab", str(slab), "--slabs", str(self.clients), *self._work()),
            *("--loss", str(self.loss), "--duplicate", str(self.duplicate)),
            *("--reorder", str(self.reorder), "--channel-timeout", str(self.channel_timeout)),
            *("--resend-time", str(self.resend_time), "--wait", str(self.wait)),
            *(*self._timers(), *self._seed(slab), *self._qlog(slab), *self._secret()),
            *self._metrics(self.servers + slab),
            *(("--run", str(attempt)) if attempt else ()),
        )
        return ProcessSpec(
            f"client {slab}",
            ProcessRole.CLIENT,
            sphtp_command("client", *options),
            slab,
            files=(self.scenario, *self._secret_files),
        )

    def reference(self) -> ProcessSpec:
        """Return the process that simulates the whole scenario, without servers or peers."""
        return ProcessSpec(
            "reference",
            ProcessRole.REFERENCE,
            sphtp_command("client", "--alone", *self._work()),
            files=(self.scenario,),
        )

    def watching(self, servers: Sequence[str]) -> str:
        """Return a command line that watches this run."""
        return shlex.join(("sphtp", "watch", "--server", servers[0], *self._secret()))

    def observing(self) -> Iterator[str]:
        """Yield a line with a command that shows the activity, if metrics have known ports here."""
        if self.metrics and self.network is None:
            last = self.metrics + self.servers + self.clients - 1
            yield f"to see what waits: sphtp top {self.metrics}-{last}"

    def for_programs(self, servers: Sequence[str]) -> Iterator[str]:
        """Yield lines that describe how other programs reach the servers."""
        yield f"servers: {' '.join(servers)}"
        yield f"secret: {self.secret_file}"
        yield f"status: {shlex.join(('sphtp', 'status', servers[0], *self._secret()))}"
        given = (f"{name}={shlex.quote(text)}" for name, text in self.variables(servers).items())
        yield f"for your programs: export {' '.join(given)}"
        yield "they run until Ctrl-C"

    def variables(self, servers: Sequence[str]) -> dict[str, str]:
        """Return the environment in which ``open_client()`` finds the servers."""
        return client_variables(servers, self.secret_file, self.heartbeat, self.expiry)

    def _work(self) -> tuple[str, ...]:
        return (
            *("--scenario", str(self.scenario), "--steps", str(self.steps)),
            *("--json", "--exit-with-stdin"),
        )

    def _timers(self) -> tuple[str, ...]:
        return ("--heartbeat", str(self.heartbeat), "--expiry", str(self.expiry))

    def _secret(self) -> tuple[str, ...]:
        return () if self.secret_file is None else ("--secret-file", str(self.secret_file))

    @property
    def _secret_files(self) -> tuple[Path, ...]:
        return () if self.secret_file is None else (self.secret_file,)

    def _qlog(self, slab: int) -> tuple[str, ...]:
        if self.qlog is None:
            return ()
        # On another machine, the current folder differs.
        return ("--qlog", str(self.qlog.absolute() / f"client-{slab}.sqlog"))

    def _metrics(self, place: int) -> tuple[str, ...]:
        if self.metrics is None:
            return ()
        return ("--metrics", str(self.metrics + place if self.metrics else 0))

    def _seed(self, slab: int) -> tuple[str, ...]:
        return () if self.seed is None else ("--seed", str(self.seed + slab))


def client_variables(
    servers: Sequence[str], secret: Path | None, heartbeat: float, expiry: float
) -> dict[str, str]:
    """Return the environment variables with the servers, the secret and the timers of a cluster."""
    found = {TIMERS["heartbeat"]: str(heartbeat), TIMERS["expiry"]: str(expiry)}
    if servers:
        found[SERVER] = " ".join(servers)
    if secret is not None:
        found[KEY_FILE] = str(secret)
    return found


def sphtp_command(*arguments: str) -> tuple[str, ...]:
    """Return the command line of a verb, in this interpreter."""
    return (sys.executable, "-m", "sphtp", *arguments)


SERVER_START = 20.0  # seconds within which a server has to report that it listens


async def run_cluster(
    plan: ClusterPlan,
    status: RunStatus,
    changed: Callable[[], None],
    timeouts: StopTimeouts | None = None,
) -> ExitStatus | None:
    """Carry out a plan to its end, and end all processes.

    Return the exit status for the signal that ended it; None without a signal. Raises
    ``SettingsError`` if the launcher or the port of the page cannot be used, and ``SphtpError`` if
    the client of the page cannot register.
    """

    async def perform() -> None:
        async with find_launcher(plan.on) as launcher:
            placed = _placed(plan, launcher)
            async with open_supervisor(status, changed, timeouts, launcher) as supervisor:
                await _perform(placed, supervisor)

    return await run_until_stopped(perform)


def _placed(plan: ClusterPlan, launcher: Launcher) -> ClusterPlan:
    """Return the plan with the network of a launcher.

    Raises ``SettingsError`` if the launcher has too few slots, or no known network, or if the plan
    has a network and the launcher uses loopback.
    """
    if launcher.slots is not None and launcher.slots < plan.size:
        raise SettingsError(
            f"--on {plan.on}: there is room for {launcher.slots} processes, and this run has "
            f"{plan.size}"
        )
    if launcher.network is None and plan.network is not None:
        raise SettingsError(f"--network: with --on {plan.on} the processes use loopback")
    network = plan.network or launcher.network
    if network == "":
        raise SettingsError(f"--on {plan.on}: the addresses there are unknown: give --network")
    return replace(plan, network=network)


async def _perform(plan: ClusterPlan, supervisor: Supervisor) -> None:
    addresses = await _start_servers(plan, supervisor)
    if len(addresses) < plan.servers:
        return
    async with _open_page(plan, supervisor, addresses):
        await _run(plan, supervisor, addresses)


@asynccontextmanager
async def _open_page(
    plan: ClusterPlan, supervisor: Supervisor, servers: list[str]
) -> AsyncIterator[None]:
    """Serve the page for the length of the block, if the plan has one, and open its client."""
    if plan.web is None:
        yield
        return
    # What this needs is an extra.
    from sphtp.web import open_web

    config = sphtp.Config(
        timers=ControlTimers(heartbeat=plan.heartbeat, expiry=plan.expiry),
        cluster=ClusterSecurity(
            secret=None if plan.secret_file is None else load_secret(plan.secret_file)
        ),
    )
    async with (
        sphtp.open_client(servers, name="page", data=OBSERVER_DATA, config=config) as client,
        open_web(port=plan.web, page=True, config=config) as web,
    ):
        with web.observe_with(client):
            supervisor.status.page = web.page_url
            supervisor.status.notices.append(f"page: {web.page_url}")
            supervisor.changed()
            yield


async def _run(plan: ClusterPlan, supervisor: Supervisor, addresses: list[str]) -> None:
    if not plan.clients:
        await _stand(plan, supervisor, addresses)
        return
    supervisor.status.notices.append(f"to watch it: {plan.watching(addresses)}")
    supervisor.status.notices.extend(plan.observing())
    await Replacements(plan, supervisor, addresses).run()


@dataclass(eq=False)
class Replacements:
    """The run of clients and reference, and the replacement of lost processes.

    A process is lost if a signal kills it or its machine is gone; a process that ends by itself is
    not. Clients continue without a lost server, and a new server joins those that are left; the
    last server is not replaced. The state of a lost client is gone, so all clients start again from
    the first step. After ``max_restarts`` replacements, the loss of a client or the reference ends
    the run, and the loss of a server is a remark.
    """

    plan: ClusterPlan
    supervisor: Supervisor
    servers: list[str]
    restarts: int = 0
    attempt: int = 0

    async def run(self) -> None:
        """Start clients and reference; return when all have ended, or one has failed."""
        plan, supervisor, status = self.plan, self.supervisor, self.supervisor.status
        await self._start_clients()
        if plan.verify:
            await supervisor.start(plan.reference())
        while True:
            await supervisor.wait_until(
                lambda: _all_done(status) or _any_broken(status) or self._lost() is not None
            )
            lost = self._lost()
            if lost is None and _any_broken(status):
                # The other clients detect and report the failure. And the launcher may detect the
                # loss of a machine later than a client detects the loss of its peer.
                with trio.move_on_after(plan.grace + supervisor.launcher.loss_time):
                    await supervisor.wait_until(
                        lambda: (
                            self._lost() is not None
                            or not any(s.alive for s in status.of(ProcessRole.CLIENT))
                        )
                    )
                lost = self._lost()
            if lost is None:
                return
            await self._replace(lost)

    def _lost(self) -> ProcessStatus | None:
        """Return a lost process that may be replaced; None if there is none."""
        if self.restarts >= self.plan.max_restarts:
            return None
        for process in self.supervisor.status.processes.values():
            is_server = process.role is ProcessRole.SERVER
            if process.is_lost and (not is_server or self._others(process)):
                return process
        return None

    def _others(self, lost: ProcessStatus) -> list[str]:
        """Return the addresses of servers that are left."""
        servers = self.supervisor.status.of(ProcessRole.SERVER)
        return [s.address for s in servers if s.alive and s is not lost and s.address is not None]

    async def _replace(self, lost: ProcessStatus) -> None:
        supervisor, status = self.supervisor, self.supervisor.status
        self.restarts += 1
        again = "all clients start" if lost.role is ProcessRole.CLIENT else "it starts"
        sentence = f"{lost.name} was lost: {why(lost)}"
        status.replaced.append(f"{sentence}; it was replaced")
        count = f"{self.restarts} of {self.plan.max_restarts}"
        status.notices.append(f"{sentence}; {again} again ({count})")
        match lost.role:
            case ProcessRole.SERVER:
                number = int(lost.name.rpartition(" ")[2])
                server = await supervisor.start(self.plan.server(number, self._others(lost)))
                await _wait_for_servers([server], supervisor)
                self.servers = self._others(lost)
            case ProcessRole.CLIENT:
                await supervisor.stop([s.name for s in status.of(ProcessRole.CLIENT)])
                self.attempt += 1
                await self._start_clients()
            case _:
                await supervisor.start(self.plan.reference())

    async def _start_clients(self) -> None:
        for slab in range(self.plan.clients):
            await self.supervisor.start(self.plan.client(slab, self.servers, self.attempt))


async def _stand(plan: ClusterPlan, supervisor: Supervisor, addresses: list[str]) -> None:
    """Report how programs reach the servers, and wait until the last server has ended."""
    status = supervisor.status
    status.standing = {
        "servers": addresses,
        "secret_file": str(plan.secret_file),
        "environment": plan.variables(addresses),
    }
    if status.page is not None:
        status.standing["web"] = status.page
    status.notices.extend([*plan.observing(), *plan.for_programs(addresses)])
    supervisor.changed()
    await supervisor.wait_until(
        lambda: not any(process.alive for process in status.of(ProcessRole.SERVER))
    )


async def _start_servers(plan: ClusterPlan, supervisor: Supervisor) -> list[str]:
    """Start the first server, then the others, which join it.

    Return the addresses of those that listen.
    """
    first = await supervisor.start(plan.server(1, []))
    await _wait_for_servers([first], supervisor)
    if first.address is None:
        return []
    join = [first.address]
    others = [await supervisor.start(plan.server(n, join)) for n in range(2, plan.servers + 1)]
    await _wait_for_servers(others, supervisor)
    return [process.address for process in (first, *others) if process.address is not None]


async def _wait_for_servers(processes: list[ProcessStatus], supervisor: Supervisor) -> None:
    with trio.move_on_after(SERVER_START):
        await supervisor.wait_until(
            lambda: all(process.address or not process.alive for process in processes)
        )
    for process in processes:
        if process.alive and process.address is None:
            process.failure = f"did not report within {SERVER_START:.0f} s that it listens"


def _all_done(status: RunStatus) -> bool:
    return not any(process.alive for process in _workers(status))


def _any_broken(status: RunStatus) -> bool:
    return any(process.exit is not None and process.exit.code != 0 for process in _workers(status))


def _workers(status: RunStatus) -> list[ProcessStatus]:
    return status.of(ProcessRole.CLIENT) + status.of(ProcessRole.REFERENCE)
