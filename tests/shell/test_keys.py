"""Files with keys: written whole and for one's own eyes, and read only as such."""

import os
from errno import ENOSPC, EPERM
from pathlib import Path

import pytest

import sphtp
from sphtp import Peer
from sphtp.core.secure.identity import format_key
from sphtp.errors import SettingsError
from sphtp.shell.keys import (
    KEY_LOG,
    KeyLogFile,
    allow_only,
    draw_cluster_key,
    draw_identity,
    draw_secret,
    draw_server_key,
    load_cluster_key,
    load_identity,
    load_public,
    load_public_keys,
    load_secret,
    load_server_key,
    open_key_log,
    save_cluster_key,
    save_identity,
    save_secret,
    save_server_key,
)


def test_identities_and_secrets_come_back(tmp_path: Path) -> None:
    identity, secret = draw_identity(), draw_secret()
    save_identity(tmp_path / "node", identity)
    save_secret(tmp_path / "cluster", secret)
    assert load_identity(tmp_path / "node").public == identity.public
    assert load_secret(str(tmp_path / "cluster")) == secret
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster", "node"]


def test_two_secrets_differ() -> None:
    assert draw_secret() != draw_secret()


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_files_are_for_their_owner_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        save_secret(tmp_path / "file", draw_secret())
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600 & ~mask


def test_nothing_is_overwritten_unless_told(tmp_path: Path) -> None:
    file, first, second = tmp_path / "file", draw_secret(), draw_secret()
    save_secret(file, first)
    with pytest.raises(SettingsError, match="is there already"):
        save_secret(file, second)
    assert load_secret(file) == first
    save_secret(file, second, overwrite=True)
    assert load_secret(file) == second
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
def test_files_that_others_can_use_are_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    save_identity(file, draw_identity())
    file.chmod(mode)
    with pytest.raises(SettingsError, match=f"{mode:04o}.*chmod 600"):
        load_identity(file)


@pytest.mark.parametrize("text", ["", "short", "x" * 44, "A" * 60, "\0" * 44, "ä" * 22])
def test_files_with_something_else_are_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(SettingsError, match=str(file)):
        load_secret(file)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "file"
    for read in (load_secret, load_identity, load_public_keys):
        with pytest.raises(SettingsError, match=f"cannot read {nowhere}: No such file"):
            read(nowhere)
    with pytest.raises(SettingsError, match=f"cannot write {nowhere}: No such file"):
        save_secret(nowhere, draw_secret())


def test_public_keys_stand_one_per_line(tmp_path: Path) -> None:
    one, other = (draw_identity().public for _ in range(2))
    file = tmp_path / "members"
    file.write_text(f"# all\n\n{format_key(one)}  # the first\n  {format_key(other)}\n")
    keys = load_public_keys(file)
    assert keys == {one, other}
    admits = allow_only(keys)
    assert admits(Peer(7, b"", (), 5, key=one))
    assert not admits(Peer(7, b"", (), 5, key=draw_identity().public))
    assert not admits(Peer(7, b"", (), 5))


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "members"
    file.write_text(f"{format_key(draw_identity().public)}\nnonsense\n")
    with pytest.raises(SettingsError, match="members, line 2"):
        load_public_keys(file)


def full(_: int) -> None:
    raise OSError(ENOSPC, "No space left on device")


def test_a_disk_that_is_full_keeps_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SettingsError, match="No space left"):
        save_secret(tmp_path / "file", draw_secret())
    assert list(tmp_path.iterdir()) == []


def test_where_there_are_no_hard_links_files_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    file, secret = tmp_path / "file", draw_secret()
    save_secret(file, secret)
    assert load_secret(file) == secret
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="is there already"):
        save_secret(file, draw_secret())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_none_is_taken_for_another(tmp_path: Path) -> None:
    node, cluster = tmp_path / "node", tmp_path / "cluster"
    save_identity(node, draw_identity())
    save_secret(cluster, draw_secret())
    with pytest.raises(SettingsError, match="holds an identity, and a cluster's secret is wanted"):
        load_secret(node)
    with pytest.raises(SettingsError, match="holds a cluster's secret, and an identity is wanted"):
        load_identity(cluster)
    for file in (node, cluster):
        with pytest.raises(SettingsError, match="and public keys are wanted"):
            load_public_keys(file)


