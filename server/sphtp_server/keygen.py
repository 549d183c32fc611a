"""The verb ``sphtp keygen``: make identities, secrets and keys of servers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from sphtp.core.secure.identity import format_key
from sphtp.core.secure.signing import ClusterKey
from sphtp.errors import SettingsError
from sphtp.shell.keys import (
    check_new,
    draw_cluster_key,
    draw_identity,
    draw_secret,
    draw_server_key,
    load_cluster_key,
    load_public,
    save_cluster_key,
    save_identity,
    save_secret,
    save_server_key,
)

_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Make keys: for a node, a server, or a whole cluster.")
@click.option("--identity", type=_FILE, metavar="FILE", help="Write a new identity to this file.")
@click.option(
    "--secret", type=_FILE, metavar="FILE", help="Write a new secret of a cluster to this file."
)
@click.option(
    "--cluster",
    type=_FILE,
    metavar="FILE",
    help="Write a new key of a cluster, which certifies servers, to this file.",
)
@click.option(
    "--server", type=_FILE, metavar="FILE", help="Write a new signing key of a server to this file."
)
@click.option(
    "--cluster-key",
    type=_FILE,
    metavar="FILE",
    help="File with the cluster's key, which then certifies the new key of --server.",
)
@click.option(
    "--show", type=_FILE, metavar="FILE", help="Print the public key of the key in this file."
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of lines.")
def keygen(force: bool, as_json: bool, cluster_key: Path | None, **files: Path | None) -> None:
    """Make keys: an identity for a node, a secret for all programs of a cluster, keys of servers.

    Only you can read the files, and programs refuse files that others can read. The command prints
    the public key of an identity, a server or a cluster: list it at servers that admit listed
    clients only, or at programs that accept listed servers only. It does not print a secret.

    A cluster's key certifies the keys of its servers. Everybody who has it can add a server, so
    keep it offline: no running program needs it.

    Exit codes: 0 done, 2 wrong arguments, or a file that cannot be written or read.
    """
    wanted = {name: file for name, file in files.items() if file is not None}
    if not wanted:
        raise click.UsageError(
            "give what to make: --identity FILE, --secret FILE, --cluster FILE or --server FILE"
        )
    if cluster_key is not None and "server" not in wanted:
        raise click.UsageError("--cluster-key certifies the key of a server: give --server FILE")
    try:
        authority = None if cluster_key is None else load_cluster_key(cluster_key)
        if not force:
            check_new(file for name, file in wanted.items() if name != "show")
        done = {name: _TASKS[name](file, force, authority) for name, file in wanted.items()}
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(done, indent=2))
    else:
        for name, shown in done.items():
            click.echo("  ".join((f"{name}:", *shown.values())))


def _make_identity(file: Path, force: bool, _: ClusterKey | None) -> dict[str, str]:
    identity = draw_identity()
    save_identity(file, identity, overwrite=force)
    return {"file": str(file), "public": format_key(identity.public)}


def _make_secret(file: Path, force: bool, _: ClusterKey | None) -> dict[str, str]:
    save_secret(file, draw_secret(), overwrite=force)
    return {"file": str(file)}


def _make_cluster(file: Path, force: bool, _: ClusterKey | None) -> dict[str, str]:
    key = draw_cluster_key()
    save_cluster_key(file, key, overwrite=force)
    return {"file": str(file), "public": format_key(key.public)}


def _make_server(file: Path, force: bool, authority: ClusterKey | None) -> dict[str, str]:
    key = draw_server_key(authority)
    save_server_key(file, key, overwrite=force)
    return {"file": str(file), "public": format_key(key.public)}


def _show(file: Path, _: bool, __: ClusterKey | None) -> dict[str, str]:
    return {"file": str(file), "public": format_key(load_public(file))}


_TASKS: Final[dict[str, Callable[[Path, bool, ClusterKey | None], dict[str, Any]]]] = {
    "identity": _make_identity,
    "secret": _make_secret,
    "cluster": _make_cluster,
    "server": _make_server,
    "show": _show,
}
