"""Files that this user may not look at: one line each, which names the path and the cause."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from sphtp_client.simulation.command import client
from sphtp_client.watch.command import watch
from sphtp_server.command import server
from sphtp_server.keygen import keygen
from sphtp_server.status import status

NOBODY = 65_534


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """Yield a file in a directory that the test may not enter, even where root runs it."""
    # Modules that commands import late may be out of somebody else's reach.
    for command in (client, keygen, server, status, watch):
        CliRunner().invoke(command, ["--help"])
        CliRunner().invoke(command, ["--no-such-option"])
    CliRunner().invoke(keygen, ["--show", str(tmp_path / "missing")])
    CliRunner().invoke(client, ["--scenario", str(tmp_path / "missing")])
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "file").write_text("")
    user = os.geteuid()
    folder.chmod(0)
    if user == 0:
        os.seteuid(NOBODY)
    yield folder / "file"
    os.seteuid(user)
    folder.chmod(stat.S_IRWXU)


def call(command: click.Command, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        (client, "--scenario", "cannot read"),
        (watch, "--secret-file", "cannot read"),
        (server, "--config", "cannot read"),
        (server, "--secret-file", "cannot read"),
        (server, "--allow-file", "cannot read"),
        (keygen, "--identity", "cannot write"),
        (keygen, "--secret", "cannot write"),
        (keygen, "--show", "cannot read"),
        (status, "--secret-file", "cannot read"),
    ],
)
def test_a_file_in_somebody_else_s_directory(
    command: click.Command, option: str, words: str, closed: Path
) -> None:
    result = call(command, option, closed)
    assert result.exit_code == 2, result.output
    *_, line = result.output.splitlines()
    assert words in line
    assert f"{closed}: Permission denied" in line
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (client, "--scenario"),
        (server, "--config"),
        (keygen, "--show"),
        (keygen, "--identity"),
        (status, "--secret-file"),
    ],
)
@pytest.mark.parametrize(
    ("place", "cause"),
    [("file/inside", "Not a directory"), ("n" * 300, "File name too long"), ("", "directory")],
)
def test_paths_that_can_be_no_file(
    command: click.Command, option: str, place: str, cause: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = call(command, option, tmp_path / place)
    assert result.exit_code == 2, result.output
    *_, line = result.output.splitlines()
    assert cause in line
    assert str(tmp_path / place) in line


@pytest.mark.parametrize(("command", "option"), [(server, "--config"), (keygen, "--show")])
def test_a_file_that_is_not_there_is_named(
    command: click.Command, option: str, tmp_path: Path
) -> None:
    result = call(command, option, tmp_path / "missing")
    assert result.exit_code == 2
    assert f"cannot read {tmp_path / 'missing'}: No such file or directory" in result.output
