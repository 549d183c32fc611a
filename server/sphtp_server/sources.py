"""Settings from four sources.

Options override environment variables, variables a TOML file, and the file the defaults. Every
field of a settings model is an option, a variable and a key of the file.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sphtp.core.printable import without_password
from sphtp.errors import SettingsError

M = TypeVar("M", bound=BaseModel)
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Setting:
    """A value, and the name of its source."""

    origin: str
    value: Any


@dataclass(frozen=True)
class Sources(Generic[M]):
    """The sources of the settings of a model.

    Args:
        model: the model, whose fields have descriptions.
        prefix: the prefix of the environment variables, such as ``SPHTP_SERVER_``.
    """

    model: type[M]
    prefix: str

    def options(self, command: Command) -> Command:
        """Give a click command one option per field, and ``--config``."""
        for name, field in reversed(self.model.model_fields.items()):
            command = _option(name, field, self.variable(name))(command)
        # Not exists=True: click would report an unreadable file as missing.
        path = click.Path(path_type=Path)
        text = (
            "TOML file with these settings, one key each, with _ instead of -. "
            f"[{self.variable('config')}]"
        )
        return click.option("--config", type=path, envvar=f"{self.prefix}CONFIG", help=text)(
            command
        )

    def variable(self, name: str) -> str:
        """Return the environment variable of a field."""
        return self.prefix + name.upper()

    def load(self, flags: Mapping[str, Any], environ: Mapping[str, str], config: Path | None) -> M:
        """Return the model with the settings of all sources.

        Raises:
            SettingsError: the file or a setting is wrong; the error names the file, or the source,
                the value and the allowed values of the setting.
        """
        settings = self.settings(flags, environ, config)
        try:
            return self.model(**{name: setting.value for name, setting in settings.items()})
        except ValidationError as error:
            raise SettingsError("\n".join(_explain(error, settings))) from error

    def settings(
        self, flags: Mapping[str, Any], environ: Mapping[str, str], config: Path | None
    ) -> dict[str, Setting]:
        """Return the given settings with their sources.

        Raises ``SettingsError`` if the file cannot be read, is not TOML, or has an unknown key.
        """
        settings: dict[str, Setting] = {}
        for source in (self._file(config), self._environment(environ), self._flags(flags)):
            settings.update(source)
        return settings

    def _file(self, config: Path | None) -> Iterator[tuple[str, Setting]]:
        if config is None:
            return
        try:
            content = tomllib.loads(config.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"cannot read {config}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{config} is not TOML: {error}") from error
        for key, value in content.items():
            if key not in self.model.model_fields:
                allowed = ", ".join(self.model.model_fields)
                raise SettingsError(f"{config}: there is no key {key}; allowed are {allowed}")
            yield key, Setting(f"{config}: {key}", value)

    def _environment(self, environ: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
        # Unknown variables are allowed: Kubernetes sets SPHTP_SERVER_SERVICE_HOST and others for a
        # service with the name sphtp-server.
        for name, field in self.model.model_fields.items():
            text = environ.get(self.variable(name), "")
            if text:
                value = tuple(text.split()) if _is_list(field) else text
                yield name, Setting(f"environment variable {self.variable(name)}", value)

    def _flags(self, flags: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
        for name in self.model.model_fields:
            value = flags.get(name)
            if value is not None and value != ():
                yield name, Setting(f"option {flag(name)}", value)


def flag(name: str) -> str:
    """Return the name of the option of a field, such as ``--pub-port``."""
    return "--" + name.replace("_", "-")


def _option(name: str, field: FieldInfo, variable: str) -> Callable[[Command], Command]:
    declared = flag(name)
    text = f"{field.description} {_default(field)}[{variable}]"
    if field.annotation is bool:
        both = f"{declared}/--no-{declared.removeprefix('--')}"
        return click.option(both, name, default=None, help=text)
    # Values remain text, because the model checks the values of all sources.
    return click.option(
        declared, name, type=str, multiple=_is_list(field), help=text, metavar=_metavar(field)
    )


def _default(field: FieldInfo) -> str:
    if field.default is None or field.default == () or field.annotation is bool:
        return ""
    return f"Default: {field.default}. "


def _metavar(field: FieldInfo) -> str:
    words = [argument for argument in get_args(field.annotation) if isinstance(argument, str)]
    if words:
        return "|".join(words)
    return _METAVARS.get(field.annotation, "TEXT")


_METAVARS: Final[Mapping[Any, str]] = {
    int: "NUMBER",
    float: "NUMBER",
    float | None: "NUMBER",
    int | None: "NUMBER",
    Path | None: "FILE",
}


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _without_passwords(value: Any) -> Any:
    """Return a rejected value, for an error text, without passwords.

    Passwords in addresses are left out, and all values of tables, because no setting is a table.
    """
    match value:
        case str():
            return without_password(value)
        case list():
            return [_without_passwords(one) for one in value]
        case dict():
            return {_without_passwords(key): "..." for key in value}
        case _:
            return value


def _explain(error: ValidationError, settings: Mapping[str, Setting]) -> Iterator[str]:
    for detail in error.errors():
        name = str(detail["loc"][0]) if detail["loc"] else ""
        reason = detail["msg"].removeprefix("Value error, ")
        if name in settings:
            setting = settings[name]
            value = setting.value
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            yield f"{setting.origin} = {_without_passwords(shown)!r}: {reason}"
        else:
            origins = ", ".join(f"{key} from {one.origin}" for key, one in settings.items())
            yield f"{reason} ({origins})" if origins else reason
