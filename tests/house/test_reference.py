"""The reference pages say what the code says: commands, names, settings."""

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from inspect import getdoc
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

import sphtp
import sphtp.observe
import sphtp.testing
import sphtp.web
from sphtp.config import (
    ChannelSettings,
    ClientLimits,
    ControlTimers,
    HandshakeLimits,
    Impairment,
    ServerLimits,
    StreamSettings,
)
from sphtp.core.control.outputs import ClientEvent, ServerEvent
from sphtp.errors import SettingsError
from sphtp_client.run.rules import Restart
from sphtp_client.run.run_file import ProgramTable, ServersTable
from sphtp_server.settings import SOURCES, ServerSettings
from tests.cases import each
from tests.house.pages import ROOT, load_tool, sections, table_rows

REFERENCE = ROOT / "docs" / "reference"

CLI = load_tool("cli_reference")


def test_the_page_of_the_commands_is_fresh() -> None:
    assert not CLI.stale(CLI.PAGE), "docs/reference/cli.md is stale; run `make docs`"


def test_the_pages_of_the_manual_are_fresh(tmp_path: Path) -> None:
    tool = load_tool("manual_pages")
    assert tool.stale() == [], "share/man is stale; run `make docs`"
    arguments = ["--folder", str(tmp_path)]
    assert tool.main(arguments) == 0
    assert tool.main([*arguments, "--check"]) == 0
    (tmp_path / "sphtp-old.1").write_text("")
    (tmp_path / "sphtp-ping.1").unlink()
    assert tool.stale(tmp_path) == ["sphtp-old.1", "sphtp-ping.1"]


def test_the_pages_of_the_manual_are_what_man_reads() -> None:
    pages = load_tool("manual_pages").render()
    requests = re.compile(r"\.(TH|SH|SS|TP|PP|BR?|I|br|\\\")( |$)")
    for name, text in pages.items():
        assert [line for line in text.split("\n") if line[:1] in ".'" and line] == [
            line for line in text.split("\n") if requests.match(line)
        ], name
        # `apropos` and `whatis` read the line behind NAME.
        assert f".SH NAME\n{name[:-2].replace('-', chr(92) + '-')} \\- " in text, name
    assert {"sphtp.1", "sphtp-server.1", "sphtp-doctor.1"} <= pages.keys()
    assert "sphtp-bench.1" not in pages


def test_the_page_of_the_metrics_is_fresh() -> None:
    tool = load_tool("metrics_reference")
    assert not tool.stale(tool.PAGE), "docs/reference/metrics.md is stale; run `make docs`"


def test_a_changed_page_of_the_commands_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "cli.md"
    arguments = ["--page", str(page)]
    assert CLI.main([*arguments, "--check"]) == 1
    assert CLI.main(arguments) == 0
    capsys.readouterr()
    assert CLI.main([*arguments, "--check"]) == 0
    page.write_text(page.read_text(encoding="utf-8").replace("--verify", "--verfy"))
    assert CLI.main([*arguments, "--check"]) == 1
    assert "make docs" in capsys.readouterr().err


def names_on_the_page() -> dict[str, str]:
    """Return what the page of names says of each name, without its arguments."""
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    return {re.split(r"[(\[]", row[0].strip("`"))[0]: row[1] for row in table_rows(text)}


BY_SUBJECT = (
    sphtp.config,
    sphtp.security,
    sphtp.streams,
    sphtp.messages,
    sphtp.events,
    sphtp.observe,
    sphtp.web,
)


def test_every_public_name_has_its_line() -> None:
    public = {name for name in dir(sphtp) if is_public(sphtp, name)}
    listed = {name for name in names_on_the_page() if "." not in name}
    assert listed == public
    assert len(public) < 30, "what most programs use"


@each("module", BY_SUBJECT)
def test_every_name_of_a_subject_has_its_line(module: ModuleType) -> None:
    public = {f"{module.__name__}.{name}" for name in dir(module) if is_public(module, name)}
    listed = {name for name in names_on_the_page() if name.startswith(f"{module.__name__}.")}
    assert listed <= public
    # Events are explained by their docstrings, and the records of instruments on a page of their
    # own.
    elsewhere = {f"sphtp.events.{name}" for name in CHANNEL_EVENTS | CONTROL_EVENTS} | {
        f"sphtp.observe.{name}" for name in RECORDS
    }
    assert public - listed <= elsewhere


