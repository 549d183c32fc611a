"""Groups in lock step, recorded from outside, and stepped again against one changed member."""

import json
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import trio

from sphtp.errors import SettingsError
from sphtp_client.recording.events import RecordingEvent, StepDiffers, StepsSummary
from sphtp_client.recording.mcap_file import Recording, RecordingWriter, read_recording
from sphtp_client.recording.record import RecordingPlan
from sphtp_client.recording.steps import RecordedSteps, difference, replay_steps
from sphtp_client.recording.values import encode_message
from tests.cases import each
from tests.deadline import until, within_20_seconds
from tests.recording.test_real import Recorded
from tests.shell.test_client import client, cluster

NAMES = ("ada", "bob", "cleo")
STEPS = 30


def force(name: str, state: Any, *, bug_at: int | None = None, step: int = 0) -> Any:
    """What a member contributes; it depends on all that was summed up before."""
    own = np.sin(state + len(name)) / 3
    return own + 0.25 if step == bug_at else own


async def work(server, name, results, *, bug_at=None, steps=STEPS, size=3) -> None:
    """A worker as a user writes it."""
    state = np.zeros(3)
    async with (
        client(server.address, name=name) as member,
        member.join("fluid", size=size) as group,
    ):
        for step in range(steps):
            state += await group.reduce(force(name, state, bug_at=bug_at, step=step))
    results[name] = state.tobytes()


@asynccontextmanager
async def recording_of(path, server, results, **options):
    """Three workers, recorded from their first step on."""
    plan = RecordingPlan((), (), ("fluid",))
    async with Recorded(path, server, plan).running() as recorded:
        async with trio.open_nursery() as nursery:
            for name in NAMES:
                nursery.start_soon(partial(work, server, name, results, **options))
        queue = recorded.recorder.queue
        await until(lambda: queue.messages == STEPS * len(NAMES))
        yield recorded


@within_20_seconds
async def test_every_contribution_of_every_step_is_in_the_recording(tmp_path):
    path, results = tmp_path / "a.mcap", dict[str, bytes]()
    async with cluster(1) as (server,), recording_of(path, server, results) as recorded:
        assert len(set(results.values())) == 1
    found = recorded.values()
    assert sorted(found) == [("fluid", name) for name in sorted(NAMES)]
    members = [it for name, it in read_recording(path).metadata if name == "sphtp.members"]
    assert [(it["group"], it["step"]) for it in members] == [("fluid", "0")]
    state = np.zeros(3)
    # What was recorded adds up to what the workers got, in the order of members.
    order = [name for *_, name in json.loads(members[0]["members"])]
    values = {name: dict(found["fluid", name]) for name in NAMES}
    for step in range(STEPS):
        total = values[order[0]][step] + values[order[1]][step] + values[order[2]][step]
        state += total
    assert state.tobytes() == results["ada"]


async def stepped_again(path, server, connection, results, **options):
    """Make the recorded steps again, against a worker named bob; return what is shown."""
    steps, shown = RecordedSteps(read_recording(path), "fluid"), list[RecordingEvent]()
    replayed = partial(
        replay_steps, steps, "fluid", "bob", connection.open, shown.append, file="a.mcap"
    )

    async def run() -> None:
        shown.append(await replayed())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        nursery.start_soon(partial(work, server, "bob", results, **options))
    *_, summary = shown
    assert isinstance(summary, StepsSummary)
    return summary, [it for it in shown if isinstance(it, StepDiffers)]


@within_20_seconds
async def test_a_recorded_run_is_stepped_again_against_one_worker(tmp_path):
    path = tmp_path / "a.mcap"
    then, now, later = (dict[str, bytes]() for _ in range(3))
    async with cluster(1) as (server,):
        async with recording_of(path, server, then) as recorded:
            pass
        connection = recorded.connection
        summary, differences = await stepped_again(path, server, connection, now)
        assert (summary.steps, summary.equal, summary.reason) == (STEPS, STEPS, "")
        assert not differences
        assert now["bob"] == then["bob"]
        # A worker with a defect at one step is found at that step, and wherever it shows.
        summary, differences = await stepped_again(path, server, connection, later, bug_at=7)
        assert later["bob"] != then["bob"]
    assert differences[0].step == 7
    assert "3 of 3 items differ, by at most 0.25" in differences[0].what
    assert summary.steps == STEPS
    assert summary.equal == STEPS - len(differences)


@within_20_seconds
async def test_a_worker_that_ends_early_ends_the_replay_with_a_reason(tmp_path):
    path, then = tmp_path / "a.mcap", dict[str, bytes]()
    async with cluster(1) as (server,):
        async with recording_of(path, server, then) as recorded:
            pass
        summary, _ = await stepped_again(path, server, recorded.connection, {}, steps=11)
    assert (summary.steps, summary.equal) == (11, 11)
    assert summary.reason == "bob is no longer a member at step 11"


def group_recording(steps, *, first=0, without=(), late=None) -> Recording:
    """Steps of two members; of some, contributions are missing; later, another one comes."""
    file = BytesIO()
    writer = RecordingWriter(file)
    about = {"kind": "group", "name": "fluid", "session": "1"}
    ids = [
        writer.add_channel(f"fluid/{name}", {}, {**about, "peer": name, "peer_id": str(number)})
        for number, name in enumerate(("ada", "bob"))
    ]
    members = [[0, 1, "ada"], [1, 1, "bob"]]
    notes = {first: members, **({} if late is None else {late: [*members, [2, 1, "new"]]})}
    for step, those in notes.items():
        properties = {"group": "fluid", "step": str(step), "members": json.dumps(those)}
        writer.add_metadata("sphtp.members", properties)
    for step in range(first, first + steps):
        for place, channel in enumerate(ids):
            if (step, place) not in without:
                writer.add_message(channel, step, step, encode_message(10 * step + place))
    writer.close()
    return read_recording(file.getvalue())


def test_steps_are_found_up_to_one_that_cannot_be_made_again():
    steps = RecordedSteps(group_recording(5), "fluid")
    assert [it.values for it in steps] == [[10 * step, 10 * step + 1] for step in range(5)]
    assert steps.ended == ""
    steps = RecordedSteps(group_recording(5, without={(3, 1)}), "fluid")
    assert [it.step for it in steps] == [0, 1, 2]
    assert steps.ended == "the recording lacks step 3 of bob"
    steps = RecordedSteps(group_recording(5, late=4), "fluid")
    assert [it.step for it in steps] == [0, 1, 2, 3]
    assert steps.ended == "the members differ from step 4 on"
    with pytest.raises(SettingsError, match="begins at step 2"):
        RecordedSteps(group_recording(5, first=2), "fluid")
    with pytest.raises(SettingsError, match="no steps of a group 'gas'"):
        RecordedSteps(group_recording(5), "gas")


@each(
    ("recorded", "got", "text"),
    [
        (1, 2, "recorded 1, now 2"),
        (np.zeros(3), np.zeros(2), "recorded float64 of shape (3,), now float64 of shape (2,)"),
        (np.zeros(3), np.array([0, 0, 0.5]), "1 of 3 items differ, by at most 0.5"),
        (np.array([True]), np.array([False]), "1 of 1 items differ"),
        (np.array([0.0, np.nan]), np.array([-0.0, np.nan]), "1 of 2 items differ, by at most 0"),
        (np.array([np.nan, 1]), np.array([np.nan, 3]), "1 of 2 items differ, by at most 2"),
        ("a" * 99, None, f"recorded '{'a' * 59}..., now None"),
    ],
)
def test_a_difference_is_said_in_words(recorded, got, text):
    assert difference(recorded, got) == text
