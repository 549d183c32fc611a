"""Clients without an address find servers on this host, and over multicast DNS on loopback."""

import asyncio
import errno
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import trio
import zeroconf

from sphtp import Config, ServerAddress, UnreachableError, open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.announcement import Announcement
from sphtp.errors import SettingsError
from sphtp.security import ClusterSecurity
from sphtp.shell import discovery
from sphtp.shell.discovery import (
    announced,
    config_of_environment,
    find_servers,
    folder,
    read_files,
)
from sphtp.shell.keys import save_secret
from tests.deadline import until
from tests.interpreters import ForkedProcess

ANYWHERE = "tcp://127.0.0.1:0"
LOOPBACK = ["127.0.0.1"]
SECRET = Config(cluster=ClusterSecurity(secret=bytes(32)))
OTHER_SECRET = Config(cluster=ClusterSecurity(secret=bytes([1]) * 32))


@pytest.fixture(autouse=True)
def _a_folder_and_a_service_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other processes on this host announce is not found, neither in files nor over DNS."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(discovery, "SERVICE", f"_sphtp{os.getpid()}._tcp.local.")
    monkeypatch.setattr(discovery, "SEARCH", 0.3)


async def test_a_client_finds_the_server_of_this_host() -> None:
    async with open_server(ANYWHERE, new_cluster=True, announce=True) as server:
        await server.wait_active()
        async with open_client() as client:
            assert set(client.servers) == {server.id}
    assert list(folder().iterdir()) == []


async def test_servers_of_one_cluster_are_found_as_one() -> None:
    async with (
        open_server(ANYWHERE, new_cluster=True, announce=True) as first,
        open_server(ANYWHERE, join=[first.address], announce=True) as second,
    ):
        await second.wait_active()
        await until(lambda: len({each.cluster for each in read_files()}) == 1)
        await until(lambda: len(read_files()) == 2)
        async with open_client() as client:
            # A client may be established before it has heard the second server.
            await until(lambda: set(client.servers) == {first.id, second.id})


async def test_a_client_takes_servers_and_secret_from_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SECRET.cluster.secret is not None
    save_secret(tmp_path / "secret", SECRET.cluster.secret)
    monkeypatch.setenv("SPHTP_CLIENT_SECRET_FILE", str(tmp_path / "secret"))
    async with open_server(ANYWHERE, new_cluster=True, announce=True, config=SECRET) as server:
        monkeypatch.setenv("SPHTP_CLIENT_SERVER", f"{server.address} tcp://127.0.0.1:1")
        async with open_client() as client:
            assert set(client.servers) == {server.id}
        # With the secret alone it finds the servers that have it.
        monkeypatch.delenv("SPHTP_CLIENT_SERVER")
        await until(lambda: len(read_files()) == 1)
        async with open_client() as client:
            assert set(client.servers) == {server.id}
        monkeypatch.setenv("SPHTP_CLIENT_SERVER", "udp://h:1")
        with pytest.raises(SettingsError, match="SPHTP_CLIENT_SERVER"):
            async with open_client():
                pass


def test_what_a_config_says_wins_over_the_environment(tmp_path: Path) -> None:
    save_secret(tmp_path / "secret", bytes(32))
    environ = {
        "SPHTP_CLIENT_SECRET_FILE": str(tmp_path / "secret"),
        "SPHTP_CLIENT_HEARTBEAT": "0.5",
        "SPHTP_CLIENT_EXPIRY": "4",
    }
    timers = ControlTimers(heartbeat=0.5, expiry=4.0)
    assert config_of_environment(Config(), environ) == Config(
        cluster=ClusterSecurity(secret=bytes(32)), timers=timers
    )
    assert config_of_environment(Config(), {}) == Config()
    own = Config(cluster=OTHER_SECRET.cluster, timers=ControlTimers())
    assert config_of_environment(own, environ) == own
    for name, text in (
        ("SPHTP_CLIENT_SECRET_FILE", "/none"),
        ("SPHTP_CLIENT_HEARTBEAT", "soon"),
        ("SPHTP_CLIENT_EXPIRY", "0"),
    ):
        with pytest.raises(SettingsError, match=name):
            config_of_environment(Config(), {name: text})


