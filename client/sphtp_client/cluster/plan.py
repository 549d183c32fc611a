"""The plan of a cluster run: which processes, with which command lines."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphtp_client.cluster.run_status import Role
from sphtp_client.cluster.supervisor import Job

HOST = "127.0.0.1"


@dataclass(frozen=True)
class ClusterPlan:
    """What a run was asked to be; seconds for every time."""

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
    secret_file: Path | None = None

    @property
    def grace(self) -> float:
        """How long, once a client has failed, the others may take to find out and say so."""
        return self.channel_timeout + 2 * self.expiry + 5.0

    def settings(self) -> dict[str, Any]:
        """Return what the JSON document repeats."""
        return {
            "servers": self.servers,
            "clients": self.clients,
            "scenario": str(self.scenario),
            "steps": self.steps,
            "loss": self.loss,
            "duplicate": self.duplicate,
            "reorder": self.reorder,
            "seed": self.seed,
        }

    def server(self, number: int, join: str | None) -> Job:
        """Return the job of a server; the first one founds the cluster that others join."""
        place = ("--new",) if join is None else ("--join", join)
        options = (
            *("--host", HOST, "--pub-port", "0", "--sub-port", "0", *place),
            *(*self._timers(), *self._secret()),
            *("--log-format", "json", "--exit-with-stdin"),
        )
        return Job(f"server {number}", Role.SERVER, _sphtp("server", *options))

    def client(self, slab: int, servers: Sequence[str]) -> Job:
        """Return the job of the client that simulates one slab."""
        addresses = [part for address in servers for part in ("--server", address)]
        options = (
            *addresses,
            *("--slab", str(slab), "--slabs", str(self.clients), *self._work()),
            *("--loss", str(self.loss), "--duplicate", str(self.duplicate)),
            *("--reorder", str(self.reorder), "--channel-timeout", str(self.channel_timeout)),
            *("--resend-time", str(self.resend_time), "--wait", str(self.wait)),
            *(*self._timers(), *self._seed(slab), *self._qlog(slab), *self._secret()),
        )
        return Job(f"client {slab}", Role.CLIENT, _sphtp("client", *options), slab)

    def reference(self) -> Job:
        """Return the job of the same run in one process, which needs nobody."""
        return Job("reference", Role.REFERENCE, _sphtp("client", "--alone", *self._work()))

    def watching(self, servers: Sequence[str]) -> str:
        """Return the command that watches this run, for people."""
        return shlex.join(("sphtp", "watch", "--server", servers[0], *self._secret()))

    def _work(self) -> tuple[str, ...]:
        return (
            *("--scenario", str(self.scenario), "--steps", str(self.steps)),
            *("--report", "json", "--exit-with-stdin"),
        )

    def _timers(self) -> tuple[str, ...]:
        return ("--heartbeat", str(self.heartbeat), "--expiry", str(self.expiry))

    def _secret(self) -> tuple[str, ...]:
        return () if self.secret_file is None else ("--secret-file", str(self.secret_file))

    def _qlog(self, slab: int) -> tuple[str, ...]:
        return () if self.qlog is None else ("--qlog", str(self.qlog / f"client-{slab}.sqlog"))

    def _seed(self, slab: int) -> tuple[str, ...]:
        return () if self.seed is None else ("--seed", str(self.seed + slab))


def _sphtp(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "sphtp", *arguments)
