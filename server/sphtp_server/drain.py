"""The drain of a server: its clients are with the others before it leaves.

A client registers with every server, so nothing has to be handed over. It has to be waited for: a
client may have reached this server alone, because it or another server has only just come, or
because a connection broke. So the others are asked whose heartbeats they receive themselves, until
each client of this one is among them. The other direction, from a server to the client, comes up at
about the same time, and no server knows when. Heartbeats go that way, so two of their intervals
pass before it counts as up.
"""

from typing import Any, Final

import trio

from sphtp import Config, Server, ServerAddress, SphtpError
from sphtp.config import ControlTimers
from sphtp.events import MemberState
from sphtp.observe import fetch_status

PAUSE: Final = 0.25
"""Seconds between two rounds of questions."""

HEARTBEATS: Final = 2
"""The heartbeats of other servers that clients can receive before this one leaves."""


async def wait_drained(server: Server, config: Config) -> None:
    """Wait until other active servers receive heartbeats of every client of a server.

    Returns at once without clients, and waits for ever if there is no other server.
    """
    timers = config.timers or ControlTimers()
    while server.clients:
        while await find_held(server, config):  # noqa: ASYNC110 # the others tell when asked
            await trio.sleep(PAUSE)
        await trio.sleep(HEARTBEATS * timers.heartbeat * (1 + timers.jitter))
        if not await find_held(server, config):
            return


async def find_held(server: Server, config: Config) -> list[int]:
    """Return the clients whose heartbeats no other active server receives."""
    received: set[int] = set()

    async def ask(address: ServerAddress) -> None:
        try:
            received.update(_clients_of(await fetch_status(address, config=config)))
        except SphtpError:
            # One that leaves at the same time, or cannot be reached, does not count.
            return

    async with trio.open_nursery() as nursery:
        for member in server.view.members:
            is_other = member.id != server.id and member.state is MemberState.ACTIVE
            if is_other and member.address is not None:
                nursery.start_soon(ask, member.address)
    return [client for client in server.clients if client not in received]


def _clients_of(status: dict[str, Any]) -> set[int]:
    """Return the clients whose heartbeats a server receives itself."""
    clients = status.get("clients")
    rows = clients if isinstance(clients, list) else []
    return {
        row["id"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), int) and row.get("told_by") is None
    }
