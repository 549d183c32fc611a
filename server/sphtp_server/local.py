"""The verb ``sphtp drain``, and the choice of a server of this user on this machine."""

import errno
import json
import os
import select
import signal
import sys
from collections.abc import Iterable
from typing import Final

import click

from sphtp.core.control.records import ServerAddress
from sphtp.errors import SettingsError
from sphtp.shell.discovery import LocalServer, local_servers

NOT_FOUND: Final = 4
INTERRUPTED: Final = 130


def parse_address(ctx: click.Context, param: click.Parameter, value: str) -> ServerAddress | None:
    """Parse the argument ADDRESS; return None if it is empty.

    Raises ``click.BadParameter`` if it is malformed.
    """
    if not value:
        return None
    try:
        return ServerAddress.parse(value)
    except SettingsError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def choose(servers: Iterable[LocalServer], wanted: ServerAddress | None) -> LocalServer | str:
    """Return the server with the address ``wanted``, or the only one; else an error text."""
    found = {each.announcement.address: each for each in servers}
    if not found:
        return "no server of yours is announced on this machine"
    here = ", ".join(map(str, found))
    if wanted is not None:
        return found.get(wanted) or f"no server of yours here is at {wanted}; found: {here}"
    if len(found) > 1:
        return f"there are {len(found)} servers of yours here; name one: {here}"
    return next(iter(found.values()))


@click.command(short_help="End a server after its clients have reached other servers.")
@click.argument("address", default="", callback=parse_address)
@click.option("--no-wait", is_flag=True, help="Do not wait for the end of the server.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a line.")
def drain(address: ServerAddress | None, no_wait: bool, as_json: bool) -> None:
    """End a server of yours on this machine without a gap for its clients.

    The server runs until other servers receive the heartbeats of all its clients, for the
    drain_time in its settings at most, and then leaves. ADDRESS may be left out if only one server
    of yours is announced here. The command sends SIGUSR1 to the server. To drain a server with
    --no-announce, or on another machine, send this signal yourself.

    Exit codes: 0 the server has ended, or with --no-wait the signal was sent, 2 wrong arguments, 4
    no such server, several without ADDRESS, or the signal cannot be sent, 130 after Ctrl-C.
    """
    server = choose(local_servers(), address)
    if isinstance(server, str):
        click.echo(f"Error: {server}", err=True)
        sys.exit(NOT_FOUND)
    try:
        process = os.pidfd_open(server.pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGUSR1)
            if not no_wait:
                # The descriptor becomes readable when the process has ended.
                select.select([process], [], [])
        finally:
            os.close(process)
    except OSError as error:
        if error.errno != errno.ESRCH:
            click.echo(f"Error: process {server.pid}: {error.strerror}", err=True)
            sys.exit(NOT_FOUND)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    place, has_left = str(server.announcement.address), not no_wait
    if as_json:
        click.echo(json.dumps({"address": place, "left": has_left}))
    elif has_left:
        click.echo(f"server {place} has left")
