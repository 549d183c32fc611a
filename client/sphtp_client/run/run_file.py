"""The file of a run: its tables, with the meaning and the bounds of every value.

``load_run_file`` rejects a wrong file with an error that names the file, and the key and the value
of each mistake found.
"""

import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from sphtp.config import ControlTimers
from sphtp.core.control.records import MAX_MEMBERS, ServerAddress
from sphtp.errors import SettingsError
from sphtp.security import load_secret
from sphtp_client.cluster.place import without_settings
from sphtp_client.run.rules import ProgramRules, Restart
from sphtp_client.simulation.scenario import Problem, place_of

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
MOST_PROGRAMS: Final = 1000
LONGEST: Final = 60
"""The characters after which a value that its table rejects is cut in the error."""

Seconds = Annotated[float, Field(strict=True, gt=0, le=86400)]
Variables = dict[str, str]


def _split(command: Any) -> Any:
    """Split a command in one string into words by the quoting rules of a shell."""
    return tuple(shlex.split(command)) if isinstance(command, str) else command


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class RunTable(BaseModel):
    """The base of all tables of the file, which rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RestartTable(RunTable):
    """The keys of restarts, which servers and programs share."""

    restart: Restart = Field(Restart.NEVER, description="never, on-failure or always")
    max_restarts: int = Field(
        5, strict=True, ge=0, le=1_000_000, description="most restarts in a row"
    )
    backoff: Seconds = Field(1.0, description="s, before the first restart; then it doubles")
    backoff_max: Seconds = Field(30.0, description="s, longest backoff")
    steady: Seconds = Field(10.0, description="s, of running, after which restarts count anew")


class ServersTable(RestartTable):
    """The servers of a run, or the addresses of servers that run already."""

    count: int | None = Field(
        None, strict=True, ge=0, le=MAX_MEMBERS, description="servers to start; default: 1"
    )
    addresses: tuple[str, ...] = Field((), description="servers that run already")
    secret_file: Path | None = Field(
        None, description="default: a new secret, if the run starts servers"
    )
    heartbeat: Seconds = Field(1.0, description="s, of servers and clients")
    expiry: Seconds = Field(10.0, description="s, of servers and clients")
    options: Words = Field((), description="further options of sphtp server")
    restart: Restart = Field(Restart.ON_FAILURE, description="never, on-failure or always")

    @property
    def number(self) -> int:
        """The number of servers to start."""
        if self.count is None:
            return 0 if self.addresses else 1
        return self.count


class ProgramTable(RestartTable):
    """One program, of which several processes may be started."""

    command: Words = Field(min_length=1, description="the program and its arguments")
    count: int = Field(1, strict=True, ge=1, le=MOST_PROGRAMS, description="number of processes")
    directory: Path = Field(Path(), description="default: the folder of the file")
    environment: Variables = Field({}, description="variables added to the environment")
    after: tuple[str, ...] = Field((), description="programs that have to be ready first")
    after_end: tuple[str, ...] = Field((), description="programs that have to finish first")
    ready_line: re.Pattern[str] | None = Field(
        None, description="regular expression for the line by which it is ready; default: at once"
    )
    essential: bool = Field(True, strict=True, description="its failure ends the run")
    background: bool = Field(False, strict=True, description="the run does not wait for its end")
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] = Field(
        "SIGTERM", description="the signal that stops it"
    )
    grace: Seconds = Field(10.0, description="s, from that signal to SIGKILL")

    @field_validator("command", mode="after")
    @classmethod
    def _named(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command[0]:
            raise ValueError("the program has no name")
        return command


class RunTables(RunTable):
    """The tables of a run file."""

    servers: ServersTable = Field(ServersTable(), description="table of the servers")
    environment: Variables = Field({}, description="variables for all programs")
    program: dict[str, ProgramTable] = Field(
        {}, description="a table [program.NAME] for each program"
    )


@dataclass(frozen=True)
class Program:
    """One process to start; ``kind`` is the name of its table.

    ``environment`` is that of this command with the variables of the file, without those of the
    run.
    """

    name: str
    kind: str
    command: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    table: ProgramTable


@dataclass(frozen=True)
class RunFile:
    """A checked run file; ``rules`` has those of the servers, then those of the programs."""

    path: Path
    servers: ServersTable
    programs: tuple[Program, ...]
    rules: Mapping[str, ProgramRules]


def load_run_file(path: Path, environ: Mapping[str, str]) -> RunFile:
    """Read and check a file. Each command must name a program that would be found at its start.

    Raises ``SettingsError``, with a line for each mistake found. If the tables are wrong, programs
    and files are not looked for.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    try:
        tables = RunTables.model_validate(values)
    except ValidationError as error:
        _refuse(path, map(_problem, error.errors(include_url=False)))
        raise  # not reached: there is an error at least, and ``_refuse`` raises
    folder = path.absolute().parent
    servers = _at(folder, tables.servers)
    programs = [one for kind in tables.program for one in _programs(tables, kind, folder, environ)]
    names = {one: [each.name for each in programs if each.kind == one] for one in tables.program}
    _refuse(path, [*_wrong_servers(servers), *_wrong_programs(tables, programs)])
    return RunFile(path, servers, tuple(programs), dict(_rules(servers, programs, names)))


