"""Relays in front of every program, for machines without namespaces; no privileges needed."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

import trio

from sphtp.testing import Faults
from sphtp.testing.network import Address
from sphtp_client.relay.impairment import Traffic
from sphtp_client.relay.relay import open_relay
from tests.chaos.census import files_of
from tests.chaos.rooms import Door, Pid, Rooms, Side

HOST = "127.0.0.1"
NOWHERE = (HOST, 9)
LARGEST = 65_536
CLEAN = Faults(delay=0)


class Gate:
    """Open or shut; who comes to a shut one waits."""

    def __init__(self) -> None:
        self._opened: trio.Event | None = None

    @property
    def is_shut(self) -> bool:
        return self._opened is not None

    def shut(self) -> None:
        self._opened = self._opened or trio.Event()

    def open(self) -> None:
        if self._opened is not None:
            self._opened.set()
        self._opened = None

    async def pass_through(self) -> None:
        while self._opened is not None:
            await self._opened.wait()


class Wire(Traffic):
    """What a UDP relay carries; nothing that crosses over while the gate is shut."""

    def __init__(self, gate: Gate, crosses: Callable[[int], bool]) -> None:
        super().__init__(1, CLEAN, CLEAN)
        self._gate = gate
        self._crosses = cache(crosses)

    def handle_from_client(self, now: float, client: Address, datagram: bytes) -> None:
        if self._is_passable(client):
            super().handle_from_client(now, client, datagram)

    def handle_from_target(self, now: float, client: Address, datagram: bytes) -> None:
        if self._is_passable(client):
            super().handle_from_target(now, client, datagram)

    def _is_passable(self, client: Address) -> bool:
        return not (self._gate.is_shut and self._crosses(client[1]))


class Relays(Rooms):
    """Servers and peers are told to name their relays; only what crosses over meets the gate."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._gate = Gate()
        self._sides: dict[Pid, Side] = {}

    def moved_in(self, side: Side, pid: Pid) -> None:
        self._sides[pid] = side

    async def cut(self) -> None:
        self._gate.shut()

    async def heal(self) -> None:
        self._gate.open()

    async def server_door(self, side: Side) -> Door:
        targets: list[int] = []
        ports = []
        for index in range(2):
            (listener,) = await trio.open_tcp_listeners(0, host=HOST)
            ports.append(listener.socket.getsockname()[1])

            async def carry(stream: trio.SocketStream, index: int = index) -> None:
                await self._carry(stream, side, targets[index])

            self._nursery.start_soon(trio.serve_listeners, carry, [listener])
        return Door(ports, targets.extend)

    async def peer_door(self, side: Side) -> Door:
        door: Door = await self._nursery.start(self._relay_datagrams, side)
        return door

    async def _relay_datagrams(
        self, side: Side, task_status: trio.TaskStatus[Door] = trio.TASK_STATUS_IGNORED
    ) -> None:
        def crosses(port: int) -> bool:
            return self._side_of("udp", port) != side

        async with open_relay((HOST, 0), NOWHERE, Wire(self._gate, crosses)) as relay:

            def lead_to(ports: Sequence[int]) -> None:
                relay.target = (HOST, ports[0])

            task_status.started(Door([relay.address[1]], lead_to))
            await trio.sleep_forever()

    async def _carry(self, stream: trio.SocketStream, side: Side, target: int) -> None:
        crosses = self._side_of("tcp", stream.socket.getpeername()[1]) != side
        with suppress(OSError, trio.BrokenResourceError):
            if crosses:
                await self._gate.pass_through()
            async with (
                stream,
                await trio.open_tcp_stream(HOST, target) as onward,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._pump, stream, onward, crosses, nursery.cancel_scope)
                await self._pump(onward, stream, crosses, nursery.cancel_scope)

    async def _pump(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        crosses: bool,
        both: trio.CancelScope,
    ) -> None:
        with suppress(trio.BrokenResourceError):
            while data := await source.receive_some(LARGEST):
                if crosses:
                    await self._gate.pass_through()
                await sink.send_all(data)
        both.cancel()

    def _side_of(self, protocol: str, port: int) -> Side | None:
        """Find the program that dialled from a port, and where it is."""
        link = f"socket:[{inode_of(protocol, port)}]"
        for pid, side in self._sides.items():
            with suppress(OSError):
                if link in files_of(pid):
                    return side
        return None


def inode_of(protocol: str, port: int) -> str | None:
    """Look up the socket that has a port of loopback."""
    for line in Path("/proc/net", protocol).read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}":
            return fields[9]
    return None


@asynccontextmanager
async def open_relays() -> AsyncIterator[Relays]:
    """Have relays for the length of the block."""
    async with trio.open_nursery() as nursery:
        yield Relays(nursery)
        nursery.cancel_scope.cancel()
