"""A server that is reloaded, drained, watched by its service manager, and found without address."""

import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

import sphtp
from sphtp import Config, RefusedError
from sphtp.config import ControlTimers
from sphtp.core.secure.identity import format_key
from sphtp.events import ServerState, Suspended
from sphtp.security import ClusterSecurity, Security, Tls
from sphtp.shell.discovery import folder, local_servers
from sphtp.shell.keys import draw_identity, save_secret
from sphtp.shell.lifetime import running
from sphtp_server.check import check
from sphtp_server.drain import wait_drained
from sphtp_server.local import drain
from sphtp_server.service_manager import ServiceManager
from sphtp_server.status import status
from tests.apps.server.test_daemon import Daemon, daemon, leave
from tests.certificates import Authority
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=2.0, announce_deadline=0.5)


async def reload(started: Daemon) -> dict[str, Any]:
    started.process.send_signal(signal.SIGHUP)
    return await started.line("reloaded")


def address_of(first: dict[str, Any]) -> str:
    return f"{first['pub']},{first['sub'].rpartition(':')[2]}"


# Reload


async def register(address: str) -> None:
    async with sphtp.open_client(address, config=Config(timers=TIMERS)):
        pass


async def test_a_reload_changes_what_can_change_and_names_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("max_clients = 1\n")
    async with daemon("--new", "--config", str(file), "--log-interval", "0.05") as started:
        address = address_of(await started.line("started"))
        config = Config(timers=TIMERS)
        async with sphtp.open_client(address, config=config), trio.open_nursery() as nursery:
            # It is refused, and tries again.
            nursery.start_soon(register, address)
            await started.line("a limit was reached")
            file.write_text("max_clients = 2\nexpiry = 30.0\n")
            # The option on the command line still wins over the file.
            assert (await reload(started))["changed"] == ["max_clients"]
            await started.line("client entered")
            file.write_text("max_clients = 2\nstun_per_second = 7\nhost = '127.0.0.2'\n")
            assert (await reload(started))["changed"] == ["stun_per_second"]
            rest = await started.line("these settings need a restart")
            assert rest["settings"] == ["host"]
        await leave(started, signal.SIGTERM)


async def test_a_wrong_reload_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("max_clients = 1\n")
    async with daemon("--new", "--config", str(file)) as started:
        await started.line("started")
        for wrong, why in (
            ("max_clients = 0\n", "max_clients"),
            ("max_clients = 2\nallow_file = '/nowhere'\n", "/nowhere"),
            ("max_clients = 2\nmax_client = 3\n", "max_client"),
        ):
            file.write_text(wrong)
            started.process.send_signal(signal.SIGHUP)
            assert why in (await started.line("not reloaded"))["why"]
        file.write_text("max_clients = 2\n")
        assert (await reload(started))["changed"] == ["max_clients"]
        await leave(started, signal.SIGTERM)


async def test_a_reload_reads_the_keys_of_clients_anew(tmp_path: Path) -> None:
    one, other = draw_identity(), draw_identity()
    keys = tmp_path / "clients"
    keys.write_text(f"{format_key(one.public)}\n")
    as_other = Config(timers=TIMERS, security=Security(identity=other))
    async with daemon("--new", "--allow-file", str(keys)) as started:
        address = address_of(await started.line("started"))
        with pytest.raises(RefusedError):
            async with sphtp.open_client(address, config=as_other):
                pass
        keys.write_text(f"{format_key(other.public)}\n")
        await reload(started)
        async with sphtp.open_client(address, config=as_other):
            pass
        await leave(started, signal.SIGTERM)