def server_names(servers: ServersTable) -> list[str]:
    """Return the names of the servers to start."""
    return [f"server-{number}" for number in range(1, servers.number + 1)]


def _refuse(path: Path, problems: Iterable[Problem]) -> None:
    lines = [f"{path}: {problem}" for problem in problems]
    if lines:
        raise SettingsError("\n".join(lines))


def _problem(details: ErrorDetails) -> Problem:
    place = list(details["loc"])
    match place:
        case ["servers", *_]:
            table: type[RunTable] = ServersTable
        case ["program", _, *_]:
            table = ProgramTable
        case _:
            table = RunTables
    field = table.model_fields.get(str(place[-1]))
    allowed = details["msg"][:1].lower() + details["msg"][1:]
    if field is not None and field.description is not None:
        allowed += f" ({field.description})"
    value = repr(details["input"])
    if details["type"] == "extra_forbidden":
        allowed = f"unknown key; known are {', '.join(table.model_fields)}"
    elif details["type"] == "missing":
        value = "nothing"
    return Problem(
        place_of(place), value if len(value) <= LONGEST else f"{value[:LONGEST]}...", allowed
    )


def _at(folder: Path, servers: ServersTable) -> ServersTable:
    """Return the table with the path of its secret relative to the folder of the file."""
    if servers.secret_file is None:
        return servers
    return servers.model_copy(update={"secret_file": folder / servers.secret_file})


def _programs(
    tables: RunTables, kind: str, folder: Path, environ: Mapping[str, str]
) -> Iterator[Program]:
    table = tables.program[kind]
    for number in range(table.count):
        name = kind if table.count == 1 else f"{kind}-{number}"

        def filled(text: str, name: str = name, number: int = number) -> str:
            return text.replace("{name}", name).replace("{number}", str(number))

        given = {
            key: filled(text) for key, text in (tables.environment | table.environment).items()
        }
        yield Program(
            name=name,
            kind=kind,
            command=tuple(map(filled, table.command)),
            directory=folder / table.directory,
            environment=_environment(environ) | given,
            table=table,
        )


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs.

    The folder of this Python comes first in ``PATH``, so that ``python`` and ``sphtp`` are those of
    this environment. Python programs do not buffer their output.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH", os.defpath)))
    return {"PYTHONUNBUFFERED": "1"} | without_settings(environ) | {"PATH": path}