async def test_two_clusters_are_no_choice_of_a_client() -> None:
    async with (
        open_server(ANYWHERE, new_cluster=True, announce=True) as first,
        open_server(ANYWHERE, new_cluster=True, announce=True) as second,
    ):
        await until(lambda: len(read_files()) == 2)
        with pytest.raises(UnreachableError, match="found 2 clusters") as caught:
            await find_servers(Config(), LOOPBACK)
    assert str(first.address) in str(caught.value)
    assert str(second.address) in str(caught.value)


async def test_only_those_who_have_the_secret_follow() -> None:
    async with (
        open_server(ANYWHERE, new_cluster=True, announce=True, config=SECRET) as server,
        open_server(ANYWHERE, new_cluster=True, announce=True) as open_one,
    ):
        await until(lambda: len(read_files()) == 2)
        assert await find_servers(SECRET, LOOPBACK) == [server.address]
        assert await find_servers(Config(), LOOPBACK) == [open_one.address]
        with pytest.raises(UnreachableError) as caught:
            await find_servers(OTHER_SECRET, LOOPBACK)
    assert f"found a server at {server.address} that has another secret" in str(caught.value)
    assert f"found a server at {open_one.address} that has no secret" in str(caught.value)


async def test_nothing_is_found_where_nothing_is_announced() -> None:
    async with open_server(ANYWHERE, new_cluster=True):
        with pytest.raises(UnreachableError, match=r"within 0\.3 s: none is announced"):
            await find_servers(Config(), LOOPBACK)


KILLED = """
import os, signal, sys, trio
from sphtp import open_server
os.environ["XDG_RUNTIME_DIR"] = sys.argv[1]
async def main():
    async with open_server("tcp://127.0.0.1:0", new_cluster=True, announce=True) as server:
        await server.wait_active()
        from sphtp.shell.discovery import read_files
        while not read_files():
            await trio.lowlevel.checkpoint()
        os.kill(os.getpid(), signal.SIGKILL)
trio.run(main)
"""


async def test_a_server_with_long_names_is_found() -> None:
    """The file has room for it, and the name of its service is cut to what DNS allows."""
    name = ServerAddress.parse(f"tcp://{'.'.join(['a' * 50] * 4)}:8764")
    async with (
        open_server(ANYWHERE, new_cluster=True, advertise=name) as server,
        announced(server, Config(), LOOPBACK),
    ):
        await until(lambda: [each.address for each in read_files()] == [name])