async def test_new_certificates_are_shown_to_those_who_come_then(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("127.0.0.1")
    config = Config(timers=TIMERS, cluster=ClusterSecurity(tls=Tls(authority.ca, cert, key)))
    async with sphtp.open_server(
        "tls+tcp://127.0.0.1:0,0", new_cluster=True, config=config
    ) as server:
        before = await shown(server, authority)
        async with sphtp.open_client(server.address, config=config) as client:
            events = client.events()
            authority.issue("127.0.0.1")
            server.set_tls(Tls(authority.ca, cert, key))
            assert await shown(server, authority) != before
            with pytest.raises(sphtp.errors.SettingsError):
                server.set_tls(Tls(authority.ca, tmp_path / "none", key))
            # The connections of those who are there stay.
            async with sphtp.open_client(server.address, config=config) as later:
                await client.wait_for_peer(later.id)
            assert client.state is sphtp.events.ClientState.ESTABLISHED
            events.close()


async def shown(server: sphtp.Server, authority: Authority) -> bytes:
    """Return the certificate that a server shows."""
    host, port = server.address.pub.removeprefix("tls+tcp://").split(":")
    context = ssl.create_default_context(cafile=authority.ca)
    stream = await trio.open_ssl_over_tcp_stream(host, int(port), ssl_context=context)
    async with stream:
        await stream.do_handshake()
        found: bytes = stream.getpeercert(binary_form=True)
        return found


async def test_a_log_that_was_renamed_goes_on_in_a_new_file(tmp_path: Path) -> None:
    log, old = tmp_path / "server.log", tmp_path / "server.log.1"
    async with daemon("--new", "--log-file", str(log)) as started:
        await until(lambda: log.exists() and b"started" in log.read_bytes())
        log.rename(old)
        started.process.send_signal(signal.SIGHUP)
        await until(log.exists)
        started.process.send_signal(signal.SIGTERM)
        assert await started.process.wait() == 0
    lines = (old.read_text() + log.read_text()).splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events == ["started", "reloaded", "leaving", "left"]


@pytest.mark.soak  # It starts an interpreter; .ci/run runs it beside the quick suite.
async def test_a_server_whose_terminal_closes_leaves() -> None:
    control, terminal = os.openpty()
    command = ("-m", "sphtp", "server", "--new", "--pub-port", "0", "--sub-port", "0")
    process = await trio.lowlevel.open_process(
        (sys.executable, "-c", TERMINAL, *command), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    try:
        os.set_blocking(control, False)
        text = b""
        while b"started" not in text:
            await trio.lowlevel.wait_readable(control)
            text += os.read(control, 4096)
    finally:
        # The kernel sends SIGHUP.
        os.close(control)
    assert await process.wait() == 0


TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # Under nohup it is ignored, and a server keeps that.
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


# Drain


@asynccontextmanager
async def neighbour(**options: Any) -> AsyncIterator[sphtp.Server]:
    async with sphtp.open_server(
        "tcp://127.0.0.1:0", config=Config(timers=TIMERS), **options
    ) as server:
        yield server


async def test_the_verb_drains_a_server_without_a_gap_for_any_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    suspended: list[object] = []
    results: list[Result] = []

    async def watch(client: sphtp.Client) -> None:
        async for event in client.events():
            if isinstance(event, Suspended):
                suspended.append(event)  # noqa: PERF401 # while it goes on

    async def call(address: str) -> None:
        results.append(await trio.to_thread.run_sync(CliRunner().invoke, drain, [address]))

    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    async with daemon("--new", "--expiry", "2", environ=environ) as started, AsyncExitStack() as on:
        address = address_of(await started.line("started"))
        config = Config(timers=TIMERS)
        clients = [
            await on.enter_async_context(sphtp.open_client(address, config=config))
            for _ in range(3)
        ]
        for client in clients:
            await on.enter_async_context(running(partial(watch, client)))
        await until(lambda: bool(local_servers()))
        await on.enter_async_context(running(partial(call, address)))
        assert (await started.line("draining"))["clients"] == 3
        # Nobody else is there yet, so that it stays. The other one learns of the clients from the
        # drained server until they come to it themselves.
        async with neighbour(join=[address]) as other:
            await other.wait_active()
            assert (await started.line("leaving"))["because"] == "drained"
            await until(lambda: bool(results))
            assert (results[0].exit_code, results[0].output) == (0, f"server {address} has left\n")
            assert await started.process.wait() == 0
            await until(lambda: all(set(each.servers) == {other.id} for each in clients))
            assert {each.state for each in clients} == {sphtp.events.ClientState.ESTABLISHED}
            assert set(other.clients) == {client.id for client in clients}
            clients[0].set_data("still here")
            await until(lambda: other.clients[clients[0].id].data == "still here")
            assert not suspended


async def test_all_servers_are_replaced_under_a_group_in_lock_step() -> None:
    config = Config(timers=TIMERS)
    steps: dict[str, list[list[Any]]] = {"ada": [], "bob": []}
    suspended: list[object] = []
    is_over = False

    async def serve(
        join: list[sphtp.ServerAddress],
        *,
        task_status: trio.TaskStatus[tuple[sphtp.Server, trio.Event]],
    ) -> None:
        leaving = trio.Event()
        async with neighbour(join=join, new_cluster=not join) as server:
            await server.wait_active()
            task_status.started((server, leaving))
            await leaving.wait()
            await wait_drained(server, config)

    async def work(name: str, address: sphtp.ServerAddress) -> None:
        async with sphtp.open_client(address, name=name, config=config) as client:
            events = client.events()
            async with client.join("sum", size=2) as group:
                while not any(is_last for _, is_last in steps_of(name)):
                    got = await group.exchange([group.step, is_over])
                    steps[name].append(list(got))
                    await trio.sleep(0.001)
        suspended.extend([event async for event in events if isinstance(event, Suspended)])

    def has_stopped(server: sphtp.Server) -> bool:
        return server.state is ServerState.STOPPED

    def has_more(before: int) -> bool:
        return len(steps["ada"]) > before

    def steps_of(name: str) -> list[Any]:
        return steps[name][-1] if steps[name] else []

    async with trio.open_nursery() as nursery:
        old: list[tuple[sphtp.Server, trio.Event]] = []
        for _ in range(3):
            old.append(await nursery.start(serve, [server.address for server, _ in old]))
        for name in steps:
            nursery.start_soon(work, name, old[0][0].address)
        await until(lambda: all(steps.values()))
        present = [*old]
        for leaver in old:
            present.remove(leaver)
            leaver[1].set()
            await until(partial(has_stopped, leaver[0]))
            present.append(await nursery.start(serve, [each.address for each, _ in present]))
            await until(partial(has_more, len(steps["ada"])))
        is_over = True
        for _, leaving in present:
            leaving.set()
    assert not suspended
    assert steps["ada"] == steps["bob"]
    assert [[number for number, _ in step] for step in steps["ada"]] == [
        [number] * 2 for number in range(len(steps["ada"]))
    ]


async def test_a_drain_ends_when_its_time_is_over() -> None:
    async with daemon("--new", "--expiry", "2", "--drain-time", "0.2") as started:
        address = address_of(await started.line("started"))
        async with sphtp.open_client(address, config=Config(timers=TIMERS)):
            started.process.send_signal(signal.SIGUSR1)
            assert (await started.line("not all clients"))["clients"] == 1
            assert await started.process.wait() == 0


async def test_the_verb_drains_the_server_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    call = partial(trio.to_thread.run_sync, partial(CliRunner().invoke, drain))
    assert (await call([])).exit_code == 4
    # Forked processes have the environment of the tests' own folder, and this one has another.
    async with sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True, announce=True) as own:
        await until(lambda: len(local_servers()) == 1)
        [server] = local_servers()
        assert (server.pid, server.announcement.address) == (os.getpid(), own.address)
        other = await call(["tcp://127.0.0.1:1"])
        assert other.exit_code == 4
        assert str(own.address) in other.output
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            asked = await call(["--no-wait", "--json"])
            assert json.loads(asked.stdout) == {"address": str(own.address), "left": False}
            assert await anext(signals) == signal.SIGUSR1
        found = await trio.to_thread.run_sync(CliRunner().invoke, status, ["--json"])
        assert json.loads(found.stdout)["id"] == own.id
    assert list(folder().iterdir()) == []


# The service manager


async def test_the_service_manager_is_told_of_each_change(tmp_path: Path) -> None:
    place = tmp_path / "notify"
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        await told.bind(str(place))

        async def until_told(wanted: str) -> None:
            while wanted not in (await told.recv(4096)).decode().split("\n"):
                pass

        environ = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "100000"}
        async with daemon("--new", environ=environ) as started:
            await until_told("READY=1")
            await until_told("WATCHDOG=1")
            started.process.send_signal(signal.SIGHUP)
            await until_told("RELOADING=1")
            await until_told("READY=1")
            started.process.send_signal(signal.SIGTERM)
            await until_told("STOPPING=1")
            assert await started.process.wait() == 0


