"""The verb ``sphtp watch``: the state of a simulation, now and to its end."""

import sys
from dataclasses import dataclass
from typing import Any

import click
import trio
from rich.console import Console

from sphtp.errors import SettingsError, SphtpError
from sphtp_client.connection import ConnectionOptions
from sphtp_client.options import WATCH_OPTIONS, with_options
from sphtp_client.program import ExitStatus, run_until_stopped, write_line
from sphtp_client.simulation.reports import Failed
from sphtp_client.watch.display import (
    JsonWatchDisplay,
    LiveWatchDisplay,
    PlainWatchDisplay,
    WatchDisplay,
)
from sphtp_client.watch.watcher import StopCondition, Watcher
from sphtp_server.client_config import CONTEXT


@dataclass(frozen=True, kw_only=True)
class WatchOptions(ConnectionOptions):
    """The options of ``sphtp watch``, from the command line, the environment and the file."""

    steps: int | None
    seconds: float | None
    once: bool
    json: bool


@click.command(short_help="Watch a running simulation.", context_settings=CONTEXT)
@with_options(WATCH_OPTIONS)
def watch(**values: Any) -> None:
    """Watch a simulation from outside: show the state of every slab until the simulation ends.

    The simulation never waits for this command. Each client publishes the state of its slab a few
    times per second; the command reports lost states.

    Exit codes: 0 the simulation ended, or --steps, --seconds or --once ended the command, 2 usage
    or configuration, 3 no simulation was found, it broke off, or with --once a slab was missing,
    130 after Ctrl-C, 143 after SIGTERM.
    """
    options = WatchOptions(**values)
    try:
        verdict = _watch(options)
    except (SphtpError, OSError) as error:
        _complain(error, as_json=options.json)
        verdict = ExitStatus.USAGE if isinstance(error, SettingsError) else ExitStatus.FAILED
    sys.exit(verdict.code)


def _watch(options: WatchOptions) -> ExitStatus:
    stop = StopCondition(options.steps, options.seconds, options.once)
    connection = options.connection()
    with _display(as_json=options.json) as display:
        watcher = Watcher(connection, stop, display)
        stopped = trio.run(run_until_stopped, watcher.run)
    broke_off = watcher.outcome == "broken off"
    return stopped or (ExitStatus.FAILED if broke_off else ExitStatus.FINISHED)


def _display(*, as_json: bool) -> WatchDisplay:
    if as_json:
        return JsonWatchDisplay(sys.stdout)
    if sys.stdout.isatty():
        return LiveWatchDisplay(Console(file=sys.stdout))
    return PlainWatchDisplay(sys.stdout)


def _complain(error: Exception, *, as_json: bool) -> None:
    failed = Failed(message=str(error))
    if as_json:
        write_line(sys.stdout, failed.model_dump_json())
    else:
        write_line(sys.stderr, f"failed: {failed.message}")
