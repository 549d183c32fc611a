"""Settings of clients: options over variables over a file that all verbs share."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from sphtp.__main__ import main
from sphtp.config import TurnServer
from sphtp.shell.keys import save_secret
from sphtp_client.simulation.command import client
from sphtp_client.terminal.connection import TerminalOptions
from sphtp_client.terminal.peers import peers
from sphtp_client.terminal.topics import pub
from sphtp_client.watch.command import watch
from sphtp_server.check import check
from sphtp_server.client_config import KEYS, key_of, read_config
from sphtp_server.status import status
from tests.house.pages import ROOT, sections, table_rows


def values(command: click.Command, *arguments: str) -> dict[str, Any]:
    return command.make_context("verb", [*arguments]).params


def options(command: click.Command) -> dict[str, click.Option]:
    found = [each for each in command.params if isinstance(each, click.Option)]
    return {key_of(option): option for option in found}


@cache
def verbs() -> dict[str, click.Command]:
    """Return the verbs of the project, without groups.

    They bring Matplotlib and Dask along, which nobody loads who only collects tests.
    """
    with click.Context(main) as context:
        found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: one for name, one in found.items() if one and not isinstance(one, click.Group)}


def reads_config(command: click.Command) -> bool:
    return any(one.callback is read_config for one in options(command).values())


def clients() -> dict[str, click.Command]:
    return {name: command for name, command in verbs().items() if reads_config(command)}


def test_every_verb_that_is_a_client_reads_the_file_and_the_variables() -> None:
    members = {name for name, one in verbs().items() if "tls_ca" in options(one)} - {"server"}
    assert clients().keys() == members
    assert len(members) > 10
    assert {it.context_settings.get("auto_envvar_prefix") for it in clients().values()} == {
        "SPHTP_CLIENT"
    }


def test_the_keys_are_the_options_of_all_verbs() -> None:
    assert set().union(*map(options, clients().values())) - {"config"} == KEYS


def test_the_page_of_settings_names_the_keys_and_their_verbs() -> None:
    pages = sections(ROOT / "docs" / "reference" / "settings.md")
    (text,) = [page.text for page in pages if page.title == "Verbs that are clients"]
    rows = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in table_rows(text)]
    said = {(key, verb) for keys, names in rows for key in keys for verb in names}
    has = {(key, verb) for verb, command in clients().items() for key in options(command)}
    assert said == {(key, verb) for key, verb in has if key != "config"}


def test_verbs_for_a_terminal_take_servers_and_names_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.toml"
    file.write_text('server = "tcp://a:1"\nname = "ada"\ntimeout = 2\nslab = 3\n')
    monkeypatch.setenv("SPHTP_CLIENT_CONFIG", str(file))
    found = values(pub, "topic", "--receivers", "2")
    assert (found["server"], found["name"], found["receivers"]) == (("tcp://a:1",), "ada", 2)
    for arguments, server in (((), "tcp://a:1"), (("tcp://b:2",), "tcp://b:2")):
        given = values(peers, *arguments)
        chosen = TerminalOptions.at(given.pop("address"), given)
        assert (chosen.server, chosen.timeout) == ((server,), 2.0)


def test_options_win_over_variables_and_variables_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.toml"
    file.write_text('server = ["tcp://a:1", "tcp://b:2"]\nwait = 3\nexpiry = 7.5\nslab = 2\n')
    monkeypatch.setenv("SPHTP_CLIENT_CONFIG", str(file))
    found = values(client)
    assert (found["server"], found["wait"], found["slab"]) == (("tcp://a:1", "tcp://b:2"), 3.0, 2)
    monkeypatch.setenv("SPHTP_CLIENT_WAIT", "4")
    monkeypatch.setenv("SPHTP_CLIENT_SERVER", "tcp://c:3 tcp://d:4")
    found = values(client, "--expiry", "9")
    assert (found["wait"], found["expiry"]) == (4.0, 9.0)
    assert found["server"] == ("tcp://c:3", "tcp://d:4")
    # Another verb takes what it knows of the same file.
    assert values(watch)["expiry"] == 7.5
    assert values(status)["timeout"] == 5.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("wat = 3\n", "there is no key wat"),
        ("wait = -3\n", "wait = -3"),
        ("wait = 'soon'\n", "wait = 'soon'"),
        ("alone = 'yes'\n", "true or false"),
        ("slab = [1]\n", "slab = [1]"),
        ("=\n", "is not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text(text)
    for call in (checked(file), CliRunner().invoke(client, ["--config", str(file)])):
        assert call.exit_code == 2
        assert str(file) in call.output
        assert why in " ".join(call.output.split())


def checked(file: Path) -> Result:
    return CliRunner().invoke(check, [str(file), "--client"])


def test_the_check_of_a_client_reads_the_files_that_it_names(tmp_path: Path) -> None:
    file, secret = tmp_path / "client.toml", tmp_path / "secret"
    file.write_text(f"secret_file = '{secret}'\n")
    missing = checked(file)
    assert (missing.exit_code, str(secret) in missing.output) == (2, True)
    save_secret(secret, bytes(range(32)))
    fine = checked(file)
    assert fine.exit_code == 0
    assert f"secret_file = {secret}" in fine.output
    document = json.loads(CliRunner().invoke(check, [str(file), "--client", "--json"]).output)
    assert document["settings"] == {"secret_file": {"value": str(secret), "from": None}}


def test_the_relay_has_a_password_in_a_file(tmp_path: Path) -> None:
    file, password = tmp_path / "client.toml", tmp_path / "password"
    file.write_text(f"relay = 'turn://me@relay.example'\nrelay_password_file = '{password}'\n")
    missing = checked(file)
    assert (missing.exit_code, str(password) in missing.output) == (2, True)
    password.touch(0o600)
    password.write_text("secret\n")
    assert checked(file).exit_code == 0
    given = ("--relay", "turn://me@relay.example", "--relay-password-file", str(password))
    found = values(peers, "tcp://a:1", *given)
    relay = TerminalOptions.at(found.pop("address"), found).config().relay
    assert relay == TurnServer("relay.example", "me", "secret")
    for text, why in {
        "relay = 'turn://me@relay.example'": "--relay and --relay-password-file need each other",
        f"relay_password_file = '{password}'": "--relay and --relay-password-file need each other",
        f"relay = 'me'\nrelay_password_file = '{password}'": "turn://user@host:port",
    }.items():
        file.write_text(text)
        refused = checked(file)
        assert (refused.exit_code, why in refused.output) == (2, True), refused.output
