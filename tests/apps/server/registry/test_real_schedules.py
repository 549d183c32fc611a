"""Seeded schedules of faults of a real etcd with three members, and of servers on it."""

import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

import sphtp
from sphtp import Client, Config, Server
from sphtp.config import ControlTimers
from sphtp.events import ClientState, ServerState
from sphtp_server.settings import ServerSettings
from tests.apps.server.registry.real_etcd import EtcdMember, EtcdMembers, needs_etcd, real_etcd
from tests.deadline import until, within

pytestmark = [needs_etcd, pytest.mark.soak, pytest.mark.trio(run=within(180))]

TIMERS = ControlTimers(heartbeat=0.2, expiry=2.0, announce_deadline=1.0, answer_timeout=120.0)


class RealSchedule:
    """Two servers, and clients that all draw the same ids, on an etcd that suffers."""

    def __init__(self, seed: int, etcd: EtcdMembers, stack: AsyncExitStack) -> None:
        self.entropy = random.Random(seed)
        self.etcd = etcd
        self.stack = stack
        self.servers: list[Server] = []
        self.clients: list[Client] = []
        self.down: dict[EtcdMember, str] = {}

    async def start_server(self) -> None:
        settings = ServerSettings(
            pub_port=0,
            sub_port=0,
            announce=False,
            registry=self.etcd.url,
            heartbeat=TIMERS.heartbeat,
            expiry=TIMERS.expiry,
            announce_deadline=TIMERS.announce_deadline,
        )
        server = await self.stack.enter_async_context(settings.open(settings.admit()))
        self.servers.append(server)

    async def connect(self) -> None:
        """Connect a client whose ids are those of all others."""
        addresses = [str(server.address) for server in self.servers]
        config = Config(timers=TIMERS, seed=1)
        opened = sphtp.open_client(addresses, config=config)
        self.clients.append(await self.stack.enter_async_context(opened))

    async def suffer(self) -> None:
        deeds = (self.kill, self.freeze, self.mend, self.mend, self.compact)
        for _ in range(8):
            await trio.sleep(self.entropy.uniform(0.1, 1.5))
            await self.entropy.choice(deeds)()
        await self.mend_all()

    async def kill(self) -> None:
        member = self.entropy.choice(self.etcd.members)
        if member not in self.down:
            member.kill()
            self.down[member] = "killed"

    async def freeze(self) -> None:
        member = self.entropy.choice(self.etcd.members)
        if member not in self.down:
            member.send(signal.SIGSTOP)
            self.down[member] = "frozen"

    async def mend(self) -> None:
        if self.down:
            member = self.entropy.choice(list(self.down))
            if self.down.pop(member) == "killed":
                member.start()
            else:
                member.send(signal.SIGCONT)

    async def mend_all(self) -> None:
        while self.down:
            await self.mend()

    async def compact(self) -> None:
        with trio.move_on_after(2):
            await self.etcd.compact()

    async def check_ids(self) -> None:
        """No two clients are established with one id at any time."""
        while True:
            ids = [it.id for it in self.clients if it.state is ClientState.ESTABLISHED]
            assert len(set(ids)) == len(ids), ids
            await trio.sleep(0.005)

    def is_at_rest(self) -> bool:
        ids = {client.id for client in self.clients}
        return (
            all(server.state is ServerState.ACTIVE for server in self.servers)
            and all(client.state is ClientState.ESTABLISHED for client in self.clients)
            and all(set(server.clients) == ids for server in self.servers)
            and all(len(server.view.members) == len(self.servers) for server in self.servers)
        )


@pytest.mark.parametrize("seed", range(50))
async def test_no_id_is_held_twice_and_all_agree_in_the_end(seed: int, tmp_path: Path) -> None:
    async with (
        real_etcd(tmp_path, 3) as etcd,
        trio.open_nursery() as nursery,
        AsyncExitStack() as stack,
    ):
        schedule = RealSchedule(seed, etcd, stack)
        nursery.start_soon(schedule.check_ids)
        for _ in range(2):
            await schedule.start_server()
        for _ in range(3):
            await schedule.connect()
        await schedule.suffer()
        await schedule.connect()
        await until(schedule.is_at_rest)
        nursery.cancel_scope.cancel()
