"""A peer that also works in a group: coupled oscillators, in lock step with the others.

It does what `peer.py` does, and reads the same commands. What it adds to the plan are `others`, for
whom it waits; `group`, with the number of members; `page`, for a page of the cluster; and
`data_pace`, the seconds between two changes of its data. Each member advances its own oscillators
by those of all, in the order of the members, so that one process alone gets the same bits.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import trio

from sphtp.observe import Closed, Instrument, WatchedChannel, serve_status
from sphtp.web import open_web
from tests.chaos.programs.peer import Peer, main, say

OSCILLATORS = 2000
"""Of each member: 16 kB a step, many packets."""

STEP = 0.002
"""Seconds of computing in each step."""

TICK = 0.02
STALL = 0.1
"""Seconds between two looks at the time, and those from which on a process had no turn."""

Array = np.ndarray[tuple[int], np.dtype[np.float64]]


def initial(name: str) -> Array:
    """Return the phases that a member begins with."""
    seed = int.from_bytes(sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).uniform(0.0, 6.0, OSCILLATORS)


def advance(own: Array, phases: Sequence[Array]) -> Array:
    """Return the phases after a step. The sum depends on the order, to the last bit."""
    pull = np.zeros(OSCILLATORS)
    for other in phases:
        pull += np.sin(other - own) / 3.0
    return own + 0.01 * pull + 0.1


def run_alone(names: Sequence[str], steps: int) -> Mapping[str, str]:
    """Return the digests of all members after some steps, of one process that has all of them."""
    phases = {name: initial(name) for name in names}
    for _ in range(steps):
        everybody = list(phases.values())
        phases = {name: advance(own, everybody) for name, own in phases.items()}
    return {name: digest(own) for name, own in phases.items()}


def digest(phases: Array) -> str:
    return sha256(phases.tobytes()).hexdigest()


class ClosedChannels(Instrument):
    """Tells of every channel that ends."""

    def channel_closed(self, now: float, channel: WatchedChannel, closed: Closed) -> None:
        say("channel closed", peer=channel.peer_id, reason=closed.reason.name)


class Worker(Peer):
    number = 0

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            if self.plan["page"]:
                # It serves the status of its client, too.
                web = await stack.enter_async_context(open_web(self.client, page=True))
                say("page", host=web.address[0], port=web.address[1])
            async with trio.open_nursery() as nursery:
                if not self.plan["page"]:
                    nursery.start_soon(partial(serve_status, self.client))
                if self.plan["data_pace"]:
                    nursery.start_soon(self.change_data)
                    nursery.start_soon(self.see_data)
                nursery.start_soon(self.note_stalls)
                await super().run()
                nursery.cancel_scope.cancel()

    async def speak_to_all(self) -> None:
        # Those who speak without a pause leave little time to those who start.
        for name in self.plan["others"]:
            await self.client.wait_for_peer(name)
        await super().speak_to_all()

    async def work(self) -> None:
        if not self.plan["group"]:
            return
        own, steps, is_over = initial(self.plan["name"]), 0, False
        async with self.client.join("oscillators", size=self.plan["group"]) as group:
            names = [member.name for member in group.members]
            say("stepping", members=names)
            while not is_over:
                got = await group.exchange([own, self.finishing.is_set()])
                assert [member.name for member in got.members] == names
                own = advance(own, [phases for phases, _ in got])
                # All see the same, and so all end after the same step.
                is_over = any(is_last for _, is_last in got)
                steps += 1
                if steps % 50 == 0:
                    say("step", number=steps)
                await trio.sleep(STEP)
            say("stepped", steps=steps, digest=digest(own))

    async def note_stalls(self) -> None:
        """Tell of each time in which this process had no turn."""
        before = time.monotonic()
        while True:
            await trio.sleep(TICK)
            now = time.monotonic()
            if now - before > STALL:
                say("stalled", since=before, until=now)
            before = now

    async def change_data(self) -> None:
        while not self.finishing.is_set():
            self.number += 1
            self.client.set_data({"name": self.plan["name"], "number": self.number})
            with trio.move_on_after(self.plan["data_pace"]):
                await self.finishing.wait()
        say("data", number=self.number)

    async def see_data(self) -> None:
        """Tell the last number of each peer, again and again, when it is to finish."""
        while True:
            await self.finishing.wait()
            for peer in self.client.peers.values():
                say("seen", name=peer.name, number=(peer.data or {}).get("number", 0))
            say("seen", name=self.client.name, number=self.number)
            await trio.sleep(0.1)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    plan: dict[str, Any] = {
        "others": [],
        "group": 0,
        "page": False,
        "data_pace": 0,
        **json.loads(sys.argv[1]),
    }
    trio.run(main, plan, Worker, ClosedChannels())
