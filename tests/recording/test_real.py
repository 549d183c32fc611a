"""Recording and replaying over loopback, as users do it."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
import pytest
import trio

import sphtp
from sphtp import Loss, StreamMessage
from sphtp.core.messages import MessageFactory
from sphtp.core.packing import pack
from sphtp.shell.lifetime import running
from sphtp.streams import LossReason
from sphtp_client.connection import ConnectionSettings
from sphtp_client.recording.events import OriginFailed, RecordingStarted
from sphtp_client.recording.mcap_file import read_recording
from sphtp_client.recording.record import Recorder, RecordingPlan, StreamPlace
from sphtp_client.recording.recorder import LostMessages, RecordedOrigin, RecorderQueue, put_items
from sphtp_client.recording.replay import Player, replay_topics, selected
from sphtp_client.recording.schedule import Schedule
from tests.deadline import until, within_20_seconds
from tests.interpreters import ForkedProcess
from tests.shell.test_client import TIMERS, client, cluster

pytestmark = within_20_seconds


class Recorded:
    """A recorder in this process, and the events that it shows."""

    def __init__(self, path: Path, server: sphtp.Server, plan: RecordingPlan) -> None:
        self.events: list[object] = []
        self._path = path
        self._plan = plan
        self.connection = ConnectionSettings((str(server.address),), timers=TIMERS)

    @asynccontextmanager
    async def running(self):
        with self._path.open("wb") as file:
            self.recorder = Recorder(self._plan, self._path, file, self.events.append)
            async with running(partial(self.recorder.run, self.connection)):
                await until(lambda: any(isinstance(it, RecordingStarted) for it in self.events))
                yield self

    def values(self):
        """Return what was recorded, by topic and peer."""
        found: dict[tuple[str, str], list[tuple[int, object]]] = {}
        for message in read_recording(self._path).messages():
            key = message.channel.name, message.channel.peer
            found.setdefault(key, []).append((message.number, message.value()))
        return found


async def test_what_was_recorded_comes_again_to_the_same_subscribers(tmp_path):
    path = tmp_path / "a.mcap"
    states = [{"step": step, "x": np.arange(3) * step} for step in range(50)]
    async with cluster(1) as (server,):
        async with (
            Recorded(path, server, RecordingPlan(("positions/*",), ())).running() as recorded,
            client(server.address, name="ada") as ada,
            client(server.address, name="bob") as bob,
            ada.publish("positions/west", "other") as west,
            bob.publish("positions/east") as east,
        ):
            await west.wait_for_receivers()
            await east.wait_for_receivers()
            await west.send("not selected", topic="other")
            for state in states:
                await west.send(state, topic="positions/west")
                await east.send(state["step"])
            recorder = recorded.recorder
            await until(lambda: recorder.queue.messages == 100)
        found = recorded.values()
        assert sorted(found) == [("positions/east", "bob"), ("positions/west", "ada")]
        assert found["positions/east", "bob"] == [(step, step) for step in range(50)]

        recording = read_recording(path)
        assert recording.cut is None
        channels = selected(recording.channels.values(), ())
        schedule = Schedule(begin=recording.begin, end=recording.end, speed=None)
        player = Player(recording, channels, schedule)
        async with (
            client(server.address) as reader,
            reader.subscribe("positions/*") as subscription,
            running(
                partial(
                    replay_topics,
                    player,
                    channels.values(),
                    recorded.connection.open,
                    laps=1,
                    gather=15.0,
                )
            ),
        ):
            again = [await subscription.receive() for _ in range(100)]
    west_again = [it for it in again if it.topic == "positions/west"]
    assert {it.peer.name for it in west_again} == {"ada"}
    assert pack([it.value for it in west_again]) == pack(states)
    assert [it.value for it in again if it.peer.name == "bob"] == list(range(50))


@dataclass
class Shot:
    power: int


async def test_sources_with_types_of_messages_refuse_the_recorder_which_shows_it(tmp_path):
    """It cannot decode their messages, and would write other values."""
    path, typed = tmp_path / "a.mcap", sphtp.Config(messages=MessageFactory([Shot]))
    async with (
        cluster(1) as (server,),
        sphtp.open_client([server.address], name="ada", config=typed) as ada,
        ada.publish("shots"),
        sphtp.open_node(config=typed) as node,
        node.open_source("state"),
    ):
        place = StreamPlace(*node.address, "state")
        async with Recorded(path, server, RecordingPlan(("**",), (place,))).running() as recorded:
            await until(lambda: sum(isinstance(it, OriginFailed) for it in recorded.events) == 2)
            failed = [it for it in recorded.events if isinstance(it, OriginFailed)]
    assert {(it.kind, it.name) for it in failed} == {("topic", "shots"), ("stream", "state")}
    assert all("message types differ" in it.why for it in failed)


async def test_a_source_outside_of_clusters_is_recorded_by_its_address(tmp_path):
    path = tmp_path / "a.mcap"
    async with (
        cluster(1) as (server,),
        sphtp.open_node() as node,
        node.open_source("state") as source,
    ):
        place = StreamPlace(*node.address, "state")
        async with Recorded(path, server, RecordingPlan((), (place,))).running() as recorded:
            await source.wait_for_receivers()
            await source.send_many(range(10))
            await until(lambda: recorded.recorder.queue.messages == 10)
    ((name, peer),) = recorded.values()
    assert (name, peer) == ("state", f"127.0.0.1:{node.address[1]}")


ENDLESS = """
import sys, threading
from sphtp.core.packing import pack
from sphtp_client.recording.recorder import RecordedOrigin, RecorderQueue

