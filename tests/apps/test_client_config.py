"""Settings of clients: options over variables over a file that all verbs share."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from sphtp.shell.keys import save_secret
from sphtp_client.simulation.command import client
from sphtp_client.watch.command import watch
from sphtp_server.check import check
from sphtp_server.client_config import KEYS, key_of
from sphtp_server.status import status

VERBS = (client, watch, status)


def values(command: click.Command, *arguments: str) -> dict[str, Any]:
    return command.make_context("verb", [*arguments]).params


def options(command: click.Command) -> dict[str, click.Option]:
    found = [each for each in command.params if isinstance(each, click.Option)]
    return {key_of(option): option for option in found}


def test_the_keys_are_the_options_of_all_verbs() -> None:
    assert set().union(*map(options, VERBS)) - {"config"} == KEYS


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
