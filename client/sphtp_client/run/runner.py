"""The course of a run: start and stop processes as the rules decide."""

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from sphtp_client.cluster.course import client_variables, sphtp_command
from sphtp_client.cluster.launcher import LOOPBACK, ProcessSpec
from sphtp_client.cluster.process import StopTimeouts
from sphtp_client.cluster.run_status import ProcessRole
from sphtp_client.cluster.supervisor import Supervisor, open_supervisor
from sphtp_client.program import ExitStatus, run_until_stopped
from sphtp_client.run import guard
from sphtp_client.run.board import RunBoard
from sphtp_client.run.rules import Rules
from sphtp_client.run.run_file import Program, RunFile, server_names

TICK = 1.0
"""Seconds between two drawings of the table if no event occurs."""

GUARD_MARGIN = 5.0
"""Seconds that a guard has, after the grace time, to kill processes and end."""


@dataclass(frozen=True)
class RunPlan:
    """A run file, and the file with the secret of its cluster; None without a secret."""

    run: RunFile
    secret_file: Path | None

    def variables(self, addresses: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables by which clients reach the servers.

        ``addresses`` maps the names of started servers to their addresses.
        """
        servers = self.run.servers
        ours = [addresses[name] for name in server_names(servers) if name in addresses]
        return client_variables(
            ours or servers.addresses, self.secret_file, servers.heartbeat, servers.expiry
        )

    def status_command(self, addresses: Mapping[str, str]) -> str:
        """Return a command line that prints the status of the first server."""
        first = addresses[server_names(self.run.servers)[0]]
        return shlex.join(("sphtp", "status", first, *self._secret()))

    def spec(self, name: str, addresses: Mapping[str, str]) -> ProcessSpec:
        """Return the specification of the process of a server or a program."""
        program = next((each for each in self.run.programs if each.name == name), None)
        return (
            self._server(name, addresses) if program is None else self._program(program, addresses)
        )

    def _server(self, name: str, addresses: Mapping[str, str]) -> ProcessSpec:
        """Return the process of a server; after a restart it has the same ports."""
        servers = self.run.servers
        others = [address for other, address in addresses.items() if other != name]
        joins = [word for address in others for word in ("--join", address)]
        is_first = not others and name not in addresses
        options = (
            *("--host", LOOPBACK, *_ports(addresses.get(name))),
            *(("--new",) if is_first else joins),
            *("--heartbeat", str(servers.heartbeat), "--expiry", str(servers.expiry)),
            *self._secret(),
            *("--log-format", "json", "--exit-with-stdin", *servers.options),
        )
        return ProcessSpec(name, ProcessRole.SERVER, sphtp_command("server", *options))

    def _secret(self) -> tuple[str, ...]:
        return () if self.secret_file is None else ("--secret-file", str(self.secret_file))

    def _program(self, program: Program, addresses: Mapping[str, str]) -> ProcessSpec:
        table = program.table
        command = (
            *(sys.executable, "-I", "-S", guard.__file__, table.stop_signal, str(table.grace)),
            *program.command,
        )
        return ProcessSpec(
            program.name,
            ProcessRole.PROGRAM,
            command,
            # Variables in the file override those that the run adds.
            environment=self.variables(addresses) | dict(program.environment),
            directory=program.directory,
            # The guard stops the program when its standard input closes.
            timeouts=StopTimeouts(close=table.grace + GUARD_MARGIN),
        )


def _ports(address: str | None) -> tuple[str, ...]:
    pub, sub = (url.rpartition(":")[2] for url in (address or ":0,:0").split(","))
    return ("--pub-port", pub, "--sub-port", sub)


async def perform_run(
    plan: RunPlan, board: RunBoard, changed: Callable[[], None]
) -> ExitStatus | None:
    """Carry out a plan to its end, and end all processes.

    Return the exit status for the signal that ended the run; None without a signal.
    """

    async def perform() -> None:
        async with open_supervisor(board, changed) as supervisor:
            try:
                await _perform(plan, board, supervisor)
            finally:
                board.is_stopping = True
                with trio.CancelScope(shield=True):
                    for names in board.rules.stop_order():
                        await supervisor.stop(names)

    return await run_until_stopped(perform)


async def _perform(plan: RunPlan, board: RunBoard, supervisor: Supervisor) -> None:
    rules, has_stood = board.rules, False
    while rules.end is None:
        seen = board.changes
        for name in rules.poll_starts(board.clock()):
            await supervisor.start(plan.spec(name, board.addresses))
        if not has_stood and _stand(rules, plan):
            has_stood = True
            _introduce(plan, board)
            supervisor.changed()
        with trio.move_on_after(min(TICK, max(0.0, rules.next_alarm() - board.clock()))):
            await supervisor.wait_until(partial(board.has_changed, seen))
        supervisor.changed()


def _stand(rules: Rules, plan: RunPlan) -> bool:
    return all(rules.states[name].is_ready for name in server_names(plan.run.servers))


def _introduce(plan: RunPlan, board: RunBoard) -> None:
    """Add a notice on started servers; in JSON with the variables by which programs reach them."""
    variables = plan.variables(board.addresses)
    if board.addresses:
        text = f"to see the servers: {plan.status_command(board.addresses)}"
        board.note("servers", text, environment=variables)
