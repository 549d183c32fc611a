"""Sockets of nodes that a test may hold up, fill, flood and count: the fixture ``sockets``."""

from collections import deque
from collections.abc import Callable, Sequence
from sys import maxsize
from typing import Any

import pytest
import trio

from sphtp.config import Impairment
from sphtp.core.datagrams import Address, Datagrams
from sphtp.shell import node as node_module
from sphtp.shell.impairment import open_socket
from sphtp.shell.udp import UdpSocket


class HeldSocket(UdpSocket):
    """A socket whose outgoing datagrams a test may hold back, and let go.

    ``on_send`` is told each offer of rows before they leave. As long as it ``is_full`` it has no
    room. In a ``flood`` there is always more to receive.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.on_send: Callable[[Sequence[Datagrams]], None] = lambda _: None
        self.is_full = False
        self.flood: Datagrams | None = None
        self._held: deque[Datagrams] | None = None

    def hold(self) -> None:
        """Let nothing leave, and keep what should."""
        self._held = deque()

    def release(self) -> None:
        """Let what was kept leave, and all that comes after it."""
        rows, self._held = self._held or (), None
        for row in rows:
            super().send(deque([row]))

    def send(self, rows: deque[Datagrams]) -> bool:
        if self.is_full:
            return False
        self.on_send(rows)
        if self._held is None:
            return super().send(rows)
        self._held += rows
        rows.clear()
        return True

    def receive_batch(self, limit: int, size: int = maxsize) -> Sequence[Datagrams]:
        rows = super().receive_batch(limit, size)
        if self.flood is None:
            return rows
        self.is_drained = False
        return [*rows, self.flood]

    async def wait_writable(self) -> None:
        if self.is_full:
            await trio.sleep_forever()
        await super().wait_writable()


class Sockets(dict[Address, HeldSocket]):
    """The sockets of nodes on a good network, by the address of their node."""

    def open(
        self, host: str, port: int, impairment: Impairment | None, seed: int | None
    ) -> UdpSocket:
        if impairment not in (None, Impairment()):
            return open_socket(host, port, impairment, seed)
        socket = HeldSocket(host, port)
        self[socket.address] = socket
        return socket

    def behind(self, channel: Any) -> HeldSocket:
        """The socket of the node at the other end of a channel."""
        return self[channel.peer_address]


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Sockets:
    """The sockets of all nodes that the test opens."""
    sockets = Sockets()
    monkeypatch.setattr(node_module, "open_socket", sockets.open)
    return sockets
