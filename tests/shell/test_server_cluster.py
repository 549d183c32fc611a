"""Several servers on real sockets: they find each other, and notice who leaves."""

from dataclasses import replace
from typing import TypeVar

import pytest

from sphtp.core.control.records import ServerAddress
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Reason
from sphtp.events import ServerEvent, ServerLeft
from sphtp.shell.bus import ListeningPubSocket
from sphtp.shell.feed import Listener
from sphtp.shell.server import Server, ServerOptions, open_server
from tests.deadline import within_20_seconds

T = TypeVar("T")

ANY = ServerAddress.parse("tcp://127.0.0.1:0")
TIMERS = ControlTimers(heartbeat=0.1, expiry=3, announce_deadline=0.2)
FOUNDER = ServerOptions(bind=ANY, timers=TIMERS, new_cluster=True, seed=1)


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
    async with open_server(replace(FOUNDER, join=join_early)) as first:
        join_late = () if first_joins_second else (first.address,)
        late = replace(FOUNDER, bind=ahead, join=join_late, new_cluster=False, seed=2)
        async with open_server(late) as second:
            await second.wait_active()
            await wait_for_view(first, 2)
            await wait_for_view(second, 2)
            members = {member.id for member in first.view.members}
            assert members == {member.id for member in second.view.members}
            assert members == {first.id, second.id}


async def test_a_server_that_leaves_tells_the_others_and_its_clients_at_once() -> None:
    async with open_server(FOUNDER) as first:
        events = first.events()
        joining = replace(FOUNDER, join=(first.address,), new_cluster=False, seed=2)
        async with open_server(joining) as second:
            await wait_for_view(first, 2)
        left = await happening(events, ServerLeft)
        assert (left.member.id, left.reason) == (second.id, Reason.LEFT)
        assert [member.id for member in first.view.members] == [first.id]


async def test_an_error_inside_the_block_leaves_as_itself_and_the_view_is_left() -> None:
    async with open_server(FOUNDER) as first:
        events = first.events()
        joining = replace(FOUNDER, join=(first.address,), new_cluster=False, seed=2)

        async def fail() -> None:
            async with open_server(joining) as second:
                await wait_for_view(first, 2)
                raise KeyError(second.id)

        with pytest.raises(KeyError) as caught:
            await fail()
        left = await happening(events, ServerLeft)
        assert (left.member.id, left.reason) == (caught.value.args[0], Reason.LEFT)
