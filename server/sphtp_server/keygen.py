"""The verb ``sphtp keygen``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from sphtp.core.secure.identity import format_key
from sphtp.errors import SettingsError
from sphtp.shell.keys import (
    check_new,
    draw_identity,
    draw_secret,
    load_identity,
    save_identity,
    save_secret,
)

_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Make an identity for a node, or a secret for a cluster.")
@click.option("--identity", type=_FILE, metavar="FILE", help="Write a new identity here.")
@click.option("--secret", type=_FILE, metavar="FILE", help="Write a new cluster's secret here.")
@click.option(
    "--show", type=_FILE, metavar="FILE", help="Tell the public key of the identity in this file."
)
@click.option("--force", is_flag=True, help="Overwrite files that are there already.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines.")
def keygen(force: bool, as_json: bool, **files: Path | None) -> None:
    """Make keys: an identity for one node, a secret for all programs of a cluster.

    The files can be read by you alone, and are only read as long as that is so. Of an identity the
    public key is printed, which servers may be told to admit; a secret is not printed.

    Exit codes: 0 done, 2 a wrong call, or a file that cannot be written or read.
    """
    wanted = {name: file for name, file in files.items() if file is not None}
    if not wanted:
        raise click.UsageError("say what to make: --identity FILE, --secret FILE, or both")
    try:
        if not force:
            check_new(file for name, file in wanted.items() if name in _WRITING)
        done = {name: _TASKS[name](file, force) for name, file in wanted.items()}
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(done, indent=2))
    else:
        for name, told in done.items():
            click.echo("  ".join((f"{name}:", *told.values())))


def _make_identity(file: Path, force: bool) -> dict[str, str]:
    identity = draw_identity()
    save_identity(file, identity, overwrite=force)
    return {"file": str(file), "public": format_key(identity.public)}


def _make_secret(file: Path, force: bool) -> dict[str, str]:
    save_secret(file, draw_secret(), overwrite=force)
    return {"file": str(file)}


def _show(file: Path, _: bool) -> dict[str, str]:
    return {"file": str(file), "public": format_key(load_identity(file).public)}


_WRITING: Final = frozenset(("identity", "secret"))

_TASKS: Final[dict[str, Callable[[Path, bool], dict[str, Any]]]] = {
    "identity": _make_identity,
    "secret": _make_secret,
    "show": _show,
}