def _wrong_servers(servers: ServersTable) -> Iterator[Problem]:
    for address in servers.addresses:
        try:
            ServerAddress.parse(address)
        except SettingsError as error:
            yield Problem("servers.addresses", repr(address), str(error))
    if servers.addresses and servers.number:
        yield Problem("servers.count", str(servers.number), "with addresses, no server is started")
    if servers.secret_file is not None:
        try:
            load_secret(servers.secret_file)
        except SettingsError as error:
            yield Problem("servers.secret_file", str(servers.secret_file), str(error))
    for option in servers.options:
        if option.partition("=")[0] in ("--log-file", "--log-format", "--log-level"):
            yield Problem("servers.options", repr(option), "not allowed: the run reads the log")
    try:
        ControlTimers(heartbeat=servers.heartbeat, expiry=servers.expiry)
    except SettingsError as error:
        yield Problem("servers.expiry", str(servers.expiry), str(error))


def _wrong_programs(tables: RunTables, programs: Sequence[Program]) -> Iterator[Problem]:
    taken = set(server_names(tables.servers))
    for program in programs:
        if program.name in taken:
            yield Problem(f"program.{program.kind}", program.name, "a second process of this name")
        taken.add(program.name)
    for kind, table in tables.program.items():
        if not NAME.fullmatch(kind):
            yield Problem("program", repr(kind), "a name has letters, digits, and _ . - inside it")
        for key in ("after", "after_end"):
            for other in getattr(table, key):
                if other not in tables.program:
                    known = ", ".join(tables.program)
                    yield Problem(f"program.{kind}.{key}", repr(other), f"must be one of {known}")
        for other in table.after_end:
            if other in tables.program and tables.program[other].restart is Restart.ALWAYS:
                why = "it never finishes, because its restart is always"
                yield Problem(f"program.{kind}.after_end", repr(other), why)
    for kind in sorted(_in_circles(tables.program)):
        why = "it would never start, because programs would wait for each other"
        yield Problem(f"program.{kind}.after", "a circle", why)
    if len(programs) > MOST_PROGRAMS:
        yield Problem("program", f"{len(programs)} programs", f"at most {MOST_PROGRAMS}")
    for program in {each.kind: each for each in programs}.values():
        yield from _cannot_start(program)


def _in_circles(tables: Mapping[str, ProgramTable]) -> set[str]:
    """Return the programs that wait for themselves, or for a program that does."""
    left = dict(tables)
    while free := [
        kind
        for kind, table in left.items()
        if not any(other in left for other in (*table.after, *table.after_end))
    ]:
        for kind in free:
            del left[kind]
    return set(left)


def _cannot_start(program: Program) -> Iterator[Problem]:
    if not program.directory.is_dir():
        yield Problem(
            f"program.{program.kind}.directory", str(program.directory), "is no directory"
        )
        return
    word = program.command[0]
    place = str(program.directory / word) if "/" in word else word
    if shutil.which(place, path=program.environment["PATH"]) is None:
        yield Problem(f"program.{program.kind}.command", repr(word), "no such program")


def _rules(
    servers: ServersTable, programs: Sequence[Program], names: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ProgramRules]]:
    ours = frozenset(server_names(servers))
    for name in server_names(servers):
        first = server_names(servers)[0]
        after = frozenset({first} - {name})
        # The run continues as long as one server has not failed.
        yield (
            name,
            ProgramRules(
                after=after,
                announces=True,
                background=True,
                stands_in=ours - {name},
                **_restarts(servers),
            ),
        )
    for program in programs:
        table = program.table
        after = ours.union(*(names[kind] for kind in table.after))
        yield (
            program.name,
            ProgramRules(
                after=after,
                after_end=frozenset().union(*(names[kind] for kind in table.after_end)),
                announces=table.ready_line is not None,
                essential=table.essential,
                background=table.background,
                **_restarts(table),
            ),
        )


def _restarts(table: RestartTable) -> dict[str, Any]:
    return {key: getattr(table, key) for key in RestartTable.model_fields}
