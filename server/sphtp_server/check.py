"""The verb ``sphtp config``: settings checked before anything runs with them."""

import os
from pathlib import Path

import click

from sphtp.errors import SettingsError
from sphtp_server.settings import SOURCES, ServerSettings


@click.group(short_help="Check a configuration before anything runs with it.")
def config() -> None:
    """Check configurations."""


@config.command(short_help="Check the settings of a server, and the files that they name.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--no-environment", is_flag=True, help="Check the file alone, without variables SPHTP_SERVER_."
)
def check(file: Path | None, no_environment: bool) -> None:
    """Check the settings that ``sphtp server --config FILE`` would have.

    Reads the file, the environment variables SPHTP_SERVER_... and the files that the settings name:
    keys, certificates, the secret. Binds no port. Prints the settings that are not the default,
    each with its source. Without FILE, SPHTP_SERVER_CONFIG names it.

    Exit codes: 0 a server would start with it, 2 something is wrong, which the error names.
    """
    environ = {} if no_environment else os.environ
    variable = SOURCES.variable("config")
    path = file or (Path(environ[variable]) if environ.get(variable) else None)
    try:
        settings = SOURCES.load({}, environ, path)
        check_files(settings)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    for name, setting in SOURCES.settings({}, environ, path).items():
        click.echo(f"{name} = {getattr(settings, name)!s}  ({setting.origin})")
    click.echo("a server would start with these settings")


def check_files(settings: ServerSettings) -> None:
    """Read all files that settings name, as a server does. Raises ``SettingsError``."""
    settings.config()
    settings.admit()
    if (tls := settings.tls()) is not None:
        tls.check()
    if settings.metrics_token_file is not None:
        settings.metrics_token()
