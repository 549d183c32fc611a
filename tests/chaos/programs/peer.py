"""A client that speaks to some peers and listens to all, and prints what becomes of every message.

Its first argument is a JSON object, which `actors.Peer` makes. What it prints are JSON objects, one
per line. It reads commands, one word per line: `census`; `finish`, which makes it stop speaking and
say when all has arrived; and `leave`. It leaves when its input ends, too.
"""

import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import trio

import sphtp
from sphtp.observe import Instrument, QlogWriter
from sphtp.security import Security, load_identity

LARGE = 20_000
"""Bytes of one message in ten: it travels in many pieces."""

FIRST_LARGE = 5
"""The first messages of a stream, which are large. Two peers on one host share memory from 64 KiB
in large messages on: so they share it before a test counts what they hold."""

FAILURES = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.EndOfChannel,
    sphtp.SphtpError,
)


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def tasks() -> list[str]:
    """Name every task below the main one."""
    root = trio.lowlevel.current_root_task()
    found, waiting = [], [root] if root else []
    while waiting:
        task = waiting.pop()
        found.append(task.name)
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return sorted(found)


class Peer:
    def __init__(self, client: sphtp.Client, plan: dict[str, Any]) -> None:
        self.client = client
        self.plan = plan
        self.entropy = Random(plan["seed"])
        self.finishing = trio.Event()
        self.open = 0
        self.streams = 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.tell_events)
            nursery.start_soon(self.client.serve_channels, self.hear)
            nursery.start_soon(self.speak_to_all)
            await self.obey()
            nursery.cancel_scope.cancel()

    async def speak_to_all(self) -> None:
        async with trio.open_nursery() as speakers:
            speakers.start_soon(self.work)
            for name in self.plan["to"]:
                speakers.start_soon(self.speak, name)
        await self.finishing.wait()
        say("drained")

    async def work(self) -> None:
        """Do what this kind of peer does beside speaking, until it is to finish."""

    async def tell_events(self) -> None:
        async for event in self.client.events():
            say(type(event).__name__, id=self.client.id, state=self.client.state.value)

    async def obey(self) -> None:
        async for command in words():
            if command == "census":
                say("census", tasks=tasks(), channels=self.open, wall=time.time())
            if command == "finish":
                self.finishing.set()
            if command == "leave":
                break

    async def hear(self, channel: sphtp.Channel) -> None:
        self.open += 1
        try:
            while True:
                for stream, number, _ in await channel.receive_many():
                    say("received", stream=stream, number=number, at=time.monotonic())
        except FAILURES as error:
            say("stopped hearing", why=repr(error))
        finally:
            self.open -= 1

    async def speak(self, name: str) -> None:
        while not self.finishing.is_set():
            try:
                wanted = partial(is_called, name)
                with trio.fail_after(self.plan["patience"]):
                    peer = await self.client.wait_for_peer(wanted)
                async with self.client.open_channel(peer.id) as channel:
                    await self.pour(channel)
            except FAILURES as error:
                say("stopped speaking", why=repr(error))

    async def pour(self, channel: sphtp.Channel) -> None:
        """Send numbered messages until the channel breaks or somebody says that it is enough."""
        self.streams += 1
        stream = f"{self.plan['name']}/{os.getpid()}/{self.streams}"
        say("speaking", stream=stream, to=channel.peer_id)
        self.open += 1
        number = 0
        try:
            while not self.finishing.is_set():
                is_large = number < FIRST_LARGE or self.entropy.random() < 0.1
                size = LARGE if is_large else self.entropy.randrange(200)
                # Said first: it may be on its way when this process is killed.
                say("sending", stream=stream, number=number)
                receipt = await channel.post([stream, number, bytes(size)])
                receipt.add_callback(partial(self.settle, stream, number))
                number += 1
                with trio.move_on_after(self.plan["pace"]):
                    await self.finishing.wait()
        finally:
            self.open -= 1

    @staticmethod
    def settle(stream: str, number: int, receipt: sphtp.Receipt) -> None:
        assert receipt.outcome is not None
        say("settled", stream=stream, number=number, outcome=receipt.outcome.name)


def is_called(name: str, peer: sphtp.Peer) -> bool:
    # Data comes a moment after the peer itself.
    return isinstance(peer.data, dict) and peer.data.get("name") == name


async def words() -> AsyncIterator[str]:
    async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
        rest = b""
        async for chunk in stdin:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode()


async def main(
    plan: dict[str, Any], kind: type[Peer] = Peer, instrument: Instrument | None = None
) -> None:
    log: Callable[[], Any] = partial(QlogWriter, plan["qlog"]) if plan["qlog"] else nullcontext
    with log() as writer:
        async with sphtp.open_client(
            plan["servers"],
            name=plan["name"],
            data={"name": plan["name"]},
            host=plan["host"],
            port=plan["port"],
            advertise=[tuple(address) for address in plan["advertise"]],
            config=sphtp.Config(
                timers=replace(
                    sphtp.config.ControlTimers(**plan["timers"]),
                    answer_timeout=plan["patience"],
                    start_timeout=plan["patience"],
                ),
                channel=sphtp.config.ChannelSettings(**plan["channel"]),
                security=Security(identity=load_identity(plan["key"]) if plan["key"] else None),
                instruments=[each for each in (writer, instrument) if each is not None],
            ),
        ) as client:
            say("registered", id=client.id, host=client.address[0], port=client.address[1])
            await kind(client, plan).run()
    say("ended", log_failed=bool(writer and writer.error))


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    trio.run(main, json.loads(sys.argv[1]))
