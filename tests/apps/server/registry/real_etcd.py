"""Real members of etcd on loopback, for tests: started, frozen, killed, and asked."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from sphtp_server.registry.gateway import Gateway, GatewayError
from sphtp_server.registry.location import EtcdAccess, EtcdLocation

PROGRAM = shutil.which("etcd")

needs_etcd = pytest.mark.skipif(PROGRAM is None, reason="etcd is not installed")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class EtcdMember:
    """One process of etcd, which keeps its data if it is started again."""

    def __init__(
        self,
        name: str,
        folder: Path,
        peers: dict[str, int],
        port: int,
        host: str = "127.0.0.1",
        entry: Sequence[str] = (),
    ) -> None:
        self.port = port
        self._host = host
        self._folder = folder
        peer = f"http://{host}:{peers[name]}"
        cluster = ",".join(f"{one}=http://{host}:{at}" for one, at in peers.items())
        self.command = [
            *entry, PROGRAM or "etcd", "--name", name, "--data-dir", str(folder / name),
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", cluster, "--heartbeat-interval", "50",
            "--election-timeout", "500", "--unsafe-no-fsync",
        ]  # fmt: skip
        self.files: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        scheme = "https" if self.files else "http"
        url = f"{scheme}://{self._host}:{self.port}"
        urls = ["--listen-client-urls", url, "--advertise-client-urls", url]
        environ = {"PATH": os.environ["PATH"], "ETCD_UNSUPPORTED_ARCH": os.uname().machine}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, *urls, *self.files], stdout=log, stderr=log, env=environ
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class EtcdMembers:
    """A cluster of one or three members; ``entry`` are words before each command."""

    def __init__(
        self, folder: Path, count: int, host: str = "127.0.0.1", entry: Sequence[str] = ()
    ) -> None:
        ports = free_ports(2 * count)
        peers = {f"m{index}": ports[index] for index in range(count)}
        self.members = [
            EtcdMember(name, folder, peers, ports[count + index], host, entry)
            for index, name in enumerate(peers)
        ]
        self.url = "etcd://" + ",".join(f"{host}:{one.port}" for one in self.members)
        self.access = EtcdAccess()

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask until some member answers."""
        gateway = Gateway(EtcdLocation.parse(self.url), self.access)
        try:
            while True:
                with trio.move_on_after(2):
                    try:
                        return await gateway.request(path, body)
                    except GatewayError:
                        await trio.sleep(0.02)
        finally:
            gateway.close()

    async def wait_ready(self) -> None:
        await self.ask("/v3/kv/range", {"key": "AA=="})

    async def compact(self) -> None:
        document = await self.ask("/v3/kv/range", {"key": "AA=="})
        revision = document["header"]["revision"]
        await self.ask("/v3/kv/compaction", {"revision": revision, "physical": True})


@asynccontextmanager
async def real_etcd(folder: Path, count: int = 1) -> AsyncIterator[EtcdMembers]:
    """Run members of etcd for the length of the block."""
    etcd = EtcdMembers(folder, count)
    try:
        for member in etcd.members:
            member.start()
        await etcd.wait_ready()
        yield etcd
    finally:
        for member in etcd.members:
            member.kill()
