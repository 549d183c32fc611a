"""`sphtp doctor` over loopback: a sound cluster, and faults that need no network of their own."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

import pytest
import trio

from sphtp import Config, open_server
from sphtp.security import ClusterSecurity, ServerKey, Tls, format_key, load_secret
from tests.apps.terminal.company import ended, open_company
from tests.certificates import Authority
from tests.deadline import within_20_seconds
from tests.interpreters import ForkedProcess

pytestmark = within_20_seconds


async def examine(*arguments: str) -> tuple[int, Sequence[dict[str, str]]]:
    """Return the exit code and the findings."""
    process = ForkedProcess.of_module("sphtp", ["doctor", *arguments, "--json"])
    ending = await ended(process)
    assert ending.err == ""
    *findings, summary = map(json.loads, ending.lines)
    assert summary["event"] == "summary"
    return ending.code, findings


def faults(findings: Sequence[dict[str, str]]) -> Sequence[dict[str, str]]:
    return [finding for finding in findings if finding["level"] == "fault"]


@pytest.fixture(autouse=True)
def _no_announcements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


async def test_a_sound_cluster_has_no_fault_and_its_programs_notice_nothing() -> None:
    async with open_company() as company:
        code, findings = await examine(company.address)
        assert (code, faults(findings)) == (0, [])
        checks = [finding["check"] for finding in findings]
        label = f"fluid ({company.peer.id:#010x})"
        assert f"peer {label}" in checks
        assert f"MTU to {label}" in checks
        assert f"server {company.address}" in checks
        with trio.move_on_after(0) as scope:
            await company.peer.accept()
        assert scope.cancelled_caught


async def test_secrets_that_do_not_match_are_named(tmp_path: Path) -> None:
    file = tmp_path / "cluster.secret"
    await ended(ForkedProcess.of_module("sphtp", ["keygen", "--secret", str(file)]))
    config = Config(cluster=ClusterSecurity(secret=bytes(32)))
    async with open_server("tcp://127.0.0.1:0", new_cluster=True, config=config) as server:
        address = str(server.advertised)
        code, findings = await examine(address, "--secret-file", str(file))
        (wrong,) = faults(findings)
        _, findings = await examine(address)
        (none,) = faults(findings)
    assert code == 1
    assert "wrong secret" in wrong["text"]
    assert "none was given here" in none["text"]
    file.chmod(0o644)
    _, findings = await examine(address, "--secret-file", str(file))
    assert [finding["remedy"] for finding in faults(findings)] == [f"chmod 600 {file}"]


async def test_a_certificate_of_another_authority(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    cert, key = ours.issue("127.0.0.1")
    config = Config(cluster=ClusterSecurity(tls=Tls(cert=cert, key=key)))
    async with open_server("tls+tcp://127.0.0.1:0", new_cluster=True, config=config) as server:
        address = str(server.advertised)
        code, findings = await examine(address, "--tls-ca", str(ours.ca))
        assert (code, faults(findings)) == (0, [])
        _, findings = await examine(address, "--tls-ca", str(other.ca))
    (fault,) = faults(findings)
    assert "certificate of 127.0.0.1:" in fault["text"]
    assert fault["remedy"].startswith("openssl s_client -connect 127.0.0.1:")


async def test_a_key_of_another_server(tmp_path: Path) -> None:
    file = tmp_path / "cluster.secret"
    await ended(ForkedProcess.of_module("sphtp", ["keygen", "--secret", str(file)]))
    right, wrong = (ServerKey.draw(SystemRandom()) for _ in range(2))
    cluster = ClusterSecurity(secret=load_secret(file), signing_key=right)
    at = "tcp://127.0.0.1:0"
    async with open_server(at, new_cluster=True, config=Config(cluster=cluster)) as server:
        arguments = (str(server.advertised), "--secret-file", str(file), "--server-key")
        code, findings = await examine(*arguments, format_key(right.public))
        assert (code, faults(findings)) == (0, [])
        _, findings = await examine(*arguments, format_key(wrong.public))
    (fault,) = faults(findings)
    assert "wrong server key" in fault["text"]
    assert fault["remedy"] == f"sphtp doctor {server.advertised} --server-key=KEY"


async def test_a_server_that_is_not_there_and_a_name_that_nobody_knows() -> None:
    _, findings = await examine("tcp://127.0.0.84:9")
    (fault,) = faults(findings)
    assert fault["text"].endswith("connection refused by 127.0.0.84:9")
    _, findings = await examine("tcp://host.invalid:9")
    (fault,) = faults(findings)
    assert fault["check"] == "DNS of host.invalid"


async def test_another_program_at_the_port_of_a_server() -> None:
    async def talk(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example ESMTP\r\n")
        await stream.receive_some()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, talk, listeners)
        _, findings = await examine(f"tcp://127.0.0.1:{port}")
        nursery.cancel_scope.cancel()
    (fault,) = faults(findings)
    assert "is no SphTP server" in fault["text"]
    assert fault["remedy"] == f"sudo ss -ltnp 'sport = :{port}'"
