"""Clients that want one id, over real sockets: what servers say about it is overheard."""

from contextlib import contextmanager

import trio

import sphtp
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.outputs import topic
from sphtp.core.control.server_messages import IdAck, IdNack
from sphtp.core.control.vocabulary import Reason
from sphtp.events import Established, IdLost
from sphtp.shell.bus_dialing import SubSocket
from tests.deadline import until, within_20_seconds
from tests.shell.test_client import agreed, client, cluster, kept, server, wait_for

pytestmark = within_20_seconds

ID = 5


class Eavesdropper:
    """Hears what servers answer to those who want ``ID``."""

    def __init__(self, subscriber: SubSocket) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.refused: set[tuple[int, int]] = set()
        self._subscriber = subscriber
        self._reader = MessageReader(ControlCounters(), for_client=True)

    async def hear(self) -> None:
        """Take what was said next."""
        for message in map(self._reader.take, await self._subscriber.receive_batch()):
            match message:
                case IdAck(sender, holders):
                    self.acknowledged |= {(sender, each.nonce) for each in holders if each.id == ID}
                case IdNack(sender, number, nonce, Reason.CONFLICT) if number == ID:
                    self.refused.add((sender, nonce))


@contextmanager
def eavesdropping(*servers: sphtp.Server):
    with SubSocket() as subscriber:
        subscriber.subscribe(topic(0))
        subscriber.subscribe(topic(ID))
        for each in servers:
            subscriber.dial(each.address.pub)
        yield Eavesdropper(subscriber)


async def test_an_id_that_is_held_is_refused_and_another_one_taken():
    async with cluster(2) as servers, client(servers[0].address, ids=iter([ID])) as first:
        with eavesdropping(*servers) as overheard:
            async with client(servers[1].address, ids=iter([ID, 7])) as second:
                assert (first.id, second.id) == (ID, 7)
                while not overheard.refused:
                    await overheard.hear()
                for each in servers:
                    assert {first.id, second.id} <= set(each.clients)


async def test_of_two_clients_that_announce_one_id_at_once_one_at_least_is_refused():
    async with cluster(2) as servers, trio.open_nursery() as nursery:
        registered: list[sphtp.Client] = []

        async def register(address, ids):
            registered.append(await nursery.start(kept, client(address, ids=iter(ids))))

        with eavesdropping(*servers) as overheard:
            async with trio.open_nursery() as starting:
                starting.start_soon(register, servers[0].address, [ID, 7, 9, 11])
                starting.start_soon(register, servers[1].address, [ID, 15, 17, 19])
            first, second = registered
            assert first.id != second.id
            while not overheard.refused:
                await overheard.hear()
        # Both announced it: the answers name two nonces.
        nonces = {nonce for _, nonce in overheard.acknowledged | overheard.refused}
        assert len(nonces) == 2
        for each in servers:
            assert {first.id, second.id} <= set(each.clients)
        nursery.cancel_scope.cancel()


async def test_two_holders_come_to_light_when_their_servers_meet():
    async with (
        server() as left,
        server() as right,
        client(left.address, ids=iter([ID, 7])) as first,
        client(right.address, ids=iter([ID, 9])) as second,
    ):
        assert first.id == second.id == ID
        listening = {each: each.events() for each in (first, second)}
        async with server(left.address, right.address):
            await agreed(left, 3)
            await agreed(right, 3)
            loser = await who_lost(listening)
            # Its id stays what all servers last acknowledged, for as long as this takes.
            while loser.state is not ClientState.ESTABLISHED:
                assert loser.id == ID
                await trio.lowlevel.checkpoint()
            event = await wait_for(listening[loser], Established)
            assert (event.id, loser.id) == (loser.id, 7 if loser is first else 9)
            # The other one may have been refused by the loser's server, and lost it as well.
            while first.id == second.id:
                await trio.lowlevel.checkpoint()
            for each in (left, right):
                await registered(each, first, second)


async def registered(server: sphtp.Server, *clients: sphtp.Client) -> None:
    """Wait until a server holds the ids of all these, which may be changing."""
    await until(lambda: {each.id for each in clients} <= set(server.clients))


async def who_lost(listening) -> sphtp.Client:
    """Return the client that loses its id first."""
    losers: list[sphtp.Client] = []

    async def watch(nursery, each, events):
        event = await wait_for(events, IdLost)
        assert (event.id, event.reason) == (ID, Reason.CONFLICT)
        losers.append(each)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for each, events in listening.items():
            nursery.start_soon(watch, nursery, each, events)
    return losers[0]
