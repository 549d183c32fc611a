"""The verb ``sphtp config``: check settings before a program starts with them."""

import json
import os
from importlib.metadata import entry_points
from pathlib import Path

import click

from sphtp.__main__ import GROUP, how_to_get
from sphtp.errors import SettingsError
from sphtp_server.client_config import check_client
from sphtp_server.settings import SOURCES, ServerSettings
from sphtp_server.sources import Setting


@click.group(short_help="Check a configuration before a program starts with it.")
def config() -> None:
    """Check configurations."""


@config.command(short_help="Check the settings of a server or client, and the files they name.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--client", is_flag=True, help="Check the settings of sphtp client, not of a server.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of lines.")
def check(file: Path | None, client: bool, as_json: bool) -> None:
    """Check the settings of a server, or with --client of a client, without starting it.

    These are the settings with which sphtp server --config FILE would start. The command reads
    FILE, the environment variables SPHTP_SERVER_... or SPHTP_CLIENT_..., and the files that the
    settings name: keys, certificates, the secret. It also loads the packages that the settings
    need. It binds no port, and connects to no other program. It prints the settings that are given,
    those of a server with their sources. Without FILE, the variable SPHTP_SERVER_CONFIG or
    SPHTP_CLIENT_CONFIG names the file.

    Exit codes: 0 a program would start with these settings, 2 a setting is wrong, or a package is
    missing; the error names it.
    """
    try:
        given = _check_client(file) if client else _check_server(file)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    program = "client" if client else "server"
    if as_json:
        settings = {
            name: {"value": one.value, "from": one.origin or None} for name, one in given.items()
        }
        click.echo(json.dumps({"program": program, "settings": settings}, default=str, indent=2))
        return
    for name, one in given.items():
        origin = f"  ({one.origin})" if one.origin else ""
        click.echo(f"{name} = {one.value!s}{origin}")
    click.echo(f"a {program} would start with these settings")


def _check_server(file: Path | None) -> dict[str, Setting]:
    variable = SOURCES.variable("config")
    path = file or (Path(os.environ[variable]) if os.environ.get(variable) else None)
    settings = SOURCES.load({}, os.environ, path)
    check_files(settings)
    given = SOURCES.settings({}, os.environ, path)
    return {name: Setting(one.origin, getattr(settings, name)) for name, one in given.items()}


def _check_client(file: Path | None) -> dict[str, Setting]:
    # The command of another package, which this package must not import.
    (verb,) = entry_points(group=GROUP, name="client")
    try:
        given = check_client(verb.load(), file)
    except ModuleNotFoundError as error:
        raise SettingsError(how_to_get("sphtp client", error) or str(error)) from error
    return {name: Setting("", value) for name, value in given.items()}


def check_files(settings: ServerSettings) -> None:
    """Read all files that settings name, and load the packages that they need, as a server does.

    Raises ``SettingsError`` if a file is wrong, a package is missing, or settings contradict each
    other.
    """
    settings.require_agreement()
    settings.admit()
    try:
        settings.load_packages()
        settings.store()
    except ModuleNotFoundError as error:
        raise SettingsError(str(error)) from error
    settings.metrics_token()
    settings.web_token()