with open(sys.argv[1], "wb") as file:
    queue = RecorderQueue(file)
    threading.Thread(target=queue.write, daemon=True).start()
    origin, number = RecordedOrigin("topic", "state", "ada", 1, 7), 0
    while True:
        queue.put(origin, number, range(number, number + 100), [pack(5)] * 100)
        number += 100
        threading.Event().wait(0.001)
"""


async def test_a_recorder_that_is_killed_leaves_what_is_a_second_old(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"")
    process = ForkedProcess(ENDLESS, [str(path)])
    try:
        await until(lambda: read_recording(path).end > 0)
        process.kill()
        await process.wait()
    finally:
        await process.aclose()
    recording = read_recording(path)
    assert recording.cut is not None
    found = [message.number for message in recording.messages()]
    assert found == list(range(len(found)))
    assert len(found) >= 100


async def test_what_finds_the_queue_full_is_counted_and_written_down(tmp_path):
    path, lost = tmp_path / "a.mcap", list[LostMessages]()
    origin = RecordedOrigin("topic", "state", "ada", 1, 7)
    with path.open("wb") as file:
        queue = RecorderQueue(file, most_queued=3000, on_lost=lost.append)
        payloads = [pack(number) for number in range(60)]
        # Nobody writes yet: the first 20 have room, the next 30 do not.
        for first in range(0, 50, 10):
            numbers = list(range(first, first + 10))
            queue.put(origin, first, numbers, [payloads[number] for number in numbers])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, queue.write)
            await until(lambda: queue.messages >= 20)
            queue.put(origin, 50, list(range(50, 60)), payloads[50:])
            queue.close()
    recording = read_recording(path)
    found = [message.number for message in recording.messages()]
    missing = sorted(set(range(60)) - set(found))
    assert sum(queue.lost.values()) == len(missing) > 0
    (told,) = lost
    assert told[:2] == (origin, missing[0])
    noted = [it for name, it in recording.metadata if name == "sphtp.lost"]
    spans = [range(int(it["first"]), int(it["last"]) + 1) for it in noted]
    assert sorted(number for span in spans for number in span) == missing


async def test_a_loss_of_the_stream_is_written_down(tmp_path):
    path, shown = tmp_path / "a.mcap", list[LostMessages]()
    origin = RecordedOrigin("topic", "state", "ada", 1, 7)
    loss = Loss(3, 6, LossReason.GONE)
    with path.open("wb") as file:
        queue = RecorderQueue(file, on_lost=shown.append)
        messages = [StreamMessage(number, pack(number)) for number in (1, 2, 7)]
        put_items(queue, origin, 5, [*messages[:2], loss, messages[2]])
        queue.close()
        queue.write()
    recording = read_recording(path)
    assert [message.number for message in recording.messages()] == [1, 2, 7]
    ((name, properties),) = recording.metadata
    assert (name, properties["first"], properties["last"], properties["count"]) == (
        "sphtp.lost", "3", "6", "4",
    )  # fmt: skip
    assert shown == [LostMessages(origin, 3, 6, 4, LossReason.GONE.value)]


class Full(BytesIO):
    """A disk without room."""

    def write(self, data) -> int:
        if len(data) > 1000:
            raise OSError(28, "No space left on device")
        return super().write(data)


async def test_a_full_disk_ends_the_recording_with_an_error(tmp_path):
    async with cluster(1) as (server,):
        connection = ConnectionSettings((str(server.address),), timers=TIMERS)
        recorder = Recorder(RecordingPlan(("**",), ()), tmp_path / "a.mcap", Full(), lambda _: None)
        async with client(server.address) as ada, ada.publish("state") as source:

            async def send() -> None:
                await source.wait_for_receivers()
                # More than a chunk, so that it is written at once.
                await source.send_many([Random(1).randbytes(200_000)] * 20)
                await trio.sleep_forever()

            async with running(send):
                with pytest.raises(OSError, match="No space"):
                    await recorder.run(connection)
