"""``sphtp keygen``: what it writes, what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sphtp import load_identity, load_secret
from sphtp.core.secure.identity import format_key
from sphtp_server.keygen import keygen


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(keygen, [str(argument) for argument in arguments])


def test_it_writes_both_and_tells_the_public_key_only(tmp_path: Path) -> None:
    node, cluster = tmp_path / "node", tmp_path / "cluster"
    result = call("--identity", node, "--secret", cluster)
    assert result.exit_code == 0, result.output
    identity = load_identity(node)
    assert format_key(identity.public) in result.output
    assert identity.export() not in result.output
    assert format_key(load_secret(cluster)) not in result.output
    for file in (node, cluster):
        assert file.stat().st_mode & 0o777 == 0o600


def test_json_has_the_same(tmp_path: Path) -> None:
    node = tmp_path / "node"
    made = json.loads(call("--identity", node, "--json").output)
    assert made == {
        "identity": {"file": str(node), "public": format_key(load_identity(node).public)}
    }
    shown = json.loads(call("--show", node, "--json").output)
    assert shown == {"show": made["identity"]}


def test_files_are_overwritten_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    assert call("--secret", file).exit_code == 0
    first = load_secret(file)
    refused = call("--secret", file)
    assert refused.exit_code == 2
    assert "is there already" in refused.output
    assert load_secret(file) == first
    assert call("--secret", file, "--force").exit_code == 0
    assert load_secret(file) != first


def test_a_file_that_others_can_read_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "node"
    call("--identity", file)
    file.chmod(0o644)
    result = call("--show", file)
    assert result.exit_code == 2
    assert "chmod 600" in result.output


@pytest.mark.parametrize("arguments", [(), ("--force",), ("--json",)])
def test_nothing_to_do_is_a_wrong_call(arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert "--identity FILE" in result.output


def test_of_two_files_none_is_written_when_one_is_there(tmp_path: Path) -> None:
    node, cluster = tmp_path / "node", tmp_path / "cluster"
    call("--secret", cluster)
    result = call("--identity", node, "--secret", cluster)
    assert result.exit_code == 2
    assert str(cluster) in result.output
    assert not node.exists()
