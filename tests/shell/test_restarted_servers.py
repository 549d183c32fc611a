"""A server that comes back with one port of two: nobody hangs up on the port that it kept."""

import random
from contextlib import ExitStack

import trio

from sphtp import Config, open_server
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.records import ClusterView, Member, ServerAddress
from sphtp.core.control.server_messages import ServerHeartbeat, ServerLeave
from sphtp.core.control.settings import ControlTimers
from sphtp.shell.bus_dialing import PubSocket
from sphtp.shell.bus_listening import ListeningPubSocket, ListeningSubSocket
from sphtp.shell.lifetime import running
from sphtp.shell.registration import Registration, open_bus
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds

ANY = "tcp://127.0.0.1:0"
GONE = "tcp://127.0.0.1:1"
TIMERS = ControlTimers(heartbeat=0.1, expiry=300)


def heartbeat(sender: Member, *others: Member) -> bytes:
    return ServerHeartbeat(sender, ClusterView(1, (sender, *others))).encode()


async def test_a_server_goes_on_sending_to_one_that_kept_its_second_port() -> None:
    with ListeningSubSocket() as subscriber, PubSocket() as publisher:
        subscriber.subscribe(b"")
        sub = subscriber.listen(ANY)
        before = Member(1000, 7, ServerAddress("tcp://127.0.0.1:2", sub))
        after = Member(1002, 8, ServerAddress("tcp://127.0.0.1:3", sub))
        async with open_server(ANY, new_cluster=True, config=Config(timers=TIMERS)) as server:
            publisher.dial(server.address.sub)
            while len(server.view.members) < 3:
                for each in (before, after):
                    publisher.send(heartbeat(each))
                await trio.sleep(0.01)
            while not await subscriber.receive_batch():
                pass
            publisher.send(ServerLeave(before.id, before.nonce).encode())
            await until(lambda: len(server.view.members) == 2)
            # As many as may have been on their way, and more.
            for _ in range(5):
                assert await subscriber.receive_batch()
            assert (subscriber.connections, subscriber.ended) == (1, 0)


async def test_a_client_goes_on_hearing_a_server_that_kept_its_first_port() -> None:
    with ExitStack() as stack:
        bus = stack.enter_context(open_bus())
        publishers = [stack.enter_context(ListeningPubSocket()) for _ in range(2)]
        known, restarted = (each.listen(ANY) for each in publishers)
        standing = Member(1000, 7, ServerAddress(known, GONE))
        before = Member(1002, 8, ServerAddress(restarted, "tcp://127.0.0.1:2"))
        after = Member(1004, 9, ServerAddress(restarted, "tcp://127.0.0.1:3"))
        assert standing.address is not None
        machine = ClientMachine(
            random.Random(1),
            TIMERS,
            secrets=random.Random(2),
            servers=[standing.address],
            candidates=[],
        )
        registration = Registration(machine, bus, lambda _: None)
        async with (
            running(publishers[0].run),
            running(publishers[1].run),
            running(registration.run),
        ):
            await until(lambda: publishers[0].connections == 1)
            for others in ((before, after), (after,)):
                while machine.view.members != (standing, *others):
                    publishers[0].send(heartbeat(standing, *others))
                    await trio.sleep(0.01)
                await until(lambda: publishers[1].connections == 1)
            while after.id not in machine.servers:
                publishers[1].send(heartbeat(after))
                await trio.sleep(0.01)
            assert (publishers[1].connections, publishers[1].ended) == (1, 0)
