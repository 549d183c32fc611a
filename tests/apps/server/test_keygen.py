"""``sphtp keygen``: what it writes, what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sphtp.core.secure.identity import format_key
from sphtp.security import load_identity, load_secret, load_server_key
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


def test_a_cluster_s_key_vouches_for_the_keys_of_servers(tmp_path: Path) -> None:
    cluster, server, alone = (tmp_path / name for name in ("cluster", "server", "alone"))
    made = json.loads(call("--cluster", cluster, "--json").output)["cluster"]
    assert call("--server", server, "--cluster-key", cluster).exit_code == 0
    assert call("--server", alone).exit_code == 0
    key = load_server_key(server)
    assert key.certificate is not None
    assert format_key(key.certificate.cluster) == made["public"]
    assert load_server_key(alone).certificate is None
    for file in (cluster, server):
        shown = call("--show", file)
        assert shown.exit_code == 0
        private = file.read_text().splitlines()[1]
        assert private not in shown.output
    assert format_key(key.public) in call("--show", server).output
    refused = call("--secret", tmp_path / "secret", "--cluster-key", cluster)
    assert (refused.exit_code, "give --server FILE" in refused.output) == (2, True)
    refused = call("--server", tmp_path / "other", "--cluster-key", server)
    assert (refused.exit_code, "a cluster's key is wanted" in refused.output) == (2, True)
    assert not (tmp_path / "other").exists()


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