def test_every_error_has_its_line() -> None:
    errors = {name for name, it in vars(sphtp.errors).items() if is_error(it)}
    listed = {name.removeprefix("sphtp.errors.") for name in names_on_the_page()}
    assert errors <= listed


def is_error(it: object) -> bool:
    return isinstance(it, type) and issubclass(it, sphtp.SphtpError)


def test_each_public_name_stands_in_one_place() -> None:
    """An event of a channel is also what an instrument is told."""
    names = [name for it in (sphtp, *BY_SUBJECT) for name in dir(it) if is_public(it, name)]
    assert {name for name in names if names.count(name) > 1} == {"Closed", "CloseReason"}


@pytest.mark.plain  # mypyc 2.4.1 leaves out the docstrings of some classes
def test_every_public_name_says_what_it_means() -> None:
    modules = (sphtp, *BY_SUBJECT, sphtp.testing)
    silent = {name for module in modules for name in undocumented(module)}
    assert not silent, f"no docstring: {sorted(silent)}"


def undocumented(module: ModuleType) -> Iterator[str]:
    """Yield the public classes and functions without a docstring, and such methods of classes."""
    for name in dir(module):
        value = getattr(module, name)
        if not is_public(module, name) or not isinstance(value, FunctionType | type):
            continue
        # Dataclasses without a docstring are given one: their signature.
        if not value.__doc__ or value.__doc__.startswith(f"{name}("):
            yield f"{module.__name__}.{name}"
        if not isinstance(value, type) or not value.__module__.startswith("sphtp"):
            continue
        for key, member in vars(value).items():
            documents = isinstance(member, FunctionType | property | classmethod | staticmethod)
            if documents and not key.startswith("_") and not getdoc(member):
                yield f"{module.__name__}.{name}.{key}"


def is_public(module: Any, name: str) -> bool:
    value = getattr(module, name)
    return not name.startswith("_") and not isinstance(value, type(module))


CONTROL_EVENTS = {"ClientEvent", "ServerEvent"} | {
    event.__name__ for event in (*get_args(ClientEvent), *get_args(ServerEvent))
}
CHANNEL_EVENTS = {"Opened", "Closed", "CloseReason", "ConnectionEvent"}
RECORDS = {
    *("Closed", "CloseReason", "Refusal", "Drop", "LostBy", "Obstacle", "WatchedChannel"),
    *("CongestionInfo", "FrameInfo", "PacketInfo", "RoundTripInfo", "SettledInfo"),
}


def test_every_event_is_public() -> None:
    public = {name for name in vars(sphtp.events) if not name.startswith("_")}
    assert public >= CHANNEL_EVENTS | CONTROL_EVENTS


def test_names_that_live_elsewhere_live_there() -> None:
    elsewhere = [name for name in names_on_the_page() if "." in name]
    assert elsewhere
    for name in elsewhere:
        module, _, attribute = name.rpartition(".")
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
        assert hasattr(importlib.import_module(module), attribute), name


@each("name", ["Client", "Peer", "Channel", "Node", "Server"])
def test_what_a_line_says_that_a_thing_has_is_all_that_it_has(name: str) -> None:
    thing = getattr(sphtp, name)
    own = {key for key in dir(thing) if not key.startswith("_")}
    said = set(re.findall(r"`(\w+)`", names_on_the_page()[name]))
    assert said == own - {"from_record", "send_channel"}


# Settings: tables of name, default, what is allowed, and meaning.


class Row(NamedTuple):
    """One setting as the page has it."""

    name: str
    default: str
    allowed: str


# Figures that follow from other settings, at the defaults of those.
DERIVED = {
    "2 * heartbeat * (1 + jitter)": 2 * 1.0 * (1 + 0.1),
    "heartbeat": 1.0,
    "2 * max_message": 2 * 16_777_216,
    "receive_buffer_bytes / 2": 67_108_864 // 2,
}

# What has to give way so that one setting alone is judged.
MAKING_ROOM: dict[str, dict[str, Any]] = {
    "pub_port": {"sub_port": 1},
    "keepalive": {"timeout": 86_400.0},
    "timeout": {"keepalive": 0.001},
}


