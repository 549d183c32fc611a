"""The verb ``sphtp manifest``: a cluster for Kubernetes."""

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, get_args

import click

from sphtp.core.control.records import MAX_MEMBERS
from sphtp.errors import SettingsError
from sphtp.security import load_secret
from sphtp_client.cluster.course import secret_file
from sphtp_client.manifest.kubernetes import DECIDED, Manifest
from sphtp_client.options import COUNT, FOLDER, ScenarioFile
from sphtp_client.program import write_line
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import borders
from sphtp_server.settings import SOURCES, ServerSettings

NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
"""The names of clusters. Names of objects are longer, and may have 63 characters."""
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Generate manifests of a cluster for Kubernetes.")
@click.option("--image", required=True, metavar="IMAGE", help="Container image of all pods.")
@click.option(
    "--name", default="sphtp", show_default=True, help="Name of the cluster: prefix of all objects."
)
@click.option(
    "--servers",
    type=click.IntRange(1, MAX_MEMBERS),
    default=2,
    show_default=True,
    metavar="N",
    help="Number of servers.",
)
@click.option(
    "--clients",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    metavar="N",
    help="Number of clients, one per slab; 0 for none.",
)
@click.option(
    "--scenario",
    type=ScenarioFile(),
    default="gas",
    show_default=True,
    help="Scenario file, or the name of one that comes with the project.",
)
@click.option(
    "--steps",
    type=COUNT,
    metavar="N",
    help="Steps to simulate. Default: the number in the scenario.",
)
@click.option(
    "--config",
    type=_FILE,
    metavar="FILE",
    help="TOML file with settings of the servers, as for sphtp server.",
)
@click.option(
    "--secret-file",
    type=_FILE,
    metavar="FILE",
    help="File with the cluster's secret (sphtp keygen). Without it: a new secret, in an immutable "
    "object.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def manifest(config: Path | None, secret_file: Path | None, name: str, **values: Any) -> None:
    """Print the Kubernetes objects of a cluster, as one List in JSON.

    Pass the output to kubectl: sphtp manifest --image IMAGE | kubectl apply -f -

    The output contains the cluster's secret. To apply changed objects later, give --secret-file
    from the beginning. COMMAND, after --, is a program of yours in the image, which runs instead of
    sphtp client; its open_client() without an address finds the servers.

    Exit codes: 0 the objects are printed, 2 wrong arguments.
    """
    try:
        if not NAME.fullmatch(name):
            raise SettingsError(
                f"--name = {name}: allowed are up to 40 small letters, digits and hyphens; the "
                "first is a letter, the last is no hyphen"
            )
        document = _manifest(config, secret_file, name=name, **values)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    items = list(document.objects())
    content = {"apiVersion": "v1", "kind": "List", "items": items}
    write_line(sys.stdout, json.dumps(content, indent=2))


def _manifest(
    config: Path | None,
    secret: Path | None,
    *,
    scenario: Path,
    steps: int | None,
    clients: int,
    command: tuple[str, ...],
    **values: Any,
) -> Manifest:
    loaded = load_scenario(scenario)
    if clients and not command:
        borders(loaded, clients, "--clients")
    is_ours = not command
    settings = {"SPHTP_CLIENT_STEPS": str(steps)} if steps is not None else {}
    is_shipped = scenario.parent == FOLDER
    if is_shipped and is_ours:
        settings["SPHTP_CLIENT_SCENARIO"] = scenario.stem
    with ExitStack() as stack:
        file = stack.enter_context(secret_file()) if secret is None else secret
        load_secret(file)
        return Manifest(
            secret=file.read_text(encoding="utf-8"),
            token=token_hex(24),
            clients=clients,
            settings=SOURCES.load({}, {}, config),
            variables=_variables(config),
            client_settings=settings,
            scenario=None if is_shipped or not is_ours else scenario.read_text(encoding="utf-8"),
            command=command or ("sphtp", "client"),
            is_new=secret is None,
            **values,
        )


def _variables(config: Path | None) -> dict[str, str]:
    """Return the settings in a TOML file as environment variables. Raises ``SettingsError``."""
    found = {}
    for name, setting in SOURCES.settings({}, {}, config).items():
        field = ServerSettings.model_fields[name]
        if name in DECIDED:
            raise SettingsError(f"{setting.origin}: the manifest decides on it")
        if Path in (field.annotation, *get_args(field.annotation)):
            raise SettingsError(f"{setting.origin}: the manifest carries no files but the secret")
        found[SOURCES.variable(name)] = _text(setting.value)
    return found


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return " ".join(map(str, value))
        case _:
            return str(value)
