"""The verb ``sphtp peers``: list the other clients of a cluster, as its servers introduce them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import click
import trio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sphtp import Client, Peer
from sphtp.core.printable import printable
from sphtp.observe import fetch_status
from sphtp_client.options import TERMINAL_OPTIONS, with_options
from sphtp_client.terminal.connection import Output, TerminalOptions, facts_of, run_verb, shown
from sphtp_client.terminal.values import to_json
from sphtp_server.client_config import CONTEXT

LONGEST_CELL = 60
"""The characters of a peer's data in the table, after which it is cut."""


@click.command(
    short_help="List the peers of a cluster, with their topics.", context_settings=CONTEXT
)
@click.argument("address", default="")
@with_options(TERMINAL_OPTIONS)
def peers(address: str, **values: Any) -> None:
    """List the peers of a cluster: name, id, addresses, groups, topics and data.

    ADDRESS is the address of a server, tcp://host:port. Without it and --server, the command
    searches for a cluster that announces itself on this machine, and then on this network.

    Exit codes: 0 the peers are listed, 2 wrong arguments, 3 no server was found, or none replied,
    130 after Ctrl-C, 143 after SIGTERM.
    """
    options = TerminalOptions.at(address, values)
    run_verb(partial(_list, options), as_json=options.json)


async def _list(options: TerminalOptions) -> None:
    output = Output(as_json=options.json)
    async with options.open() as client:
        found = await introduced(client, options)
    if options.json:
        for peer in found:
            output.event("peer", "", **facts_of(peer), **_details(peer))
    elif found:
        _print_table(output, found)
    else:
        output.line("no peers")


async def introduced(client: Client, options: TerminalOptions) -> list[Peer]:
    """Wait until all clients of a server are introduced, or a timeout; return the peers, sorted.

    Raises as ``fetch_status``.
    """
    config = options.config()
    with trio.move_on_after(options.timeout):
        addresses = [it.address for it in client.servers.values() if it.address is not None]
        if addresses:
            status = await fetch_status(addresses[0], config=config)
            for number in clients_untrusted(status):
                if number != client.id:
                    await client.wait_for_peer(number)
    return sorted(client.peers.values(), key=lambda peer: (peer.name, peer.id))


def clients_untrusted(status: Mapping[str, Any]) -> list[int]:
    """Return the ids of a server's clients from its status, without malformed ones."""
    rows = status.get("clients")
    rows = rows if isinstance(rows, list) else []
    found = [row.get("id") for row in rows if isinstance(row, dict)]
    return [number for number in found if isinstance(number, int)]


def _details(peer: Peer) -> dict[str, Any]:
    return {
        "addresses": [f"{host}:{port}" for host, port in peer.addresses],
        "groups": list(peer.groups),
        "topics": list(peer.topics),
        "data": to_json(peer.data),
    }


def _print_table(output: Output, found: list[Peer]) -> None:
    table = Table()
    for title in ("name", "id", "addresses", "groups", "topics", "data"):
        table.add_column(title)
    for peer in found:
        details = _details(peer)
        lists = (", ".join(details[key]) for key in ("addresses", "groups", "topics"))
        data = "" if peer.data is None else printable(shown(peer.data), LONGEST_CELL)
        # The text comes from a peer: neither its markup nor its escape sequences may take effect.
        cells = (peer.name, f"{peer.id:#010x}", *lists, data)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console()
    with console.capture() as capture:
        console.print(table)
    output.line(capture.get().rstrip("\n"))
