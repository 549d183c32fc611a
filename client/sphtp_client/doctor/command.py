"""The verb ``sphtp doctor``: print the findings on a machine and a cluster."""

from functools import partial
from typing import Any, Final

import click

from sphtp_client.doctor.collection import collect
from sphtp_client.doctor.findings import Finding, Level, judge
from sphtp_client.options import TERMINAL_OPTIONS, with_options
from sphtp_client.terminal.connection import EarlyEndError, Output, TerminalOptions, run_verb
from sphtp_server.client_config import CONTEXT

FAULTY: Final = 1


@click.command(
    short_help="Look for faults of this machine and of a cluster.", context_settings=CONTEXT
)
@click.argument("address", default="")
@with_options(TERMINAL_OPTIONS)
def doctor(address: str, **values: Any) -> None:
    """Look for faults that keep programs on this machine from working with a cluster.

    Prints a line for each finding: ok, warning or fault. Below a warning or a fault stands a
    command that mends it or shows more, or a call for the peer's program. The command checks this
    machine (receive buffer, descriptors, ports, multicast, shared memory), the keys, each server,
    the registration, the cluster's time, and each peer: it opens a channel to the peer, and
    searches for the largest datagram that arrives there. The programs of peers do not notice the
    checks.

    ADDRESS is the address of a server, tcp://host:port. Without it and --server, the command
    searches for a cluster that announces itself on this machine, then on this network, and then for
    a server at tcp://127.0.0.1:8764.

    Exit codes: 0 no fault, 1 a fault, 2 wrong arguments, 130 after Ctrl-C, 143 after SIGTERM.
    """
    options = TerminalOptions.at(address, values)
    run_verb(partial(_examine, options), as_json=options.json)


async def _examine(options: TerminalOptions) -> None:
    output = Output(as_json=options.json)
    findings = judge(await collect(options))
    for finding in findings:
        _print_finding(output, finding)
    levels = [finding.level for finding in findings]
    faults, warnings = levels.count(Level.FAULT), levels.count(Level.WARNING)
    text = f"{len(levels)} checks, {faults} faults, {warnings} warnings"
    output.event("summary", text, checks=len(levels), faults=faults, warnings=warnings)
    if faults:
        raise EarlyEndError(FAULTY)


def _print_finding(output: Output, finding: Finding) -> None:
    text = f"{finding.level.value:8} {finding.check}: {finding.text}"
    if finding.remedy:
        text += f"\n         do: {finding.remedy}"
    output.event(
        "finding",
        text,
        check=finding.check,
        level=finding.level.value,
        text=finding.text,
        remedy=finding.remedy,
    )
