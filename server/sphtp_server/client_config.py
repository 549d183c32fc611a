"""The settings of verbs that are clients, from options, environment variables and a TOML file.

Options override variables, and variables the file. One file and one set of variables serve all
these verbs, so a verb ignores the keys of other verbs. Each option of a verb is a key of the file,
and a variable ``SPHTP_CLIENT_...``.
"""

import tomllib
from pathlib import Path
from typing import Any, Final

import click

from sphtp.config import TurnServer
from sphtp.errors import SettingsError
from sphtp.security import Tls, load_identity, load_public_keys, load_secret
from sphtp.shell.keys import load_token

CONTEXT: Final = {"auto_envvar_prefix": "SPHTP_CLIENT"}
"""The settings of click's context for these verbs."""

KEYS: Final = frozenset(
    (
        "server", "scenario", "slab", "slabs", "run", "steps", "loss", "duplicate", "reorder",
        "seed", "heartbeat", "expiry", "channel_timeout", "resend_time", "wait", "alone", "qlog",
        "server_key", "server_key_file", "secret_file", "identity_file", "tls_ca", "tls_cert",
        "tls_key", "relay", "relay_password_file", "metrics", "metrics_token_file", "web",
        "web_token_file", "exit_with_stdin", "seconds", "once", "json",
        "timeout", "count", "interval", "name", "receivers", "latest", "late_join", "topic",
        "stream", "group", "force", "speed", "from", "to", "loop", "gather", "changed", "on_death",
    )
)  # fmt: skip
"""The options of all these verbs."""


def read_config(ctx: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Make the values of a file the defaults of a verb's options; the callback of ``--config``.

    Raises ``click.UsageError`` for a wrong file, an unknown key or a wrong value.
    """
    if file is None:
        return
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}", ctx) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} is not TOML: {error}", ctx) from error
    options = {key_of(one): one for one in ctx.command.params if isinstance(one, click.Option)}
    found: dict[str, Any] = {}
    for key, value in content.items():
        option = options.get(key)
        if option is not None and option.name is not None:
            found[option.name] = _checked(ctx, file, key, option, value)
        elif key not in KEYS:
            allowed = ", ".join(sorted(KEYS))
            raise click.UsageError(f"{file}: there is no key {key}; allowed are {allowed}", ctx)
    ctx.default_map = found


def key_of(option: click.Option) -> str:
    """Return the key in the file for an option."""
    return max(option.opts, key=len).removeprefix("--").replace("-", "_")


def _checked(ctx: click.Context, file: Path, key: str, option: click.Option, value: Any) -> Any:
    if option.multiple and isinstance(value, str):
        value = [value]
    try:
        if option.is_flag and not isinstance(value, bool):
            raise click.BadParameter("allowed is true or false")
        option.type_cast_value(ctx, value)
    except (click.BadParameter, TypeError) as error:
        why = error.message if isinstance(error, click.BadParameter) else str(error)
        raise click.UsageError(f"{file}: {key} = {value!r}: {why}", ctx) from error
    return value


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=read_config,
    metavar="FILE",
    help="TOML file with these options, one key each, with _ instead of -. Each option is also an "
    "environment variable, SPHTP_CLIENT_...; options override variables, variables the file.",
)
"""The option ``--config``."""


def check_client(command: click.Command, file: Path | None) -> dict[str, Any]:
    """Return the given settings of a verb, after reading the files of keys that they name.

    Raises ``SettingsError`` for a wrong secret, key, token or certificate file, or a wrong relay,
    and ``click.UsageError`` for a wrong value.
    """
    arguments = [] if file is None else ["--config", str(file)]
    with command.make_context(command.name, arguments) as context:
        values = context.params
        given = {
            name: value
            for name, value in values.items()
            if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        }
    for name, load in {
        "secret_file": load_secret,
        "identity_file": load_identity,
        "server_key_file": load_public_keys,
        "metrics_token_file": load_token,
        "web_token_file": load_token,
    }.items():
        if values.get(name) is not None:
            load(values[name])
    relay_server(values.get("relay"), values.get("relay_password_file"))
    ca, cert, key = (values.get(f"tls_{part}") for part in ("ca", "cert", "key"))
    if ca or cert or key:
        Tls(ca, cert, key).check()
    return given


def relay_server(url: str | None, password_file: Path | None) -> TurnServer | None:
    """Return the relay of ``--relay`` and ``--relay-password-file``; None if neither is given.

    Raises ``SettingsError`` if only one is given, one is not valid, or the extra is missing.
    """
    if url is None and password_file is None:
        return None
    if url is None or password_file is None:
        raise SettingsError("--relay and --relay-password-file need each other")
    try:
        import sphtp.shell.nat  # noqa: F401
    except ModuleNotFoundError as error:
        raise SettingsError(f"--relay: {error}") from error
    return TurnServer.parse(url, load_token(password_file))
