"""Several servers on real sockets: they find each other, and notice who leaves."""

from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from sphtp import Config
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Reason
from sphtp.events import ServerEvent, ServerLeft
from sphtp.shell.bus_listening import ListeningPubSocket
from sphtp.shell.feed import Listener
from sphtp.shell.server import Server, open_server
from tests.deadline import within_20_seconds

T = TypeVar("T")

ANY = ServerAddress.parse("tcp://127.0.0.1:0")
TIMERS = ControlTimers(heartbeat=0.1, expiry=3, announce_deadline=0.2)
FOUNDER = Config(timers=TIMERS, seed=1)
JOINING = replace(FOUNDER, seed=2)
found = partial(open_server, ANY, new_cluster=True, config=FOUNDER)


pytestmark = within_20_seconds


async def happening(events: Listener[ServerEvent], kind: type[T]) -> T:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"the server ended before any {kind.__name__}")


async def wait_for_view(server: Server, size: int) -> None:
    events = server.events()
    while len(server.view.members) != size:
        await anext(events)


def unused_address() -> ServerAddress:
    # Where no other test binds, so that the ports are still free when they are wanted.
    apart = ServerAddress.parse("tcp://127.0.0.86:0")
    with ListeningPubSocket() as first, ListeningPubSocket() as second:
        return ServerAddress(first.listen(apart.pub), second.listen(apart.pub))


@pytest.mark.parametrize("first_joins_second", [True, False])
async def test_two_servers_find_each_other_in_any_order_of_start(first_joins_second: bool) -> None:
    ahead = unused_address()
    join_early = (ahead,) if first_joins_second else ()
    async with found(join=join_early) as first:
        join_late = () if first_joins_second else (first.address,)
        async with open_server(ahead, join=join_late, config=JOINING) as second:
            await second.wait_active()
            await wait_for_view(first, 2)
            await wait_for_view(second, 2)
            members = {member.id for member in first.view.members}
            assert members == {member.id for member in second.view.members}
            assert members == {first.id, second.id}


async def test_a_server_that_leaves_tells_the_others_and_its_clients_at_once() -> None:
    async with found() as first:
        events = first.events()
        joining = partial(open_server, ANY, join=[first.address], config=JOINING)
        async with joining() as second:
            await wait_for_view(first, 2)
        left = await happening(events, ServerLeft)
        assert (left.member.id, left.reason) == (second.id, Reason.LEFT)
        assert [member.id for member in first.view.members] == [first.id]


async def test_an_error_inside_the_block_leaves_as_itself_and_the_view_is_left() -> None:
    async with found() as first:
        events = first.events()
        joining = partial(open_server, ANY, join=[first.address], config=JOINING)

        async def fail() -> None:
            async with joining() as second:
                await wait_for_view(first, 2)
                raise KeyError(second.id)

        with pytest.raises(KeyError) as caught:
            await fail()
        left = await happening(events, ServerLeft)
        assert (left.member.id, left.reason) == (caught.value.args[0], Reason.LEFT)