async def test_a_server_that_ends_while_it_announces_itself_leaves_no_call_under_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else asyncio complains of it on the terminal."""
    calls = list[str]()

    async def announce(*_: object, **__: object) -> None:
        calls.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            calls.append("ended")

    monkeypatch.setattr(zeroconf.Zeroconf, "async_register_service", announce)
    async with (
        open_server(ANYWHERE, new_cluster=True) as server,
        announced(server, Config(), LOOPBACK),
    ):
        await until(lambda: bool(calls))
    assert calls == ["begun", "ended"]
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


async def test_a_disk_that_is_full_ends_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    async with open_server(ANYWHERE, new_cluster=True, announce=True) as server:
        await until(lambda: "No space left" in caplog.text)
        async with open_client(server.address) as client:
            assert set(client.servers) == {server.id}
    assert read_files() == []


async def test_the_file_of_a_killed_server_is_deleted(tmp_path: Path) -> None:
    process = ForkedProcess(KILLED, [str(tmp_path)])
    try:
        assert await process.wait() == -signal.SIGKILL
    finally:
        await process.aclose()
    assert len(list(folder().iterdir())) == 1
    assert read_files() == []
    assert list(folder().iterdir()) == []


def test_files_of_others_are_not_read(tmp_path: Path) -> None:
    folder().mkdir(mode=0o700)
    for name in ("a.server", "b.server", "c.new"):
        (folder() / name).write_text("[1, {")
    assert read_files() == []
    folder().chmod(0o777)
    (folder() / "d.server").write_text("{}")
    assert read_files() == []
    assert (folder() / "d.server").exists(), "a folder that is not this user's own is left alone"


async def test_a_server_is_found_over_multicast_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "SEARCH", 10.0)
    async with (
        open_server(ANYWHERE, new_cluster=True, config=SECRET) as server,
        announced(server, SECRET, LOOPBACK),
    ):
        await until(lambda: len(read_files()) == 1)
        # Not by the file.
        monkeypatch.setattr(discovery, "read_files", list)
        assert await find_servers(SECRET, LOOPBACK) == [server.address]
        monkeypatch.setattr(discovery, "SEARCH", 2.0)
        # A search may miss the answers on a machine that is busy; the next one sees them.
        error = ""
        for _ in range(10):
            with pytest.raises(UnreachableError) as caught:
                await find_servers(OTHER_SECRET, LOOPBACK)
            error = str(caught.value)
            if "none is announced" not in error:
                break
        assert "that has another secret" in error


async def test_a_file_is_written_when_it_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[bytes]()
    pwrite = os.pwrite

    def noted(number: int, data: bytes, offset: int) -> int:
        written.append(data)
        return pwrite(number, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    async with open_server(ANYWHERE, new_cluster=True, announce=True) as server:
        await until(lambda: len(read_files()) == 1)
        for _ in range(5):
            async with open_client(server.address):
                await until(lambda: len(server.clients) == 1)
            await until(lambda: not server.clients)
        assert len(written) == 1


class ServiceName(str):
    """A name that can be counted for as long as anybody has it."""

    __slots__ = ("__weakref__",)


class CrowdedNetwork:
    """A network that offers services without end; it stands for two classes of ``zeroconf``."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = 0
        self._at_once = 0
        self.most_at_once = 0
        self.kept = 0
        self.begins, self.may_offer, self.has_offered = (threading.Event() for _ in range(3))
        self._lock = threading.Lock()

    def zeroconf(self, **_: object) -> "CrowdedNetwork":
        return self

    def browser(self, _zeroconf: object, _service: str, handlers: list[Any]) -> "CrowdedNetwork":
        self.begins.set()
        self.may_offer.wait()
        refs = list[ref[ServiceName]]()
        for number in range(self.count):
            name = ServiceName(f"server-{number}")
            refs.append(ref(name))
            handlers[0](name=name)
        self.kept = sum(each() is not None for each in refs)
        self.has_offered.set()
        return self

    async def keep_program_busy(self) -> None:
        """Hold up the event loop while services are offered."""
        await trio.to_thread.run_sync(self.begins.wait)
        self.may_offer.set()
        self.has_offered.wait()

    def get_service_info(self, *_: object) -> Any:
        with self._lock:
            number = self.asked = self.asked + 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(0.001)
        with self._lock:
            self._at_once -= 1
        address = ServerAddress.parse(f"tcp://10.0.{number // 250}.{number % 250}:8764")
        texts = Announcement.make(address, 2 * number, bytes(32)).encode()
        return SimpleNamespace(properties={key.encode(): texts[key].encode() for key in texts})

    def close(self) -> None:
        pass

    cancel = close
    loop = None


async def test_a_crowded_network_costs_a_few_threads_and_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = CrowdedNetwork(2000)
    monkeypatch.setattr(zeroconf, "Zeroconf", network.zeroconf)
    monkeypatch.setattr(zeroconf, "ServiceBrowser", network.browser)
    monkeypatch.setattr(discovery, "SEARCH", 2.0)
    monkeypatch.setattr(discovery, "MOST_SERVERS", 50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.keep_program_busy)
        with pytest.raises(UnreachableError) as caught:
            await find_servers(OTHER_SECRET, LOOPBACK)
    # The last one is a variable of the network's, too.
    assert network.kept <= discovery.MOST_OFFERED + 1
    assert network.most_at_once <= 16
    assert 50 < network.asked <= 300
    assert str(caught.value).count("that has another secret") == 50


async def test_the_extra_is_named_where_the_library_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(UnreachableError, match=r"sphtp\[discovery\]"):
        await find_servers(Config())