def test_keys_of_clusters_and_servers_come_back(tmp_path: Path) -> None:
    cluster, server, alone = (tmp_path / name for name in ("cluster", "server", "alone"))
    authority = draw_cluster_key()
    save_cluster_key(cluster, authority)
    save_server_key(server, own := draw_server_key(authority))
    save_server_key(alone, draw_server_key())
    assert load_cluster_key(cluster).public == authority.public == load_public(cluster)
    assert load_server_key(server).certificate == own.certificate
    assert load_server_key(server).public == own.public == load_public(server)
    assert load_server_key(alone).certificate is None
    with pytest.raises(SettingsError, match="holds a server's key, and a cluster's key is wanted"):
        load_cluster_key(server)
    with pytest.raises(SettingsError, match="holds a cluster's key, and a server's key is wanted"):
        load_server_key(cluster)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("no base64!", "a certificate is 128 characters"),
        (format_key(bytes(32)), "a certificate of 32 bytes"),
        (draw_cluster_key().certify(bytes(32)).export(), "another server's key"),
    ],
)
def test_a_wrong_certificate_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "server"
    save_server_key(file, draw_server_key())
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(SettingsError, match=f"{file}: .*{complaint}"):
        load_server_key(file)


def test_files_with_a_key_alone_are_read_as_what_they_are_read_for(tmp_path: Path) -> None:
    file, key = tmp_path / "file", bytes(range(32))
    file.write_text(format_key(key) + "\n")
    file.chmod(0o600)
    assert load_secret(file) == key
    assert load_identity(file).export() == format_key(key)


def test_no_key_is_logged_unless_the_environment_asks() -> None:
    with open_key_log({}) as nothing, open_key_log({KEY_LOG: ""}) as empty:
        assert (nothing, empty) == (None, None)


async def test_a_node_logs_the_keys_of_its_channels_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    async with sphtp.open_node() as quiet:
        monkeypatch.setenv(KEY_LOG, str(path))
        async with sphtp.open_channel(*quiet.address) as channel:
            await channel.send(1)
            accepted = await quiet.accept()
            assert await accepted.receive() == 1
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [line.split() for line in path.read_text().splitlines()]
    # One for each direction; the node that was opened before logs nothing.
    assert [label for label, *_ in lines] == ["SPHTP_CHANNEL_KEY"] * 2
    assert [(len(number), len(key)) for _, number, key in lines] == [(8, 64)] * 2
    assert len({key for *_, key in lines}) == 2
    assert f"the keys of all channels go to {path}" in caplog.text


def test_a_key_log_is_appended_to_and_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for number in (1, 2):
        with open_key_log({KEY_LOG: str(path)}) as key_log:
            assert key_log is not None
            key_log.write(number, bytes(32))
    zeros = "00" * 32
    lines = [f"SPHTP_CHANNEL_KEY {number:08x} {zeros}" for number in (1, 2)]
    assert path.read_text().splitlines() == lines
    path.chmod(0o640)
    with (
        pytest.raises(SettingsError, match="is open to others"),
        open_key_log({KEY_LOG: str(path)}),
    ):
        pass
    with (
        pytest.raises(SettingsError, match="SPHTPKEYLOGFILE: cannot write"),
        open_key_log({KEY_LOG: str(tmp_path / "nowhere" / "keys")}),
    ):
        pass


def test_a_key_log_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keys").touch()
    descriptor = os.open(tmp_path / "keys", os.O_RDONLY)
    key_log = KeyLogFile("keys", descriptor)
    key_log.write(1, bytes(32))
    key_log.write(2, bytes(32))
    os.close(descriptor)
    assert caplog.text.count("cannot write keys to keys") == 1
