"""`sphtp doctor` in broken networks of namespaces: it names each fault, and none in a sound one."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tests.chaos.clock import WallClock
from tests.chaos.namespaces import Namespaces, open_namespaces
from tests.chaos.process import Program, start
from tests.chaos.rooms import Side

pytestmark = [pytest.mark.soak, pytest.mark.chaos]

SPHTP = (sys.executable, "-m", "sphtp")

PEER = """
import json, sys, trio, sphtp
async def main():
    async with sphtp.open_client([sys.argv[1]], name="fluid", host=sys.argv[2]):
        print(json.dumps({"event": "ready"}), flush=True)
        await trio.sleep_forever()
trio.run(main)
"""
HOLDER = """
import json, socket, sys, time
kind, port = getattr(socket, sys.argv[1]), int(sys.argv[2])
held = socket.socket(type=kind)
held.bind(("0.0.0.0", port))
print(json.dumps({"event": "ready"}), flush=True)
time.sleep(100)
"""

# A program that has opened so many files before it becomes another one, which inherits them.
FULL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
for _ in range(int(sys.argv[1])):
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execvp(sys.argv[2], sys.argv[2:])
"""
# Of the whole machine: the kernel has one limit for all namespaces, and shows it in each.
LARGEST_BUFFER = Path("/proc/sys/net/core/rmem_max")

# Incoming packets find no route and vanish, before the table of this machine's own addresses.
DROP = """
set -e
ip rule add pref 1 table local
ip rule add pref 0 iif out ipproto {what} blackhole
ip rule del pref 0 table local
"""


@dataclass
class Site:
    """A server on the left, a peer named fluid on the right."""

    rooms: Namespaces
    nursery: trio.Nursery
    folder: Path
    server: Program
    address: str

    async def examine(
        self, side: Side, *arguments: str, before: Sequence[str] = (), **environment: str
    ) -> list[tuple[str, str, str]]:
        """Return the warnings and faults: level, check and text."""
        command = [*self.rooms.entry(side), *before, *SPHTP, "doctor", *arguments]
        return await examine(command, self.folder, environment)

    async def hold(self, side: Side, kind: str, port: int) -> Program:
        command = [*self.rooms.entry(side), sys.executable, "-c", HOLDER, kind, str(port)]
        program = await start(self.nursery, "holder", command)
        await program.heard("ready")
        return program


async def examine(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    given = {**os.environ, "XDG_RUNTIME_DIR": str(folder), **environment}
    done = await trio.run_process(
        [*command, "--json", "--timeout", "3"], check=False, capture_stdout=True, env=given
    )
    *findings, summary = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(it["level"], it["check"], it["text"]) for it in findings if it["level"] != "ok"]
    print(*found, sep="\n")
    assert done.returncode == (1 if any(level == "fault" for level, *_ in found) else 0)
    assert summary["faults"] + summary["warnings"] == len(found)
    return found


@asynccontextmanager
async def open_site(folder: Path, host_of_peer: str | None = None) -> AsyncIterator[Site]:
    async with open_namespaces() as rooms, trio.open_nursery() as nursery:
        host = rooms.host("left")
        command = [*rooms.entry("left"), *SPHTP, "server", "--new", f"--host={host}"]
        command += ["--insecure", "--no-announce", "--log-format=json"]
        programs = [server := await start(nursery, "server", command)]
        try:
            started = await server.heard("started")
            address = str(started["pub"])
            command = [*rooms.entry("right"), sys.executable, "-c", PEER, address]
            peer = await start(nursery, "peer", [*command, host_of_peer or rooms.host("right")])
            programs.append(peer)
            await peer.heard("ready")
            yield Site(rooms, nursery, folder, server, address)
        finally:
            for program in programs:
                await program.end()
            nursery.cancel_scope.cancel()


def only(found: list[tuple[str, str, str]], level: str, check: str) -> str:
    """Return the text of the one finding, which is of this level and check."""
    assert [(it[0], it[1].split(" (")[0]) for it in found] == [(level, check)]
    return found[0][2]


@contextmanager
def largest_buffer(size: int) -> Iterator[None]:
    """Change the limit of this machine for the length of the block."""
    before = LARGEST_BUFFER.read_text(encoding="ascii")
    try:
        LARGEST_BUFFER.write_text(f"{size}", encoding="ascii")
    except OSError as error:
        pytest.skip(f"the limit of this machine cannot be changed: {error}")
    try:
        yield
    finally:
        LARGEST_BUFFER.write_text(before, encoding="ascii")


