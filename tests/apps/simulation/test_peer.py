"""A peer among others, in memory: it meets them, runs, gathers, and reports."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from sphtp import events as library
from sphtp.core.control.records import Member
from sphtp.core.control.vocabulary import Reason
from sphtp.errors import LocalError, SettingsError, SphtpError, UnreachableError
from sphtp_client.connection import ConnectionSettings
from sphtp_client.simulation.frames import frames_sha256, read_frame_untrusted, topic_of
from sphtp_client.simulation.peer import ProgressMeter, run_alone, run_peer
from sphtp_client.simulation.peer_links import SlabJob
from sphtp_client.simulation.reports import (
    Connected,
    Failed,
    Finished,
    PeerGone,
    ProcessEvent,
    Result,
    ServerCame,
    ServerLost,
    StepProgress,
)
from sphtp_client.simulation.scenario_file import load_scenario


class Collector:
    progress_every = 2.0

    def __init__(self) -> None:
        self.said: list[Any] = []

    def report(self, event: Any) -> None:
        self.said.append(event)


async def test_the_first_step_says_nothing_of_speed_and_later_ones_come_now_and_then(
    autojump_clock: object,
) -> None:
    ear = Collector()
    pace = ProgressMeter(100, ear)
    await trio.sleep(1.0)
    slab: Any = SimpleNamespace(step=0)
    for slab.step in range(1, 51):
        await pace.on_step(slab)
        await trio.sleep(0.1)
    reported = [(event.step, event.steps_per_s) for event in ear.said]
    assert all(isinstance(event, StepProgress) for event in ear.said)
    assert [step for step, _ in reported] == pytest.approx([1, 21, 41], abs=1)
    assert reported[0][1] is None
    assert [speed for _, speed in reported[1:]] == pytest.approx([10.0, 10.0])


REACH = ConnectionSettings(("tcp://127.0.0.1:1",), wait=5.0)
STEPS = 12
SERVER = Member(6, 1, None)


class Ear:
    """A reporter that remembers, and may do something at an event."""

    progress_every = 0.5

    def __init__(self, at: Any = ProcessEvent, do: Any = None) -> None:
        self.said: list[ProcessEvent] = []
        self._at, self._do = at, do

    def report(self, event: ProcessEvent) -> None:
        self.said.append(event)
        if self._do is not None and isinstance(event, self._at):
            self._do()

    def all(self, kind: type[ProcessEvent]) -> list[Any]:
        return [event for event in self.said if isinstance(event, kind)]


@pytest.fixture
def job(gas_file):
    return SlabJob(load_scenario(gas_file), 0, 1, STEPS)


class Run:
    """All slabs of a run at once; each ends with its error or None."""

    def __init__(self, job: SlabJob, slabs: int) -> None:
        self.jobs = [replace(job, slab=slab, slabs=slabs) for slab in range(slabs)]
        self.ears = [Ear() for _ in range(slabs)]
        self.errors: dict[int, SphtpError | None] = {}
        self.scopes = [trio.CancelScope() for _ in range(slabs)]

    async def to_end(self) -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for slab in range(len(self.jobs)):
                    nursery.start_soon(self._one, slab)

    async def _one(self, slab: int) -> None:
        with self.scopes[slab]:
            try:
                await run_peer(self.jobs[slab], REACH, self.ears[slab])
            except SphtpError as error:
                self.errors[slab] = error
            else:
                self.errors[slab] = None


@pytest.mark.parametrize("slabs", [1, 2, 3, 5])
async def test_any_number_of_peers_ends_where_one_process_ends(hub, job, slabs):
    alone, run = Ear(), Run(job, slabs)
    await run_alone(job.scenario, STEPS, alone)
    await run.to_end()
    assert run.errors == dict.fromkeys(range(slabs))
    (expected,), (found,) = alone.all(Result), run.ears[0].all(Result)
    assert found.state_sha256 == expected.state_sha256
    assert (found.start, found.end) == (expected.start, expected.end)
    assert found.end.count == 60
    for slab, ear in enumerate(run.ears):
        assert isinstance(ear.said[0], Connected)
        assert isinstance(ear.said[-1], Finished)
        assert not ear.all(PeerGone)
        assert bool(ear.all(Result)) == (slab == 0)
        assert {slab - 1, slab + 1} & set(range(slabs)) <= {k.slab for k in ear.said[-1].links}


async def test_in_a_good_run_nobody_sees_a_broken_channel(hub, job):
    await Run(job, 4).to_end()
    assert not hub.clients
    for client in hub.everybody:
        assert all(channel.closed and channel.broken is None for channel in client.channels)


@pytest.mark.parametrize("victim", [0, 1, 3])
async def test_everybody_says_which_peer_vanished(hub, job, victim):
    run = Run(job, 4)

    def kill() -> None:
        hub.of_slab(victim).vanish("timed out")
        run.scopes[victim].cancel()

    run.ears[victim] = Ear(StepProgress, kill)
    await run.to_end()
    killed = hub.of_slab(victim).id
    assert set(run.errors) == {0, 1, 2, 3} - {victim}
    for error in run.errors.values():
        assert str(error) == f"slab {victim} (id {killed:#010x}) left: timed out"


async def test_who_fails_tells_the_others_why(hub, job):
    run = Run(job, 4)

    def fail() -> None:
        raise LocalError("sphere 4 is outside the box")

    run.ears[2] = Ear(StepProgress, fail)
    await run.to_end()
    assert type(run.errors[2]) is LocalError
    text = f"slab 2 (id {hub.of_slab(2).id:#010x}) left: sphere 4 is outside the box"
    assert [str(run.errors[slab]) for slab in (0, 1, 3)] == [text] * 3


async def test_another_scenario_is_refused_by_name(hub, job, autojump_clock):
    run = Run(job, 2)
    other = job.scenario.model_copy(update={"dt": 1e-5})
    run.jobs[1] = SlabJob(other, 1, 2, STEPS)
    await run.to_end()
    for slab, other in ((0, 1), (1, 0)):
        assert isinstance(run.errors[slab], SettingsError)
        who = f"slab {other} (id {hub.of_slab(other).id:#010x})"
        assert f"{who} runs something else: its scenario is" in str(run.errors[slab])


@pytest.mark.parametrize(("key", "value"), [("steps", 99), ("slabs", 3)])
async def test_another_length_or_cut_is_refused_by_name(hub, job, key, value, autojump_clock):
    hub.enter({**replace(job, slab=1, slabs=2).data, key: value})
    with pytest.raises(SettingsError, match=f"slab 1 .* its {key} is {value}, here it is"):
        await run_peer(replace(job, slabs=2), REACH, Ear())


async def test_a_peer_that_never_comes_is_named(hub, job, autojump_clock):
    hub.enter({"nothing": "of ours"})
    with pytest.raises(UnreachableError, match="waited 5 s for slab 1 of 2, which did not appear"):
        await run_peer(replace(job, slabs=2), REACH, Ear())


async def test_a_peer_that_opens_no_channel_is_named(hub, job, autojump_clock):
    lower = hub.enter(replace(job, slab=0, slabs=2).data)
    text = rf"waited 5 s for slab 0 \(id {lower.id:#010x}\), which opened no channel"
    with pytest.raises(UnreachableError, match=text):
        await run_peer(replace(job, slab=1, slabs=2), REACH, Ear())


async def test_a_stranger_is_turned_away(hub, job):
    stranger = hub.enter({"slab": "none"})
    turned_away = trio.Event()

    async def knock() -> None:
        upper = await stranger.wait_for_peer(lambda peer: peer.data["slab"] == 1)
        async with stranger.open_channel(upper.id) as channel:
            with pytest.raises(trio.EndOfChannel):
                await channel.receive()
        turned_away.set()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(knock)
            nursery.start_soon(run_peer, replace(job, slab=1, slabs=2), REACH, Ear())
            await trio.testing.wait_all_tasks_blocked()
            await run_peer(replace(job, slabs=2), REACH, Ear())
            await turned_away.wait()


@pytest.mark.parametrize("nonsense", ["text", {"slab": "?"}, b"too short"])
async def test_a_peer_that_talks_nonsense_ends_the_run_by_name(hub, job, nonsense, nursery):
    lower = hub.enter(replace(job, slab=0, slabs=2).data)

    async def talk() -> None:
        upper = await lower.wait_for_peer(lambda peer: peer.data["slab"] == 1)
        async with lower.open_channel(upper.id) as channel:
            await channel.send(nonsense)
            await trio.sleep_forever()

    nursery.start_soon(talk)
    with pytest.raises(SphtpError) as caught:
        await run_peer(replace(job, slab=1, slabs=2), REACH, Ear())
    assert nonsense == b"too short" or "slab 0" in str(caught.value)


async def test_a_slab_that_dies_before_it_hands_over_is_missed(hub, job, autojump_clock):
    """Slab 2 has no link to slab 0 yet when it vanishes after the last step."""
    run = Run(job, 3)

    def enter(data: Any) -> Any:
        client = enter_hub(data)
        connect = client.open_channel

        def open_channel(peer_id: int) -> Any:
            if (data["slab"], peer_id) == (2, hub.of_slab(0).id):
                client.vanish("timed out")
                run.scopes[2].cancel()
            return connect(peer_id)

        client.open_channel = open_channel
        return client

    enter_hub, hub.enter = hub.enter, enter
    await run.to_end()
    for slab in (0, 1):
        assert str(run.errors[slab]).startswith("slab 2 (id ")
        # Missed at once or when the news comes, whichever is first.
        assert re.search("not among the peers|expired", str(run.errors[slab]))


async def test_progress_is_told_with_speed_and_links(hub, job):
    run = Run(job, 2)
    await run.to_end()
    first = run.ears[0].all(StepProgress)[0]
    assert (first.step, first.steps, first.steps_per_s) == (1, STEPS, None)
    assert first.servers == (2, 4)
    assert first.links[0].slab == 1
    assert first.links[0].rtt_ms == 2.0
    assert not run.ears[0].all(Failed)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (library.ServerLeft(SERVER, Reason.EXPIRED), ServerLost(id=6, reason="expired")),
        (library.ServerEntered(SERVER), ServerCame(id=6)),
    ],
)
async def test_servers_that_go_and_come_are_told(hub, job, event, expected):
    def change() -> None:
        hub.of_slab(0).servers = {4: None}
        hub.of_slab(0).hear(event)

    ear = Ear(StepProgress, change)
    await run_peer(job, REACH, ear)
    assert ear.all(type(expected)) == [expected.model_copy(update={"servers": (4,)})]


@pytest.mark.parametrize("has_room", [True, False])
async def test_every_slab_publishes_its_state_and_waits_for_nobody(hub, job, has_room):
    alone, run = Ear(), Run(job, 3)

    def enter(data: Any) -> Any:
        client = enter_hub(data)
        client.has_room = has_room
        return client

    enter_hub, hub.enter = hub.enter, enter
    await run_alone(job.scenario, STEPS, alone)
    await run.to_end()
    (expected,), (found,) = alone.all(Result), run.ears[0].all(Result)
    assert found.state_sha256 == expected.state_sha256
    sources = [hub.of_slab(slab).sources[topic_of(slab)] for slab in range(3)]
    if not has_room:
        assert not any(source.sent for source in sources)
        return
    frames = [[read_frame_untrusted(sent) for sent in source.sent] for source in sources]
    assert all((first.step, last.step) == (0, STEPS) for first, *_, last in frames)
    assert frames_sha256([last for *_, last in frames]) == expected.state_sha256
