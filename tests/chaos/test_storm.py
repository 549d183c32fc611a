"""One fault after the other, drawn by a seed, on a cluster that never stops speaking."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.chaos.actors import Peer, Server
from tests.chaos.networks import open_network
from tests.chaos.stage import Stage, open_stage

pytestmark = [pytest.mark.chaos, pytest.mark.soak]

ROUNDS = 15
SPEAKS_TO = {"a": "b", "b": "c", "c": "a"}


class Storm:
    """The faults."""

    def __init__(self, stage: Stage, entropy: Random) -> None:
        self.stage = stage
        self.entropy = entropy

    async def kill_a_server(self) -> None:
        killed, other = self._servers()
        mark = len(other.program.lines)
        killed.program.kill()
        if self._is_slow():
            await other.program.heard("server left", after=mark)
        await killed.program.ended()
        await self.stage.begin(killed)

    async def freeze_a_server(self) -> None:
        frozen, other = self._servers()
        mark = len(other.program.lines)
        frozen.program.freeze()
        await other.program.heard("server left", after=mark)
        frozen.program.thaw()

    async def kill_a_peer(self) -> None:
        killed = self._peer()
        mark, old = self._mark(), killed.id
        killed.program.kill()
        if self._is_slow():
            await self._server.program.heard("client left", after=mark, client=old)
        await killed.program.ended()
        await self.stage.begin(killed)

    async def freeze_a_peer(self) -> None:
        frozen = self._peer()
        mark = self._mark()
        frozen.program.freeze()
        news = "client left" if self._is_slow() else "client suspected"
        await self._server.program.heard(news, after=mark, client=frozen.id)
        frozen.program.thaw()

    async def cut_the_network(self) -> None:
        mark = self._mark()
        await self.stage.rooms.cut()
        news = "server left" if self._is_slow() else "client suspected"
        await self._server.program.heard(news, after=mark)
        await self.stage.rooms.heal()

    @property
    def _server(self) -> Server:
        return self.stage.servers[0]

    def _mark(self) -> int:
        return len(self._server.program.lines)

    def _servers(self) -> tuple[Server, Server]:
        first, second = self.entropy.sample(self.stage.servers, 2)
        return first, second

    def _peer(self) -> Peer:
        return self.entropy.choice(self.stage.peers)

    def _is_slow(self) -> bool:
        """Whether the fault lasts until the others have given up."""
        return self.entropy.random() < 0.5


FAULTS: list[Callable[[Storm], Awaitable[None]]] = [
    Storm.kill_a_server,
    Storm.freeze_a_server,
    Storm.kill_a_peer,
    Storm.freeze_a_peer,
    Storm.cut_the_network,
]


async def test_a_cluster_weathers_a_storm(seed: int) -> None:
    async with open_network() as rooms, open_stage(seed, rooms) as stage:
        entropy = Random(seed)
        for name in ("left", "right"):
            await stage.server(name, name)
        for name, other in SPEAKS_TO.items():
            await stage.peer(name, "right" if name == "b" else "left", to=[other])
        await settled(stage)
        before = await stage.census()
        storm = Storm(stage, entropy)
        for number in range(ROUNDS):
            fault = entropy.choice(FAULTS)
            print(f"round {number}: {fault.__name__}")
            await fault(storm)
            await settled(stage)
            await stage.back_to(before)
        await stage.finish()


async def settled(stage: Stage) -> None:
    await stage.converged()
    for peer in stage.peers:
        await stage.flowing(peer)
