"""`sphtp doctor` in containers of the image, of which something is missing, and in a sound one.

Two networks that are joined by a bridge have a server on the left, and the patient on the right.
Podman and root are needed.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from sphtp.shell.keys import save_secret
from tests.chaos.namespaces import Namespaces, open_namespaces
from tests.chaos.rooms import Side
from tests.chaos.test_doctor import HOLDER, largest_buffer, only
from tests.containers import IMAGE, PODMAN, build_image, call, needs_podman

pytestmark = [pytest.mark.soak, needs_podman]

SECRET = "/run/secrets/cluster"
NAME = f"{IMAGE}-doctor"
"""The name of the secret, which is that of the containers as well."""

PEER = f"""
import sys, trio, sphtp
from sphtp.security import ClusterSecurity, load_secret
async def main():
    config = sphtp.Config(cluster=ClusterSecurity(secret=load_secret("{SECRET}")))
    async with sphtp.open_client([sys.argv[1]], name="fluid", host=sys.argv[2], config=config):
        print("ready", flush=True)
        await trio.sleep_forever()
trio.run(main)
"""

# The image has no zeroconf, for it announces nothing.
NO_ZEROCONF = ("warning", "multicast", "zeroconf is missing: servers on the network are not found")

Finding = tuple[str, str, str]


@pytest.fixture(autouse=True, scope="module")
def _image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    build_image()
    secret = tmp_path_factory.mktemp("doctor") / "secret"
    save_secret(secret, bytes(32))
    call(PODMAN, "secret", "create", NAME, str(secret))
    try:
        yield
    finally:
        call(PODMAN, "secret", "rm", NAME)


@dataclass
class Site:
    rooms: Namespaces

    async def start(self, side: Side, what: str, *words: str, sign: str) -> None:
        """Start a container that stays, and wait for a word in its log."""
        name = f"{NAME}-{what}"
        await self._podman("run", "-d", "--name", name, *self._options(side), *words)
        while sign not in await self._podman("logs", name):
            assert await self._podman("inspect", name, "--format", "{{.State.Running}}") == "true\n"
            await trio.sleep(0.1)

    async def examine(
        self, *arguments: str, options: tuple[str, ...] = (), mode: str = "0400"
    ) -> list[Finding]:
        """Return the warnings and faults of a container on the right: level, check and text."""
        command = [*self._options("right", mode), *options, "--rm", "--entrypoint", "sphtp"]
        command += [IMAGE, "doctor", *arguments, "--json", "--timeout", "3"]
        *findings, summary = map(json.loads, (await self._podman("run", *command)).splitlines())
        found = [(it["level"], it["check"], it["text"]) for it in findings if it["level"] != "ok"]
        print(*found, sep="\n")
        assert summary["faults"] + summary["warnings"] == len(found)
        return [finding for finding in found if finding != NO_ZEROCONF]

    def _options(self, side: Side, mode: str = "0400") -> list[str]:
        secret = f"{NAME},target=cluster,uid=10001,mode={mode}"
        network = f"ns:{self.rooms.file(side)}"
        isolated = ("--cap-drop", "all", "--no-healthcheck")
        return [*isolated, "--network", network, "--secret", secret]

    async def _podman(self, *words: str) -> str:
        done = await trio.run_process([PODMAN, *words], capture_stdout=True, check=False)
        return done.stdout.decode()


@asynccontextmanager
async def open_site(host: str = "0.0.0.0") -> AsyncIterator[Site]:
    """Start a server on the left, which listens there."""
    with trio.fail_after(120):
        async with open_namespaces() as rooms:
            site = Site(rooms)
            try:
                at = f"tcp://{rooms.host('left')}:8764"
                words = ("--env", f"SPHTP_SERVER_HOST={host}", IMAGE, "--new", "--advertise", at)
                await site.start("left", "server", *words, sign="started")
                yield site
            finally:
                with trio.CancelScope(shield=True):
                    names = [f"{NAME}-{what}" for what in ("server", "peer", "holder")]
                    command = [PODMAN, "rm", "-f", "-i", "-t", "0", *names]
                    await trio.run_process(command, capture_stdout=True)


SERVER = "tcp://10.83.0.1:8764"
WITH_SECRET = (SERVER, "--secret-file", SECRET)


async def test_a_sound_one_has_no_fault() -> None:
    async with open_site() as site:
        command = ("--entrypoint", "python3", IMAGE, "-c", PEER, SERVER, site.rooms.host("left"))
        await site.start("left", "peer", *command, sign="ready")
        assert await site.examine(*WITH_SECRET) == []


async def test_no_multicast() -> None:
    async with open_site() as site:
        await site.rooms.change("ip link set out multicast off", "right")
        assert "out is up" in only(await site.examine(*WITH_SECRET), "warning", "multicast")


async def test_a_small_limit_of_descriptors() -> None:
    async with open_site() as site:
        found = await site.examine(*WITH_SECRET, options=("--ulimit", "nofile=48:48"))
        assert "of 48 are left" in only(found, "fault", "descriptors")


async def test_receive_buffers_that_the_kernel_keeps_small() -> None:
    async with open_site() as site:
        with largest_buffer(212_992):
            found = await site.examine(*WITH_SECRET)
        assert only(found, "warning", "receive buffer").startswith("212992 bytes of ")


async def test_a_port_that_another_container_has() -> None:
    async with open_site() as site:
        command = ("--entrypoint", "python3", IMAGE, "-c", HOLDER, "SOCK_STREAM", "8764")
        await site.start("right", "holder", *command, sign="ready")
        missing, taken = await site.examine()
        assert missing[:2] == ("fault", "servers")
        assert taken[:2] == ("fault", "TCP ports")
        assert "TCP port 8764" in taken[2]


async def test_a_secret_that_the_engine_made_readable_for_all() -> None:
    async with open_site() as site:
        found = await site.examine(*WITH_SECRET, mode="0444")
        assert "open to others (mode 0444)" in only(found, "fault", "keys")


async def test_a_profile_that_forbids_shared_memory(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    rule = {"names": ["memfd_create"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    async with open_site() as site:
        found = await site.examine(*WITH_SECRET, options=("--security-opt", f"seccomp={profile}"))
        text = only(found, "warning", "shared memory")
        assert text == "peers on this machine use UDP: Operation not permitted"


async def test_a_server_that_listens_in_its_own_container_only() -> None:
    async with open_site(host="127.0.0.1") as site:
        found = await site.examine(*WITH_SECRET)
        text = only(found, "fault", f"server {SERVER}")
        assert text.endswith("connection refused by 10.83.0.1:8764")


async def test_a_name_that_is_known_in_no_container() -> None:
    async with open_site() as site:
        found = await site.examine("tcp://server.invalid:8764", "--secret-file", SECRET)
        assert "'server.invalid' is unknown" in only(found, "fault", "DNS of server.invalid")
