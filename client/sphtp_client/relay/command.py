"""The verb ``sphtp relay``: forward UDP datagrams over a simulated bad network."""

from functools import partial
from random import SystemRandom
from typing import Any

import click
import trio

from sphtp.errors import SettingsError, UnreachableError
from sphtp.testing.network import Address
from sphtp_client.options import with_options
from sphtp_client.program import run_until_stopped
from sphtp_client.relay.impairment import Direction, Traffic
from sphtp_client.relay.options import RELAY_OPTIONS, faults_from
from sphtp_client.relay.relay import open_relay
from sphtp_client.relay.report import (
    JsonRelayReporter,
    RelayReporter,
    RelayStart,
    TextRelayReporter,
)


@click.command(short_help="Forward UDP datagrams over a simulated bad network.")
@with_options(RELAY_OPTIONS)
def relay(**values: Any) -> None:
    """Forward UDP datagrams from LISTEN to TARGET and back, and apply faults to them.

    Both are host:port, such as 127.0.0.1:9000; with port 0, LISTEN takes any free port. All clients
    share one link in each direction, with one rate and one queue. The options of faults apply to
    both directions. Each has two more forms for one direction, such as --up-loss (towards the
    target) and --down-loss (towards the clients).

    Messages between programs of one user on one machine may go through shared memory, and do not
    pass the relay. Set shared_memory=0 in these programs.

    Ctrl-C ends the relay and prints the figures of both directions. Exit codes: 0 a normal end, 2
    wrong arguments, or an address that cannot be used.
    """
    seed = SystemRandom().getrandbits(32) if values["seed"] is None else values["seed"]
    report = JsonRelayReporter() if values["as_json"] else TextRelayReporter()
    work = partial(_relay, values, seed, report)
    try:
        trio.run(run_until_stopped, work)
    except (SettingsError, UnreachableError) as error:
        raise click.UsageError(str(error)) from error


async def _relay(values: dict[str, Any], seed: int, report: RelayReporter) -> None:
    up, down = (faults_from(values, way) for way in Direction)
    traffic = Traffic(seed, up, down, clients=values["clients"], idle=values["idle"])
    listen: Address = values["listen"]
    target: Address = values["target"]
    began = trio.current_time()
    async with open_relay(listen, target, traffic) as running:
        report.listening(RelayStart(running.address, running.target, up, down, seed))
        shown = running.statistics()
        try:
            with trio.move_on_after(values["duration"] or float("inf")):
                while True:
                    await trio.sleep(values["every"])
                    statistics = running.statistics()
                    if statistics != shown:
                        report.progress(trio.current_time() - began, statistics)
                        shown = statistics
        finally:
            report.finished(trio.current_time() - began, running.statistics())