MAKING_ROOM_IN_STREAMS: dict[str, dict[str, Any]] = {
    "nak_backoff": {"generation": 3600.0},
    "suppress": {"generation": 3600.0},
    "generation": {"nak_backoff": 0.001, "suppress": 0.001},
    "activity_timeout": {"session_min": 0.001, "session_max": 0.003},
    "order_map_bytes": {"max_message": 1},
    "max_message": {"order_map_bytes": 2**27},
    "session_min": {"session_max": 3600.0, "activity_timeout": 86_400.0},
    "session_max": {"session_min": 0.001, "activity_timeout": 86_400.0},
    "max_datagram": {"window": 2**30},
    "data_rate": {"repair_rate": 1000.0},
}


def server_settings(**values: Any) -> ServerSettings:
    return SOURCES.load({name: str(value) for name, value in with_room(values).items()}, {}, None)


def channel_settings(**values: Any) -> ChannelSettings:
    return ChannelSettings(**with_room(values))


def stream_settings(**values: Any) -> StreamSettings:
    room = MAKING_ROOM_IN_STREAMS.get(next(iter(values), ""), {})
    return StreamSettings(**{"lenient": True, **room, **values})


def with_room(values: dict[str, Any]) -> dict[str, Any]:
    return {**MAKING_ROOM.get(next(iter(values), ""), {}), **values}


def table_of_run(kind: type[BaseModel], **values: Any) -> BaseModel:
    words = {"true": True, "false": False}
    try:
        return kind.model_validate({name: words.get(it, it) for name, it in values.items()})
    except ValidationError as error:
        raise SettingsError(str(error)) from error


def defaults_of(kind: type[Any]) -> dict[str, Any]:
    if issubclass(kind, BaseModel):
        return {name: field.default for name, field in kind.model_fields.items()}
    return {field.name: field.default for field in fields(kind)}


TABLES: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "The server": (ServerSettings, server_settings),
    "A channel": (ChannelSettings, channel_settings),
    "Handshake limits": (HandshakeLimits, HandshakeLimits),
    "A stream": (StreamSettings, stream_settings),
    "Impairment": (Impairment, Impairment),
    "Control timers": (ControlTimers, ControlTimers),
    "Server limits": (ServerLimits, ServerLimits),
    "Client limits": (ClientLimits, ClientLimits),
    "A file of `sphtp run`": (ServersTable, partial(table_of_run, ServersTable)),
    "A program": (ProgramTable, partial(table_of_run, ProgramTable, command="sh")),
}


def rows(title: str) -> list[Row]:
    page = {section.title: section.text for section in sections(REFERENCE / "settings.md")}
    return [Row(row[0].strip("`"), row[1].strip("`"), row[2]) for row in table_rows(page[title])]


@each("title", TABLES)
def test_settings_and_their_defaults_are_those_of_the_code(title: str) -> None:
    kind, _ = TABLES[title]
    said = {row.name: row.default for row in rows(title)}
    assert said == {name: shown(value) for name, value in defaults_of(kind).items()}


def shown(value: Any) -> str:
    if value is None or value == ():
        return "none"
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Restart):
        return value.value
    return str(value).lower() if isinstance(value, bool) else str(value)


@each("title", TABLES)
def test_limits_lie_where_the_page_says(title: str) -> None:
    kind, build = TABLES[title]
    for row in rows(title):
        step = 1e-6 if isinstance(defaults_of(kind)[row.name], float) else 1
        good, bad = values_for(row.allowed, step)
        for value in good:
            build(**{row.name: value})
        for value in bad:
            with suppress(SettingsError):
                raise AssertionError(f"{row.name} may be {value}: {build(**{row.name: value})}")


def values_for(allowed: str, step: float) -> tuple[list[Any], list[Any]]:
    """Return values that are just within what is allowed, and some that are just without."""
    if allowed.startswith("any "):
        return [], []
    if match := re.fullmatch(r"(.+) to less than (.+)", allowed):
        low, high = map(figure, match.groups())
        return [low, high - step], [low - step, high]
    if match := re.fullmatch(r"(.+) to (.+)", allowed):
        low, high = map(figure, match.groups())
        # What is large is not told apart by a small step.
        return [low, high], [low - step, high + max(step, high // 10**9)]
    if match := re.fullmatch(r"more than (.+)", allowed):
        return [figure(match[1]) + step], [figure(match[1])]
    if match := re.fullmatch(r"at least (.+)", allowed):
        return [figure(match[1])], [figure(match[1]) - step]
    return [word.strip("`") for word in allowed.split(", ")], ["nonsense"]


def figure(text: str) -> float:
    text = text.strip("`")
    known = DERIVED.get(text)
    return known if known is not None else float(text) if "." in text else int(text)
