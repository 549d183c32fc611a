"""The verb ``sphtp status``: print the status of a server."""

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sphtp import Config, ServerAddress
from sphtp.config import ControlTimers
from sphtp.core.printable import printable
from sphtp.errors import BusError, SettingsError, UnreachableError
from sphtp.observe import fetch_status
from sphtp.security import ClusterSecurity, Tls, load_secret, parse_key
from sphtp.shell.discovery import local_servers
from sphtp_server.client_config import CONTEXT, config_option
from sphtp_server.local import parse_address

UNREACHABLE: Final = 4
INTERRUPTED: Final = 130

DEFAULT_ADDRESS: Final = ServerAddress.parse("tcp://127.0.0.1:8764")
"""The default address of a server."""

_FILE: Final = click.Path(dir_okay=False, path_type=Path)

IDS: Final = frozenset(("id",))
"""The names of the values that are printed in hexadecimal."""

FOR_PROGRAMS: Final = frozenset(("revision", "told_by"))
"""The details of the protocol that appear only in JSON."""


def _choose_address(given: ServerAddress | None, known: Sequence[str]) -> ServerAddress:
    """Return the given address, else the first known one, else that of an announced server.

    Without any of them return ``DEFAULT_ADDRESS``. Raises ``SettingsError`` for a malformed
    address, and ``click.UsageError`` if servers of several clusters are announced.
    """
    if given is not None:
        return given
    if known:
        return ServerAddress.parse(known[0])
    servers = local_servers()
    if not servers:
        # A server may belong to another user, or announce itself nowhere.
        return DEFAULT_ADDRESS
    if len({each.announcement.cluster for each in servers}) == 1:
        # Each server knows the other servers of its cluster.
        return servers[0].announcement.address
    here = ", ".join(str(each.announcement.address) for each in servers)
    raise click.UsageError(f"there are servers of several clusters here; name one: {here}")


@click.command(short_help="Print a server's view, clients and counters.", context_settings=CONTEXT)
@config_option
@click.argument("address", default="", callback=parse_address)
@click.option(
    "--server",
    metavar="ADDRESS",
    multiple=True,
    help="Address of the server, tcp://host:port, if ADDRESS is left out; only the first is used.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="SPHTP_CLIENT_JSON",
    help="Print a JSON document instead of tables.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="Longest wait for the reply, in seconds.",
)
@click.option("--secret-file", type=_FILE, metavar="FILE", help="File with the cluster's secret.")
@click.option(
    "--server-key",
    metavar="KEY",
    multiple=True,
    help="Public key of the server, or of a cluster that certifies it; repeatable.",
)
@click.option(
    "--tls-ca",
    type=_FILE,
    metavar="FILE",
    help="Authority in PEM that signed the server's certificate.",
)
@click.option(
    "--tls-cert",
    type=_FILE,
    metavar="FILE",
    help="Certificate in PEM, for a server that requires one.",
)
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The private key of --tls-cert.")
def status(
    address: ServerAddress | None,
    server: tuple[str, ...],
    as_json: bool,
    timeout: float,
    secret_file: Path | None,
    server_key: tuple[str, ...],
    **tls: Path | None,
) -> None:
    """Print the view, the clients and the counters of the server at ADDRESS.

    Without ADDRESS the command requests them from the first --server; without that, from a server
    of yours that is announced on this machine; and else from tcp://127.0.0.1:8764. If the server
    does not reply, the error names the cause, such as a refused connection, a wrong secret, or a
    certificate that is not accepted.

    Exit codes: 0 the server replied, 2 wrong arguments, 4 no reply, 130 after Ctrl-C.
    """
    try:
        secret = None if secret_file is None else load_secret(secret_file)
        keys = tuple(map(parse_key, server_key))
        config = Config(
            cluster=ClusterSecurity(secret=secret, server_keys=keys, tls=_certificates(**tls)),
            timers=ControlTimers(answer_timeout=timeout),
        )
        document = trio.run(partial(fetch_status, _choose_address(address, server), config=config))
    except (BusError, SettingsError) as error:
        raise click.UsageError(str(error)) from error
    except UnreachableError as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
        sys.exit(UNREACHABLE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        show(document, Console())


def _certificates(tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None) -> Tls | None:
    return Tls(tls_ca, tls_cert, tls_key) if tls_ca or tls_cert or tls_key else None


def show(document: dict[str, Any], console: Console, title: str = "server") -> None:
    """Print a document: scalars in one table, and each list or object under its own heading."""
    plain = {name: value for name, value in document.items() if not isinstance(value, dict | list)}
    if plain:
        console.print(_heading(title), _pairs(plain))
    for name, value in document.items():
        if isinstance(value, dict):
            show(value, console, name)
        elif isinstance(value, list):
            console.print(_heading(f"{name} ({len(value)})"))
            console.print(*_rows(name, value), end="")


def _heading(title: str) -> Text:
    heading = _cell(title)
    heading.stylize("bold")
    return heading


def _pairs(values: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    for name, value in values.items():
        table.add_row(_cell(name), _value(name, value))
    return table


def _rows(title: str, values: list[Any]) -> Iterator[Table]:
    rows = [value if isinstance(value, dict) else {title: value} for value in values]
    columns = dict.fromkeys(name for row in rows for name in row if name not in FOR_PROGRAMS)
    if not columns:
        return
    table = Table()
    for name in columns:
        table.add_column(_cell(name))
    for row in rows:
        table.add_row(*(_value(name, row.get(name, "")) for name in columns))
    yield table


def _value(name: str, value: Any) -> Text:
    if name in IDS and isinstance(value, int):
        return _cell(f"{value:#010x}")
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return _cell(", ".join(value))
    return _cell(value)


def _cell(value: Any) -> Text:
    # The text comes from a server: neither its markup nor its escape sequences may take effect.
    text = value if isinstance(value, str) else json.dumps(value)
    return Text(printable(text))
