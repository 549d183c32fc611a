"""The drain of a server: the wait until all its clients have reached other servers.

A client registers with every server, so no state has to be transferred. But a client may have
reached this server alone, because the client or another server has just started, or because a
connection broke. So this server requests the status of the other servers until each of its clients
is among those whose heartbeats they receive. No server can observe when the connection in the other
direction, from a server to the client, is up. Server heartbeats use that direction, so this server
waits for two of their intervals, and checks again.
"""

from typing import Any, Final

import trio

from sphtp import Config, Server, ServerAddress, SphtpError
from sphtp.config import ControlTimers
from sphtp.events import MemberState
from sphtp.observe import fetch_status

PAUSE: Final = 0.25
"""Seconds between two rounds of status requests."""

HEARTBEATS: Final = 2
"""The heartbeat intervals that pass before the server leaves."""


async def wait_drained(server: Server, config: Config) -> None:
    """Wait until other active servers receive the heartbeats of all clients of ``server``.

    Returns at once if the server has no clients. If there is no other server, it waits until the
    clients have left.
    """
    timers = config.timers or ControlTimers()
    while server.clients:
        while await find_held(server, config):  # noqa: ASYNC110 # the other servers send no event
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
            # A server that leaves at the same time, or cannot be reached, does not count.
            return

    async with trio.open_nursery() as nursery:
        for member in server.view.members:
            is_other = member.id != server.id and member.state is MemberState.ACTIVE
            if is_other and member.address is not None:
                nursery.start_soon(ask, member.address)
    return [client for client in server.clients if client not in received]


def _clients_of(status: dict[str, Any]) -> set[int]:
    """Return the ids of clients whose heartbeats a server receives, from its status."""
    clients = status.get("clients")
    rows = clients if isinstance(clients, list) else []
    return {
        row["id"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), int) and row.get("told_by") is None
    }
