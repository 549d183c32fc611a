"""A cluster in memory: clients that know each other at once, and channels that never lose."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import trio

import sphtp
from sphtp import Peer
from sphtp.config import StreamSettings
from sphtp.core.control.vocabulary import Reason
from sphtp.events import PeerLeft


class Channel:
    """As the real one, a reader takes a message when it runs and not when the message comes."""

    def __init__(self, peer_id: int) -> None:
        self.peer_id = peer_id
        self.other: Channel
        self.broken: str | None = None
        self.closed = False
        self.messages: deque[Any] = deque()
        self.readers = trio.lowlevel.ParkingLot()

    async def send(self, message: object) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed:
            raise trio.ClosedResourceError
        if self.broken is not None or self.other.closed:
            raise trio.BrokenResourceError(self.broken or "the peer closed it")
        self.other.messages.append(message)
        self.other.readers.unpark_all()

    async def receive(self) -> Any:
        await trio.lowlevel.checkpoint()
        while True:
            if self.closed:
                raise trio.ClosedResourceError
            if self.messages:
                return self.messages.popleft()
            if self.broken is not None:
                raise trio.BrokenResourceError(self.broken)
            if self.other.closed:
                raise trio.EndOfChannel
            await self.readers.park()

    async def aclose(self) -> None:
        self.closed = True
        self.readers.unpark_all()
        self.other.readers.unpark_all()
        await trio.lowlevel.checkpoint()

    def break_up(self, reason: str) -> None:
        self.broken = reason
        self.readers.unpark_all()

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(sent=3, received=2, lost=1, resent=1, rtt=0.002)


class Source:
    """Keeps what is published, as far as there is room."""

    def __init__(self, *, has_room: bool) -> None:
        self.has_room = has_room
        self.sent: list[Any] = []

    def send_nowait(self, value: Any) -> None:
        if not self.has_room:
            raise trio.WouldBlock
        self.sent.append(msgpack.unpackb(msgpack.packb(value)))


class Client:
    def __init__(self, hub: "Hub", number: int, data: dict[str, Any]) -> None:
        self.id = number
        self.data = data
        self.servers = {2: None, 4: None}
        self.channels: list[Channel] = []
        self.has_room = True
        self.sources: dict[str, Source] = {}
        self._hub = hub
        self._listeners: list[trio.MemorySendChannel[Any]] = []
        # Nobody asks for the status here.
        services = SimpleNamespace(has=lambda _: False, add=id, remove=id)
        self.node = SimpleNamespace(services=services)
        self.offered, self._incoming = trio.open_memory_channel[Channel](inf)

    @property
    def peers(self) -> dict[int, Any]:
        clients = self._hub.clients.items()
        return {
            number: SimpleNamespace(id=number, data=other.data)
            for number, other in clients
            if other is not self
        }

    async def wait_for_peer(self, predicate: Callable[[Any], bool]) -> Any:
        while True:
            for peer in self.peers.values():
                if predicate(peer):
                    return peer
            await self._hub.entered.wait()

    @asynccontextmanager
    async def open_channel(self, peer_id: int) -> AsyncIterator[Channel]:
        if self.id not in self._hub.clients:
            await trio.sleep_forever()
        here, there = Channel(peer_id), Channel(self.id)
        here.other, there.other = there, here
        self.channels.append(here)
        self._hub.clients[peer_id].channels.append(there)
        self._hub.clients[peer_id].offered.send_nowait(there)
        try:
            await trio.lowlevel.checkpoint()
            yield here
        finally:
            await here.aclose()

    @asynccontextmanager
    async def publish(self, topic: str, *, settings: StreamSettings) -> AsyncIterator[Source]:
        assert settings.retention_count == 1
        source = self.sources[topic] = Source(has_room=self.has_room)
        yield source

    async def accept(self) -> Channel:
        return await self._incoming.receive()

    def events(self) -> AsyncIterator[Any]:
        heard, events = trio.open_memory_channel[Any](inf)
        self._listeners.append(heard)
        return events

    def hear(self, event: object) -> None:
        for listener in self._listeners:
            listener.send_nowait(event)

    def vanish(self, reason: str) -> None:
        """Be gone as by SIGKILL: channels break when the others notice."""
        for channel in self.channels:
            channel.other.break_up(reason)
        self._leave(Reason.EXPIRED)

    def leave(self) -> None:
        self._leave(Reason.LEFT)

    def _leave(self, reason: Reason) -> None:
        if self._hub.clients.pop(self.id, None) is None:
            return
        for other in self._hub.clients.values():
            other.hear(PeerLeft(Peer(self.id, b"", (), 1), reason))


class Hub:
    def __init__(self) -> None:
        self.clients: dict[int, Client] = {}
        self.everybody: list[Client] = []
        self.entered = trio.Event()

    @asynccontextmanager
    async def open_client(
        self, _servers: Sequence[str], *, data: dict[str, Any], **_: Any
    ) -> AsyncIterator[Client]:
        client = self.enter(data)
        try:
            yield client
        finally:
            client.leave()

    def enter(self, data: dict[str, Any]) -> Client:
        client = Client(self, 7 + 2 * len(self.everybody), data)
        self.clients[client.id] = client
        self.everybody.append(client)
        self.entered.set()
        self.entered = trio.Event()
        return client

    def of_slab(self, slab: int) -> Client:
        return next(client for client in self.everybody if client.data["slab"] == slab)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(sphtp, "open_client", hub.open_client)
    return hub
