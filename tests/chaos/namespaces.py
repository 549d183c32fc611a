"""Network namespaces and a bridge between them, for machines that allow it."""

import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Generic, NamedTuple, TypeVar

import trio

from tests.chaos.rooms import Rooms, Side

Name = TypeVar("Name", bound=str)

HOSTS: Final[dict[Side, str]] = {"left": "10.83.0.1", "right": "10.83.0.2"}
HUB: Final = "10.83.0.254"
KEEPER: Final = ("unshare", "--net", "sh", "-c", "ip link set lo up && echo here && exec cat")
DISABLED: Final = "0"
FORWARDING: Final = "3"

LAY: Final = """
set -e
ip link add bridge type bridge
ip address add {hub}/24 dev bridge
ip link set bridge up
bridge link show
"""
PLUG: Final = """
set -e
ip link add {side} type veth peer name out netns {pid}
ip link set {side} master bridge up
nsenter --net --target {pid} ip address add {host}/24 dev out
nsenter --net --target {pid} ip link set out up
"""


class Namespaces(Rooms):
    """Made by ``open_namespaces``. A cut is silent: both sides believe that they are plugged in."""

    def __init__(self, hub: int, keepers: dict[Side, int]) -> None:
        self._hub = hub
        self._keepers = keepers

    def entry(self, side: Side) -> tuple[str, ...]:
        return into(self._keepers[side])

    def file(self, side: Side) -> str:
        """Return the file by which a container joins the network of a side."""
        return f"/proc/{self._keepers[side]}/ns/net"

    def host(self, side: Side) -> str:
        return HOSTS[side]

    async def cut(self) -> None:
        await self._switch(DISABLED)

    async def heal(self) -> None:
        await self._switch(FORWARDING)

    async def change(self, script: str, side: Side | None = None) -> None:
        """Run a script on a side, or where the bridge is, whose ports are named as the sides."""
        await _run(self._hub if side is None else self._keepers[side], script)

    async def _switch(self, state: str) -> None:
        switch = ("bridge", "link", "set", "dev", "right", "state", state)
        await trio.run_process([*into(self._hub), *switch])


def into(pid: int) -> tuple[str, ...]:
    return ("nsenter", "--net", "--target", str(pid), "--")


class Machines(NamedTuple, Generic[Name]):
    """Namespaces by name, and that of the bridge, each by the process that keeps it."""

    hub: int
    keepers: dict[Name, int]


@asynccontextmanager
async def open_machines(hosts: Mapping[Name, str]) -> AsyncIterator[Machines[Name]]:
    """Make a namespace for each address, for the length of the block.

    They vanish with the processes that keep them. Raises ``OSError`` or
    ``subprocess.CalledProcessError`` where that is not allowed.
    """
    kept: list[trio.Process] = []
    try:
        while len(kept) <= len(hosts):
            kept.append(await _keep())
        hub, *pids = (keeper.pid for keeper in kept)
        await _run(hub, LAY.format(hub=HUB))
        for pid, (side, host) in zip(pids, hosts.items(), strict=True):
            await _run(hub, PLUG.format(side=side, pid=pid, host=host))
        yield Machines(hub, dict(zip(hosts, pids, strict=True)))
    finally:
        with trio.CancelScope(shield=True):
            for keeper in kept:
                await _release(keeper)


@asynccontextmanager
async def open_namespaces() -> AsyncIterator[Namespaces]:
    """Make those of two sides for the length of the block; raises as ``open_machines``."""
    async with open_machines(HOSTS) as machines:
        yield Namespaces(machines.hub, machines.keepers)


async def _keep() -> trio.Process:
    """Start a process in a namespace of its own, and wait until it is there."""
    keeper = await trio.lowlevel.open_process(
        list(KEEPER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert keeper.stdout is not None
    if not await keeper.stdout.receive_some():
        await _release(keeper)
        raise PermissionError("network namespaces are not allowed here")
    return keeper


async def _release(keeper: trio.Process) -> None:
    keeper.kill()
    await keeper.wait()
    for pipe in (keeper.stdin, keeper.stdout):
        assert pipe is not None
        await pipe.aclose()


async def _run(hub: int, script: str) -> None:
    await trio.run_process([*into(hub), "sh", "-c", script], capture_stderr=True)