async def test_a_service_manager_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    for name in ("", str(tmp_path / "nobody"), "@nobody", "x" * 500):
        ServiceManager({"NOTIFY_SOCKET": name}).notify("READY=1")
    own = {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
    assert ServiceManager(own).watchdog == 3.0
    assert [ServiceManager(each).interval for each in (own, {})] == [1.5, 10.0]
    assert ServiceManager({**own, "WATCHDOG_PID": "1"}).watchdog is None
    assert ServiceManager({"WATCHDOG_USEC": "soon"}).watchdog is None


# The check


async def test_a_configuration_is_checked_with_the_files_that_it_names(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "server.toml"
    file.write_text(f"secret_file = '{secret}'\nmax_clients = 7\n")
    missing = CliRunner().invoke(check, [str(file)])
    assert (missing.exit_code, str(secret) in missing.output) == (2, True)
    save_secret(secret, bytes(range(32)))
    environ = {"SPHTP_SERVER_LOG_LEVEL": "debug"}
    fine = CliRunner().invoke(check, [str(file)], env=environ)
    assert fine.exit_code == 0
    assert f"max_clients = 7  ({file}: max_clients)" in fine.output
    assert "log_level = debug  (environment variable SPHTP_SERVER_LOG_LEVEL)" in fine.output
    file.write_text("max_clients = 0\n")
    wrong = CliRunner().invoke(check, [], env={"SPHTP_SERVER_CONFIG": str(file)})
    assert (wrong.exit_code, "max_clients" in wrong.output) == (2, True)