async def test_a_sound_set_up_has_no_fault(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for side in ("left", "right"):
            assert await site.examine(side, site.address) == []


async def test_a_firewall_for_datagrams_in_one_direction(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change(DROP.format(what="udp"), "right")
        text = only(await site.examine("left", site.address), "fault", "peer fluid")
        assert f"UDP to {site.rooms.host('right')}:" in text


async def test_a_firewall_before_the_server(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change(DROP.format(what="tcp"), "left")
        found = await site.examine("right", site.address)
        text = only(found, "fault", f"server {site.address}")
        assert f"no answer from {site.rooms.host('left')}:8764" in text


async def test_a_firewall_before_one_of_the_ports_of_a_server(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change(DROP.format(what="tcp dport 8765"), "left")
        found = await site.examine("right", site.address)
        text = only(found, "fault", f"server {site.address}")
        assert f"no answer from {site.rooms.host('left')}:8765" in text


@pytest.mark.parametrize("size", [1300, 700])
async def test_a_black_hole_for_large_datagrams(tmp_path: Path, size: int) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change(f"ip link set right mtu {size}")
        text = only(await site.examine("left", site.address), "warning", "MTU to fluid")
        assert text.endswith("vanish, though the route here has an MTU of 1500")


async def test_a_clock_that_is_an_hour_off(tmp_path: Path) -> None:
    wall = WallClock(tmp_path)
    wall.step(-3600.0)
    async with open_site(tmp_path) as site:
        found = await site.examine("right", site.address, **wall.environment)
        assert only(found, "fault", "clock").startswith("this machine's is 3600 s behind")


async def test_no_multicast(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change("ip link set out multicast off", "right")
        found = await site.examine("right", site.address)
        assert "out is up" in only(found, "warning", "multicast")


async def test_a_cable_that_is_not_plugged_in(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change("ip link set out down", "right")
        alone, unreachable = await site.examine("right", site.address)
        assert alone[:2] == ("warning", "multicast")
        assert unreachable[:2] == ("fault", f"server {site.address}")
        assert "Network is unreachable" in unreachable[2]


async def test_a_port_that_another_program_has(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        holder = await site.hold("right", "SOCK_STREAM", 8764)
        missing, taken = await site.examine("right")
        await holder.end()
        assert missing[:2] == ("fault", "servers")
        assert taken[:2] == ("fault", "TCP ports")
        assert "TCP port 8764" in taken[2]


async def test_a_server_that_is_not_announced_is_found_at_the_usual_port(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        command = [*site.rooms.entry("right"), *SPHTP, "server", "--new", "--no-announce"]
        server = await start(site.nursery, "second", [*command, "--log-format=json"])
        await server.heard("started")
        found = await site.examine("right")
        await server.end()
        assert found == []


async def test_no_free_port_for_datagrams(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.rooms.change("sysctl -w net.ipv4.ip_local_port_range='40000 40000'", "right")
        holder = await site.hold("right", "SOCK_DGRAM", 40000)
        found = await site.examine("right", site.address)
        await holder.end()
        assert ("fault", "UDP ports", "no free port: Address already in use") in found


async def test_descriptors_that_are_used_up(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        limit = ("sh", "-c", 'ulimit -n 48; exec "$@"', "sh")
        found = await site.examine("right", site.address, before=limit)
        assert "of 48 are left" in only(found, "fault", "descriptors")


async def test_descriptors_that_the_program_has_open_itself(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        filled = (sys.executable, "-c", FULL, "200")
        found = await site.examine("right", site.address, before=filled)
        text = only(found, "fault", "descriptors")
        assert text.endswith("of 256 are left for connections")
        enough = (sys.executable, "-c", FULL, "100")
        found = await site.examine("right", site.address, before=enough)
        assert only(found, "warning", "descriptors").startswith("256 allowed")


async def test_receive_buffers_that_the_kernel_keeps_small(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        with largest_buffer(212_992):
            found = await site.examine("right", site.address)
        text = only(found, "warning", "receive buffer")
        assert text.startswith("212992 bytes of ")
        assert await site.examine("right", site.address) == []


async def test_a_server_that_stands_still(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        site.server.freeze()
        found = await site.examine("right", site.address)
        site.server.thaw()
        text = only(found, "fault", f"server {site.address}")
        assert "no SphTP server, or stopped" in text or "no answer from" in text


async def test_a_peer_that_announces_its_loopback(tmp_path: Path) -> None:
    async with open_site(tmp_path, host_of_peer="127.0.0.1") as site:
        text = only(await site.examine("left", site.address), "fault", "peer fluid")
        assert text.startswith("announces 127.0.0.1 alone")
