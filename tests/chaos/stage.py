"""Servers and peers as real processes, and what has to hold after whatever was done to them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from sphtp import Config, UnreachableError
from sphtp.config import ControlTimers
from sphtp.observe import fetch_status
from tests.chaos.actors import EXPIRY, PEER, QUIET, UNREAD, Peer, Server, channel, timers
from tests.chaos.census import Census, census_of
from tests.chaos.disk import Disk
from tests.chaos.ledger import Ledger
from tests.chaos.process import AGAIN, Program, patience, start
from tests.chaos.rooms import Rooms, Side


class Stage:
    """Made by ``open_stage``. ``environment`` is added to that of programs started from now on."""

    def __init__(self, seed: int, rooms: Rooms, expiry: float, nursery: trio.Nursery) -> None:
        self.seed = seed
        self.expiry = expiry
        self.rooms = rooms
        self.servers: list[Server] = []
        self.peers: list[Peer] = []
        self.programs: list[Program] = []
        self.environment: Mapping[str, str] = {}
        self._nursery = nursery
        self._news = trio.Event()

    # Who plays

    async def server(
        self,
        name: str,
        side: Side = "left",
        disk: Disk | None = None,
        options: Sequence[str] = QUIET,
    ) -> Server:
        """Start a server, which joins all others or founds the cluster; it may log to a disk."""
        door = await self.rooms.server_door(side)
        host = self.rooms.host(side)
        server = Server(name, side, host, self.servers, door, timers(self.expiry), disk, options)
        await self.begin(server)
        self.servers.append(server)
        return server

    async def peer(
        self,
        name: str,
        side: Side = "left",
        *,
        to: Sequence[str] = (),
        servers: Sequence[Server] = (),
        program: Sequence[str] = PEER,
        **plan: Any,
    ) -> Peer:
        """Start a client that speaks to others, named, and dials all servers or the given ones."""
        addresses = [server.address for server in servers or self.servers]
        facts = {"seed": self.seed, "host": self.rooms.host(side), "servers": addresses, "to": to,
                 "timers": timers(self.expiry), "channel": channel(self.expiry)}  # fmt: skip
        door = await self.rooms.peer_door(side)
        peer = Peer(name, side, {**facts, **plan}, door, program)
        await self.begin(peer)
        self.peers.append(peer)
        return peer

    async def speaker_and_listener(self) -> tuple[Peer, Peer]:
        """Start two peers, of which one speaks to the other, and wait until it is heard."""
        listener = await self.peer("listener")
        speaker = await self.peer("speaker", to=["listener"])
        await self.converged()
        await self.flowing(speaker)
        return speaker, listener

    async def begin(self, actor: Server | Peer) -> None:
        """Start an actor, for the first time or again; it is ready then."""
        program = await start(
            self._nursery,
            actor.name,
            [*self.rooms.entry(actor.side), *actor.entry, *actor.command()],
            changed=self._tell,
            environment=self.environment,
            log=actor.log,
        )
        self.programs.append(program)
        self.rooms.moved_in(actor.side, program.pid)
        actor.moved_in(program, await program.heard(actor.greeting))

    # What has to hold

    async def until(self, what: str, holds: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until ``holds`` has no complaint any more."""
        complaint: str | None = None
        with patience(lambda: self._story(f"{what}: {complaint}")):
            while (complaint := await holds()) is not None:
                for program in self.programs:
                    assert not program.has_failed, program.story("it ended by itself")
                with trio.move_on_after(AGAIN):
                    await self._news.wait()

    async def converged(self) -> None:
        """Wait until all servers that live tell of one view, and of all peers that live."""
        await self.until("one view", self._disagreement)

    async def flowing(self, peer: Peer, messages: int = 20) -> None:
        """Wait until some more of its messages have been received, on a channel of now."""

        async def missing() -> str | None:
            spoken = peer.program.of("speaking")
            streams = self.ledger().streams
            counts = [len(streams[line["stream"]].received) for line in spoken[-1:]]
            enough = counts and counts[0] >= before.get(spoken[-1]["stream"], 0) + messages
            return None if enough else f"{peer.name} has been heard {counts} times"

        before = {name: len(stream.received) for name, stream in self.ledger().streams.items()}
        await self.until("messages flow", missing)

    def ledger(self) -> Ledger:
        """Return the books of all messages so far."""
        ledger = Ledger()
        for program in self.programs:
            ledger.enter(program)
        return ledger

    async def finish(self) -> None:
        """Let all peers say their last word; check the books, and that everybody ends well."""
        living = [peer.program for peer in self.peers if peer.program.is_alive]
        for program in living:
            await program.tell("finish")
        for program in living:
            await program.heard("drained")
        await self.until("the books", self._missing)
        for program in living:
            await program.tell("leave")
        servers = [server.program for server in self.servers if server.program.is_alive]
        for program in living:
            assert await program.ended() == 0, program.story("it ended badly")
        for program in servers:
            program.leave()
        for program in servers:
            assert await program.ended() == 0, program.story("it ended badly")

    async def census(self) -> dict[str, Census]:
        """Count what every living process holds."""
        counted = {}
        for peer in self.peers:
            if peer.program.is_alive:
                mark = len(peer.program.lines)
                await peer.program.tell("census")
                line = await peer.program.heard("census", after=mark)
                counted[peer.name] = census_of(peer.program.pid, tuple(line["tasks"]))
        for server in self.servers:
            if server.program.is_alive:
                counted[server.name] = census_of(server.program.pid)
        return counted

    async def back_to(self, before: Mapping[str, Census]) -> None:
        """Wait until no process holds more than it did, or than the one that it replaces."""

        async def excess() -> str | None:
            now = await self.census()
            found = {name: now[name].excess_over(before[name]) for name in now if name in before}
            return str(found) if any(found.values()) else None

        await self.until("nothing is left over", excess)

    async def _disagreement(self) -> str | None:
        living = [server for server in self.servers if server.program.is_alive]
        expected = {server.id for server in living}
        clients = {peer.id for peer in self.peers if peer.program.is_alive}
        views = set()
        for server in living:
            document = await self._status_of(server)
            if document is None:
                return f"{server.name} does not answer"
            view = document["view"]
            views.add(view["number"])
            told = {member["id"]: member["state"] for member in view["members"]}
            if told != dict.fromkeys(expected, "active"):
                return f"{server.name} says {told}, not {expected}"
            if (known := {client["id"] for client in document["clients"]}) != clients:
                return f"{server.name} knows {known}, not {clients}"
        return None if len(views) == 1 else f"views {views}"

    async def _status_of(self, server: Server) -> dict[str, Any] | None:
        entry = self.rooms.entry(server.side)
        if entry:
            command = [*server.command()[:3], "status", str(server.listens_at), "--json"]
            done = await trio.run_process([*entry, *command], capture_stdout=True, check=False)
            return dict(json.loads(done.stdout)) if done.returncode == 0 else None
        try:
            return await fetch_status(
                server.listens_at, config=Config(timers=ControlTimers(answer_timeout=2.0))
            )
        except UnreachableError:
            return None

    async def _missing(self) -> str | None:
        return "\n".join(self.ledger().faults(UNREAD)) or None

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _story(self, what: str) -> str:
        return "\n\n".join([f"seed {self.seed}: {what}", *(p.story("") for p in self.programs)])


@asynccontextmanager
async def open_stage(
    seed: int, rooms: Rooms | None = None, *, expiry: float = EXPIRY
) -> AsyncIterator[Stage]:
    """Open a stage; however the block is left, none of its processes is alive after it.

    ``expiry`` is, in seconds, that of servers and clients and the timeout of channels.
    """
    print(f"seed {seed}")
    async with trio.open_nursery() as nursery:
        stage = Stage(seed, rooms or Rooms(), expiry, nursery)
        try:
            yield stage
        finally:
            for program in stage.programs:
                await program.end()
            nursery.cancel_scope.cancel()
