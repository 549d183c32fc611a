"""What a node does first."""

from collections import deque

import pytest
import trio.testing

from sphtp.core.channel.delivery import Lane
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.shell.courtesy import SHORT
from sphtp.shell.opening import open_node
from sphtp.shell.traffic import MOST_BEHIND
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds


async def test_the_socket_is_read_before_timers_are_looked_at(monkeypatch) -> None:
    """It may hold the signs of life that are overdue; but a flood does not hold up time."""
    async with open_node() as node:
        did: list[str] = []
        left = [MOST_BEHIND + 2]

        async def receive(now: float) -> bool:
            did.append("read")
            left[0] -= 1
            if left[0] > 0:
                node._traffic.ring()
            return left[0] <= 0

        monkeypatch.setattr(node._traffic, "_receive", receive)
        monkeypatch.setattr(node._endpoint, "handle_timeout", lambda now: did.append("time"))
        node._traffic.ring()
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.undo()
    assert did == [*["read"] * MOST_BEHIND, "time", "read", "read", "time"]


@pytest.mark.parametrize("beside", [True, False])
async def test_bulk_lets_the_program_run_where_small_messages_come_and_go(
    monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Else they would wait for all that the window lets out at a time."""
    settings = ChannelSettings(lanes=(Lane(), Lane(priority=1)))
    stretch = [0]

    async def ping(channel) -> None:
        while True:
            await channel.send(b"small", lane=1)
            await trio.sleep(0.001)

    async def look() -> None:
        while True:
            stretch.append(0)
            await trio.lowlevel.checkpoint()

    async with (
        open_node(settings=settings) as left,
        open_node(settings=settings) as right,
        left.open_channel(*right.address) as here,
        trio.open_nursery() as nursery,
    ):
        there = await right.accept()
        send = left._udp.send

        def count(rows: deque[Datagrams]) -> bool:
            stretch[-1] += sum(len(row.data) for row in rows)
            return send(rows)

        monkeypatch.setattr(left._udp, "send", count)
        if beside:
            nursery.start_soon(ping, here)
        nursery.start_soon(look)
        for size in [8_000_000] * 3:
            await here.send(bytes(size))
            while await there.receive() == b"small":
                pass
        nursery.cancel_scope.cancel()
    # Between two turns of one task each of three may send, and the order of tasks is Trio's choice.
    most = 2 * 3 * SHORT
    assert max(stretch) <= most if beside else max(stretch) > most
