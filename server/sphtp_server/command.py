"""The verb ``sphtp server``."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from sphtp.errors import BusAddressInUseError, BusError, SettingsError, UdpAddressError
from sphtp_server.daemon import serve
from sphtp_server.logs import LogTarget, open_log_at
from sphtp_server.settings import SOURCES, ServerSettings


@click.command(short_help="Run a server, which introduces clients to each other.")
@SOURCES.options
def server(config: Path | None, **flags: Any) -> None:
    """Run a server, which introduces the clients of a cluster to each other.

    Every setting is an option, an environment variable SPHTP_SERVER_... and a key of the TOML
    file; options override variables, and variables override the file. In a variable, white space
    separates the values of a repeatable setting.

    Log lines go to standard output, or to --log-file. With --log-format json, the fields id, pub
    and sub of the event "started" contain the server's id and its two addresses with the actual
    ports.

    SIGINT, SIGTERM and SIGUSR2 make the server leave the cluster and end. SIGUSR1 makes it leave
    after its clients have reached other servers (sphtp drain). SIGHUP reloads the file, the keys of
    clients and the certificates, reopens the log file, and logs the settings that need a restart.
    When the server's terminal closes, SIGHUP makes it leave. If SIGHUP, SIGUSR1 or SIGUSR2 is
    ignored at the start, such as SIGHUP by nohup, it remains ignored.

    Exit codes: 0 the server left, 2 a wrong setting, a missing package, or an address or port that
    cannot be used.
    """
    load = partial(SOURCES.load, flags, os.environ, config)
    try:
        settings = load()
        target = LogTarget(settings.log_level, settings.log_file)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    try:
        with target:
            trio.run(serve, settings, open_log_at(target, settings.log_format), target, load)
    except (SettingsError, ModuleNotFoundError, UdpAddressError) as error:
        raise click.UsageError(str(error)) from error
    except BusError as error:
        raise click.UsageError(_hint(settings, error)) from error


def _hint(settings: ServerSettings, error: BusError) -> str:
    if not isinstance(error, BusAddressInUseError):
        return f"{error}; choose another --host"
    option = "--pub-port" if f":{settings.pub_port} " in f"{error} " else "--sub-port"
    return f"{error}; choose another {option}, where 0 takes any free port"
