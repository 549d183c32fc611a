"""The watcher among peers in memory: who is followed, and when that ends."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import Any, Self

import pytest
import trio

import sphtp
from sphtp import Loss, Peer
from sphtp.config import StreamSettings
from sphtp.errors import RefusedError, UnreachableError
from sphtp.streams import LossReason
from sphtp_client.connection import ConnectionSettings
from sphtp_client.watch.events import (
    FramesLost,
    SlabEnded,
    SlabJoined,
    SlabState,
    WatchSummary,
    WholeState,
)
from sphtp_client.watch.watcher import StopCondition, Watcher

REACH = ConnectionSettings(("tcp://127.0.0.1:1",), wait=5.0)


class Client:
    """Knows peers, and has a stream of items for each of them."""

    def __init__(self) -> None:
        self.data: Any = None
        self.peers: dict[int, Peer] = {}
        self.sources: dict[int, trio.MemorySendChannel[Any]] = {}
        self.refusals: dict[int, Exception] = {}
        self.leaving = set[int]()
        self._streams: dict[int, trio.MemoryReceiveChannel[Any]] = {}
        self._heard, self._events = trio.open_memory_channel[Any](inf)

    def enter(self, peer: Peer) -> None:
        self.peers[peer.id] = peer
        self.sources[peer.id], self._streams[peer.id] = trio.open_memory_channel[Any](inf)
        self._heard.send_nowait("entered")

    def leave(self, peer_id: int) -> None:
        """Be gone once its stream is read to the end."""
        self.sources[peer_id].close()
        self.leaving.add(peer_id)

    async def wait_for_peer(self, wanted: Callable[[Peer], bool]) -> Peer:
        while True:
            for peer in self.peers.values():
                if wanted(peer):
                    return peer
            await trio.sleep(0.1)

    @contextmanager
    def events(self) -> Iterator[Any]:
        yield self._events

    @asynccontextmanager
    async def subscribe_to(
        self, peer_id: int, topic: str, *, late_join: bool, settings: StreamSettings
    ) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        assert topic in self.peers[peer_id].topics
        assert (late_join, settings.recover) == (True, False)
        if peer_id in self.refusals:
            self.peers.pop(peer_id)
            raise self.refusals[peer_id]
        yield self._streams[peer_id]
        if peer_id in self.leaving:
            del self.peers[peer_id]

    @asynccontextmanager
    async def open(self, _servers: Any, *, data: Any, **_: Any) -> AsyncIterator["Client"]:
        self.data = data
        yield self


class Ear:
    """A display that remembers."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_event(self, event: Any) -> None:
        self.said.append(event)

    def show(self, now: float, view: Any) -> None:
        pass

    def finish(self, now: float, view: Any, summary: WatchSummary) -> None:
        self.said.append(summary)

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.said if isinstance(event, kind)]


@pytest.fixture
def client(monkeypatch):
    client = Client()
    monkeypatch.setattr(sphtp, "open_client", client.open)
    return client


async def watched(stop: StopCondition = StopCondition()) -> tuple[str, Ear]:  # noqa: B008 - it is frozen
    ear = Ear()
    watcher = Watcher(REACH, stop, ear)
    with trio.fail_after(20):
        await watcher.run()
    return watcher.outcome, ear


async def test_slabs_are_followed_to_the_end(client, make_peer, make_message):
    for slab in range(3):
        client.enter(make_peer(slab))
        for step in (8, 30):
            client.sources[7 + 2 * slab].send_nowait(make_message(slab, step))
        client.leave(7 + 2 * slab)
    outcome, ear = await watched()
    assert outcome == "finished"
    assert {joined.slab for joined in ear.all(SlabJoined)} == {0, 1, 2}
    assert [whole.step for whole in ear.all(WholeState)] == [8, 30]
    assert [ended.step for ended in ear.all(SlabEnded)] == [30] * 3
    assert ear.said[-1].frames == len(ear.all(SlabState)) == 6


async def test_slabs_that_come_later_are_followed_too(
    client, make_peer, make_message, nursery, autojump_clock
):
    async def come() -> None:
        for slab in (2, 0, 1):
            client.enter(make_peer(slab))
            client.sources[7 + 2 * slab].send_nowait(make_message(slab, 4))
            await trio.sleep(1)

    nursery.start_soon(come)
    outcome, ear = await watched(StopCondition(once=True))
    assert outcome == "seen"
    assert [state.slab for state in ear.all(SlabState)] == [2, 0, 1]


