"""The relay on real sockets: one socket that listens, and one to the target for each client.

``impairment`` passes each datagram to a link of ``sphtp.testing.network``, which loses, delays and
duplicates datagrams as on the simulated network.
"""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import trio

from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.driver import Wakeup
from sphtp.shell.lifetime import running
from sphtp.testing.network import Address
from sphtp_client.relay.impairment import Direction, Forward, Traffic, TrafficStatistics

BATCH: Final = 256
"""The most datagrams that are read from one socket before other tasks run."""

BUFFER: Final = 4 * 1024 * 1024
"""The requested size of the send and receive buffer of each socket, in bytes."""


@dataclass(frozen=True, slots=True)
class RelayStatistics(TrafficStatistics):
    """The figures of the traffic, and the number of socket calls that failed."""

    socket_errors: int


@asynccontextmanager
async def open_relay(listen: Address, target: Address, traffic: Traffic) -> AsyncIterator["Relay"]:
    """Relay between the clients that send to ``listen`` and ``target``, during the block.

    Raises:
        SettingsError: the address to listen on cannot be resolved or bound; the message names it.
        UnreachableError: the name of the target cannot be resolved.
    """
    listening = await _bind(*listen)
    try:
        relay = Relay(listening, await _resolve(*target), traffic)
        async with running(relay.run):
            yield relay
    finally:
        _close(listening)


class Relay:
    """A relay that forwards in both directions. Made by ``open_relay``."""

    def __init__(self, listening: socket.socket, target: Address, traffic: Traffic) -> None:
        self.target = target
        self._listening = listening
        self._traffic = traffic
        self._towards_target: dict[Address, socket.socket] = {}
        self._wakeup = Wakeup()
        self._errors = 0

    @property
    def address(self) -> Address:
        """The address on which the relay listens, with the real port."""
        return _host_and_port(self._listening.getsockname())

    def statistics(self) -> RelayStatistics:
        """Return the figures so far."""
        traffic = self._traffic.statistics(trio.current_time())
        return RelayStatistics(
            traffic.clients,
            traffic.refused,
            traffic.overflowed,
            traffic.abandoned,
            traffic.up,
            traffic.down,
            self._errors,
        )

    async def run(self) -> None:
        """Forward datagrams until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen)
                await self._forward(nursery)
        finally:
            for client in list(self._towards_target):
                self._close_client(client)

    async def _listen(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._listening)
            self._receive(self._listening, self._traffic.handle_from_client)
            await trio.lowlevel.checkpoint()

    async def _forward(self, nursery: trio.Nursery) -> None:
        while True:
            self._traffic.handle_timeout(trio.current_time())
            while (forward := self._traffic.poll_forward()) is not None:
                self._send(forward, nursery)
            while (client := self._traffic.poll_left()) is not None:
                self._close_client(client)
            with self._wakeup.waiting(self._traffic.poll_timeout()):
                await trio.sleep_forever()
            self._wakeup.clear()
            await trio.lowlevel.checkpoint()

    async def _answer(self, client: Address, towards: socket.socket) -> None:
        def take(now: float, _: Address, datagram: bytes) -> None:
            self._traffic.handle_from_target(now, client, datagram)

        try:
            while self._towards_target.get(client) is towards:
                await trio.lowlevel.wait_readable(towards)
                self._receive(towards, take)
                await trio.lowlevel.checkpoint()
        except trio.ClosedResourceError:
            return  # the client has left

    def _receive(
        self, source: socket.socket, take: Callable[[float, Address, bytes], None]
    ) -> None:
        now = trio.current_time()
        for _ in range(BATCH):
            try:
                datagram, address = source.recvfrom(65_535)
            except BlockingIOError:
                break
            except OSError:
                # An ICMP error for an earlier datagram, such as a closed port.
                self._errors += 1
                continue
            take(now, _host_and_port(address), datagram)
        self._wakeup.wake()

    def _send(self, forward: Forward, nursery: trio.Nursery) -> None:
        try:
            if forward.direction is Direction.DOWN:
                self._listening.sendto(forward.datagram, forward.client)
            else:
                self._dial(forward.client, nursery).send(forward.datagram)
        except OSError:
            # A full buffer, a closed port, a datagram too large for the path: it is lost.
            self._errors += 1

    def _dial(self, client: Address, nursery: trio.Nursery) -> socket.socket:
        towards = self._towards_target.get(client)
        if towards is None:
            towards = _open(socket.AF_INET6 if ":" in self.target[0] else socket.AF_INET)
            try:
                towards.connect(self.target)
            except OSError:
                towards.close()
                raise
            self._towards_target[client] = towards
            nursery.start_soon(self._answer, client, towards)
        return towards

    def _close_client(self, client: Address) -> None:
        towards = self._towards_target.pop(client, None)
        if towards is not None:
            _close(towards)


async def _bind(host: str, port: int) -> socket.socket:
    try:
        answers = await trio.socket.getaddrinfo(
            host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"cannot listen on UDP {host}: {error}") from error
    family, _, _, _, address = answers[0]
    bound = _open(family)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise SettingsError(f"cannot listen on UDP {host}:{port}: {error.strerror}") from error
    return bound


async def _resolve(host: str, port: int) -> Address:
    try:
        answers = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise UnreachableError(f"no way to {host}: {error}") from error
    return _host_and_port(answers[0][4])


def _open(family: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_DGRAM)
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return opened


def _close(closing: socket.socket) -> None:
    trio.lowlevel.notify_closing(closing)
    closing.close()


def _host_and_port(address: Sequence[Any]) -> Address:
    return str(address[0]), int(address[1])
