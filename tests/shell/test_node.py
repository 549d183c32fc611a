"""What a node does first."""

import trio.testing

from sphtp.shell.node import MOST_BEHIND
from sphtp.shell.opening import open_node
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds


async def test_the_socket_is_read_before_timers_are_looked_at(monkeypatch) -> None:
    """It may hold the signs of life that are overdue; but a flood does not hold up time."""
    async with open_node() as node:
        did: list[str] = []
        left = [MOST_BEHIND + 2]

        def receive(now: float) -> bool:
            did.append("read")
            left[0] -= 1
            if left[0] > 0:
                node._bell.ring()
            return left[0] <= 0

        monkeypatch.setattr(node, "_receive", receive)
        monkeypatch.setattr(node._endpoint, "handle_timeout", lambda now: did.append("time"))
        node._bell.ring()
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.undo()
    assert did == [*["read"] * MOST_BEHIND, "time", "read", "read", "time"]