async def test_watching_is_taking_no_part(client, make_peer, autojump_clock):
    client.enter(make_peer(0))
    client.leave(7)
    await watched()
    assert "slab" not in client.data


async def test_other_runs_and_other_peers_are_left_alone(client, make_peer, make_message):
    client.enter(make_peer(0))
    client.enter(make_peer(1, data={"scenario": "other"}))
    client.enter(make_peer(2, data={"slab": "none"}))
    client.sources[7].send_nowait(make_message(0, 30))
    client.leave(7)
    outcome, ear = await watched()
    assert outcome == "finished"
    assert [joined.slab for joined in ear.all(SlabJoined)] == [0]


async def test_a_run_whose_streams_end_too_soon_broke_off(
    client, make_peer, make_message, autojump_clock
):
    for slab in range(3):
        client.enter(make_peer(slab))
        client.sources[7 + 2 * slab].send_nowait(make_message(slab, 29))
        client.leave(7 + 2 * slab)
    outcome, ear = await watched()
    assert outcome == ear.said[-1].outcome == "broken off"


async def test_whose_stream_ends_too_soon_is_joined_again(
    client, make_peer, make_message, autojump_clock
):
    client.enter(make_peer(0))
    client.sources[7].send_nowait(make_message(0, 4))
    client.sources[7].close()

    async def come_back() -> None:
        await trio.sleep(0.1)
        client.enter(make_peer(0))
        for item in (make_message(0, 4), Loss(1, 2, LossReason.WINDOW), make_message(0, 30)):
            client.sources[7].send_nowait(item)
        client.leave(7)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        outcome, ear = await watched()
    assert outcome == "finished"
    assert len(ear.all(SlabJoined)) == 2
    assert [state.step for state in ear.all(SlabState)] == [4, 30], "nothing is told twice"
    assert len(ear.all(FramesLost)) == 1


@pytest.mark.parametrize(
    "error",
    [UnreachableError("nobody answers"), RefusedError("full", "topic"), trio.BrokenResourceError()],
)
async def test_a_slab_that_cannot_be_joined_is_told_and_ends_nothing(
    client, make_peer, make_message, error, autojump_clock
):
    client.refusals[7] = error
    for slab in range(2):
        client.enter(make_peer(slab))
    client.sources[9].send_nowait(make_message(1, 30))
    client.leave(9)
    outcome, ear = await watched()
    assert outcome == "finished"
    assert (0, str(error)) in [(ended.slab, ended.reason) for ended in ear.all(SlabEnded)]


async def test_losses_are_told_in_their_place_and_nonsense_is_counted(
    client, make_peer, make_message
):
    client.enter(make_peer(0))
    items = [make_message(0, 4), Loss(1, 2, LossReason.WINDOW), "nonsense", make_message(0, 30)]
    for item in items:
        client.sources[7].send_nowait(item)
    client.leave(7)
    _, ear = await watched()
    kinds = [type(event) for event in ear.said]
    assert kinds == [SlabJoined, SlabState, FramesLost, SlabState, SlabEnded, WatchSummary]
    assert (ear.said[-1].losses, ear.said[-1].malformed) == (1, 1)


async def test_seconds_are_enough_by_themselves(client, make_peer, autojump_clock):
    client.enter(make_peer(0))
    outcome, ear = await watched(StopCondition(seconds=3.0))
    assert outcome == ear.said[-1].outcome == "seen"
    assert trio.current_time() == pytest.approx(3.0)


async def test_without_a_simulation_it_says_how_long_it_waited(client, autojump_clock):
    with pytest.raises(UnreachableError, match="waited 5 s for a simulation, and none appeared"):
        await watched()


async def test_once_does_not_wait_for_ever(client, make_peer, make_message, autojump_clock):
    client.enter(make_peer(0))
    client.sources[7].send_nowait(make_message(0, 4))
    with pytest.raises(UnreachableError, match="1 of 3 slabs were seen within 5 s"):
        await watched(StopCondition(once=True))


async def test_who_is_cancelled_still_has_a_last_word(client, make_peer):
    client.enter(make_peer(0))
    ear = Ear()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watcher(REACH, StopCondition(), ear).run)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert ear.said[-1].outcome == "stopped"
