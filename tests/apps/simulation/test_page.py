"""The page of a client whose other half, which looks at the cluster for it, is not admitted."""

import json
import re
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import trio

from sphtp import open_server
from sphtp_client.connection import ConnectionSettings
from sphtp_client.simulation.peer import run_peer
from sphtp_client.simulation.peer_links import SlabJob
from sphtp_client.simulation.reports import Connected, PageLimited, ProcessEvent
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds


class Events:
    """A reporter that keeps the last event of each kind."""

    progress_every = 10.0

    def __init__(self) -> None:
        self.last: dict[type, Any] = {}

    def report(self, event: ProcessEvent) -> None:
        self.last[type(event)] = event


async def first_status(host: str, port: int) -> dict[str, Any]:
    """Return the first document that a browser gets."""
    received = b""
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(b"GET /status?follow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not (found := re.search(rb"^\{.*\}$", received, re.MULTILINE)):
            received += await stream.receive_some()
    return dict(json.loads(found[0]))


async def test_a_page_that_shows_less_says_why_and_so_does_the_client(world) -> None:
    events = Events()
    async with (
        open_server(
            "tcp://127.0.0.1:0",
            new_cluster=True,
            announce=False,
            admit=lambda peer: peer.name != "page",
        ) as server,
        trio.open_nursery() as nursery,
    ):
        connection = ConnectionSettings((str(server.advertised),), web=("127.0.0.1", 0))
        job = SlabJob(world(), 0, 1, 10**9)
        nursery.start_soon(partial(run_peer, job, connection, events))
        await until(lambda: {Connected, PageLimited} <= events.last.keys())
        parts = urlsplit(events.last[Connected].page)
        status = await first_status(parts.hostname or "", parts.port or 0)
        nursery.cancel_scope.cancel()
    reason = events.last[PageLimited].reason
    assert "refuse" in reason or "denied" in reason
    assert status["problem"] == reason
    (cause,) = [cause for cause in status["causes"] if cause["level"] == "warning"]
    assert cause["text"] == f"The page shows only a part: {reason}."
