"""The verb ``sphtp cluster``: run servers and clients, on this machine or on many."""

import json as json_format
import sys
import time
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from secrets import token_hex
from typing import Any

import click
import trio
from rich.console import Console

from sphtp.__main__ import how_to_get
from sphtp.config import ControlTimers
from sphtp.errors import SettingsError, SphtpError
from sphtp.shell.addresses import MOST_PORT
from sphtp_client.cluster.course import ClusterPlan, run_cluster, secret_file
from sphtp_client.cluster.display import (
    LiveRunDisplay,
    NoRunDisplay,
    PlainRunDisplay,
    RunDisplay,
    StandingDisplay,
)
from sphtp_client.cluster.launcher import find_launcher
from sphtp_client.cluster.outcome import RunOutcome, document, judge, judge_standing
from sphtp_client.cluster.run_status import RunStatus
from sphtp_client.connection import make_log_directory
from sphtp_client.options import CLUSTER_OPTIONS, channel_settings, with_options
from sphtp_client.program import ExitStatus, write_line
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import borders
from sphtp_server.registry.location import EtcdLocation


@click.command(short_help="Run servers and clients, here or elsewhere, and verify the result.")
@with_options(CLUSTER_OPTIONS)
def cluster(scenario: Path, steps: int | None, json: bool, **values: Any) -> None:
    """Run servers and clients until the scenario has been simulated.

    The processes run on this machine. With --on, an engine places them on other machines:
    dask://HOST:PORT on the workers of a Dask scheduler, slurm in the present Slurm allocation.

    The processes share a secret made for the run. With --verify, the command compares the final
    state with that of the same simulation in one process. When the command ends for any reason, all
    processes end.

    With --clients 0, only servers run, for your own programs. The command prints their addresses
    and the file with the secret, with --json as one document, and runs until Ctrl-C or SIGTERM,
    which then give exit code 0.

    Exit codes: 0 verified or finished, 1 the final states differ, 2 usage or configuration, 3 a
    process or the page failed, 130 after Ctrl-C, 143 after SIGTERM.
    """
    try:
        plan = _plan(scenario, steps, values)
    except SettingsError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitStatus.USAGE.code)
    status, began = RunStatus(), time.monotonic()
    with _display(status, plan, json) as display, secret_file() as secret:
        kept = replace(plan, secret_file=secret)
        try:
            stopped_by = trio.run(partial(run_cluster, kept, status, display.changed))
        except SphtpError as error:
            print(error, file=sys.stderr)
            is_usage = isinstance(error, SettingsError)
            sys.exit((ExitStatus.USAGE if is_usage else ExitStatus.FAILED).code)
    if plan.clients:
        outcome = judge(status, verify=plan.verify, stopped_by=stopped_by)
    else:
        outcome = judge_standing(status, stopped_by)
    seconds = time.monotonic() - began
    if not plan.clients and json:
        pass  # The document has been printed.
    elif json:
        report = document(outcome, status, plan.settings(), seconds)
        write_line(sys.stdout, json_format.dumps(report, indent=2))
    else:
        _write_outcome(outcome, seconds)
    sys.exit(outcome.verdict.code)


def _plan(scenario: Path, steps: int | None, values: dict[str, Any]) -> ClusterPlan:
    """Return the plan, after checking the parameters. Raises ``SettingsError``."""
    loaded = load_scenario(scenario)
    chosen = loaded.steps if steps is None else steps
    if values["registry"] is not None:
        values["registry"] = _registry(values["registry"])
    plan = ClusterPlan(
        scenario=scenario.resolve(), steps=chosen, max_restarts=loaded.max_restarts, **values
    )
    if plan.clients:
        borders(loaded, plan.clients, "--clients")
    elif plan.verify:
        raise SettingsError("--verify: with --clients 0 nothing is simulated")
    ControlTimers(heartbeat=plan.heartbeat, expiry=plan.expiry)
    channel_settings(plan.channel_timeout, plan.resend_time)
    find_launcher(plan.on)
    if plan.network is not None:
        _check_network(plan.network)
    if plan.metrics is not None:
        _check_metrics(plan.metrics + plan.servers + plan.clients - 1)
    if plan.web is not None:
        _check_extra("--web")
    if plan.qlog is not None:
        make_log_directory(plan.qlog)
    return plan


def _registry(text: str) -> str:
    """Return the address of a registry on etcd, with a new name for this run if it has none."""
    location = EtcdLocation.parse(text)
    has_name = "/" in text.partition("://")[2]
    return str(location if has_name else replace(location, name=f"run-{token_hex(4)}"))


def _check_network(network: str) -> None:
    try:
        ip_network(network, strict=False)
    except ValueError as error:
        raise SettingsError(f"--network = {network}: {error}") from error


def _check_metrics(last: int) -> None:
    """Check that the children can serve metrics. Raises ``SettingsError``."""
    if last > MOST_PORT:
        raise SettingsError(f"--metrics: the last process would have port {last}, over {MOST_PORT}")
    _check_extra("--metrics")


def _check_extra(option: str) -> None:
    """Raise ``SettingsError``, with the remedy, if a package for an option is not installed."""
    try:
        import sphtp.shell.web  # noqa: F401
    except ModuleNotFoundError as error:
        raise SettingsError(how_to_get(option, error) or str(error)) from error


def _display(status: RunStatus, plan: ClusterPlan, json: bool) -> RunDisplay:
    """Return the display of a run: a table if there are clients, and on a terminal; else lines.

    With ``--json`` the table goes to standard error, and there are no lines. Without clients,
    standard output gets one JSON document instead.
    """
    stream = sys.stderr if json else sys.stdout
    if stream.isatty() and plan.clients:
        return LiveRunDisplay(status, plan.steps, time.monotonic, Console(file=stream))
    if json and not plan.clients:
        return StandingDisplay(status, sys.stdout)
    if json:
        return NoRunDisplay()
    return PlainRunDisplay(status, plan.steps, time.monotonic, stream)


def _write_outcome(outcome: RunOutcome, seconds: float) -> None:
    for remark in outcome.remarks:
        write_line(sys.stdout, remark)
    write_line(sys.stdout, f"{outcome.sentence} ({seconds:.1f} s)")
