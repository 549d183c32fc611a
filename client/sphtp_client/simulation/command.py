"""The verb ``sphtp client``: one simulation client, or a whole run alone."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from sphtp.errors import SettingsError, SphtpError
from sphtp_client.connection import ConnectionOptions
from sphtp_client.options import CLIENT_OPTIONS, with_options
from sphtp_client.program import ExitStatus, run_until_stopped
from sphtp_client.simulation.peer import run_alone, run_peer
from sphtp_client.simulation.peer_links import PeerGoneError, SlabJob
from sphtp_client.simulation.reports import REPORTERS, Failed, Reporter
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import borders
from sphtp_server.client_config import CONTEXT


@dataclass(frozen=True, kw_only=True)
class ClientOptions(ConnectionOptions):
    """The options of ``sphtp client``, from the command line, the environment and the file."""

    scenario: Path
    slab: int
    slabs: int
    run: str
    steps: int | None
    json: bool
    alone: bool
    exit_with_stdin: bool


@click.command(short_help="Simulate one slab of a scenario.", context_settings=CONTEXT)
@with_options(CLIENT_OPTIONS)
def client(**values: Any) -> None:
    """Simulate one slab of a scenario, together with the clients of the other slabs.

    A scenario is a box of colliding spheres, divided into slabs along one axis. Start one client
    per slab, in any order and on any machine; the servers introduce them to each other.

    Exit codes: 0 finished, 2 usage or configuration, 3 a server or a peer could not be reached, a
    peer left, or the simulation failed, 130 after Ctrl-C, 143 after SIGTERM, SIGHUP, SIGUSR1 or
    SIGUSR2, or with --exit-with-stdin when standard input closes.
    """
    options = ClientOptions(**values)
    reporter = REPORTERS["json" if options.json else "text"](sys.stdout, sys.stderr)
    try:
        work = _prepare(options, reporter)
        stopped = trio.run(partial(run_until_stopped, work, with_stdin=options.exit_with_stdin))
    except (SphtpError, trio.BrokenResourceError, OSError, ModuleNotFoundError) as error:
        sys.exit(_explain(error, reporter).code)
    sys.exit(stopped.code if stopped else 0)


def _prepare(options: ClientOptions, reporter: Reporter) -> Any:
    scenario = load_scenario(options.scenario)
    steps = scenario.steps if options.steps is None else options.steps
    if options.alone:
        if options.qlog is not None:
            raise SettingsError("--qlog: a client that simulates --alone has no channels to log")
        if options.metrics is not None:
            raise SettingsError("--metrics: a client that simulates --alone has no channels")
        if options.web is not None:
            raise SettingsError("--web: a client that simulates --alone is in no cluster")
        return partial(run_alone, scenario, steps, reporter)
    borders(scenario, options.slabs, "--slabs")
    job = SlabJob(scenario, options.slab, options.slabs, steps, options.run)
    return partial(run_peer, job, options.connection(), reporter)


def _explain(error: Exception, reporter: Reporter) -> ExitStatus:
    if isinstance(error, PeerGoneError):
        reporter.report(error.event)
    reporter.report(Failed(message=str(error)))
    is_usage = isinstance(error, SettingsError | ModuleNotFoundError)
    return ExitStatus.USAGE if is_usage else ExitStatus.FAILED
