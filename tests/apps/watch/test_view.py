"""What is remembered of a simulation that is watched."""

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp import Loss
from sphtp.streams import LossReason
from sphtp_client.simulation.observables import observe
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import state_sha256
from sphtp_client.watch.events import SlabState, WholeState
from sphtp_client.watch.view import MOST_STEPS, SimulationView, StepAssembly, published_slab_of
from sphtp_client.watch.watcher import StopCondition
from tests.reach import reach


def test_a_peer_that_publishes_its_slab_is_part_of_a_run(make_peer):
    published, other = published_slab_of(make_peer(1)), published_slab_of(make_peer(2))
    assert published is not None
    assert other is not None
    assert (published.slab, other.slab) == (1, 2)
    assert published.run == other.run
    assert published.run.slabs == 3


@pytest.mark.parametrize("data", [{"scenario": "other"}, {"run": "other"}])
def test_another_scenario_or_name_is_another_run(make_peer, data):
    published, other = published_slab_of(make_peer(1)), published_slab_of(make_peer(1, data=data))
    assert published is not None
    assert other is not None
    assert published.run != other.run


@pytest.mark.parametrize(
    "data",
    [
        {"slab": 3},
        {"slab": -1},
        {"slab": "1"},
        {"slab": True},
        {"slabs": 0},
        {"steps": -1},
        {"scenario": "x" * 65},
        {"scenario": None},
        {"run": 7},
    ],
)
def test_who_talks_nonsense_is_no_part(make_peer, data):
    assert published_slab_of(make_peer(1, data=data)) is None


def test_who_says_nothing_or_publishes_nothing_is_no_part(make_peer):
    peer = make_peer(1)
    assert published_slab_of(peer) is not None
    assert published_slab_of(replace(peer, packed=b"")) is None
    assert published_slab_of(replace(peer, packed=msgpack.packb(["slab"]))) is None
    assert published_slab_of(replace(peer, topics=())) is None
    assert published_slab_of(replace(peer, topics=("slab/2",))) is None


def test_the_last_slab_of_a_step_makes_it_whole(make_frame):
    gathering = StepAssembly(3)
    frames = [make_frame(slab, 8) for slab in range(3)]
    assert gathering.add(2, frames[2]) is None
    assert gathering.add(0, frames[0]) is None
    assert gathering.add(1, frames[1]) == tuple(frames)


def test_slabs_that_are_not_equally_far_meet_at_the_steps_they_share(make_frame):
    gathering = StepAssembly(2)
    for step in (4, 8, 12):
        assert gathering.add(0, make_frame(0, step)) is None
    assert gathering.add(1, make_frame(1, 6)) is None
    whole = gathering.add(1, make_frame(1, 8))
    assert whole is not None
    assert [frame.step for frame in whole] == [8, 8]
    assert gathering.add(1, make_frame(1, 4)) is None, "what is past is of no use"
    assert gathering.add(1, make_frame(1, 12)) is not None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200)), max_size=200))
def test_no_more_is_kept_than_a_few_steps(pairs):
    gathering = StepAssembly(4)  # one slab never comes
    for slab, step in pairs:
        frame = Step(step)
        assert gathering.add(slab, frame) is None  # type: ignore[arg-type]
        kept = {it.step for it in reach(gathering) if isinstance(it, Step)}
        assert len(kept) <= MOST_STEPS


class Step:
    def __init__(self, step: int) -> None:
        self.step = step


@pytest.fixture
def view(run):
    view = SimulationView(run)
    for slab in range(3):
        view.expect(slab)
    return view


def take(view, make_frame, slab, step, **more):
    return view.take(float(step), slab, make_frame(slab, step, **more))


def test_a_state_is_told_with_its_digest(view, scenario, make_frame):
    (state,) = take(view, make_frame, 1, 8, skipped=2)
    spheres = Slab(scenario, 1, 3).spheres
    assert isinstance(state, SlabState)
    assert (state.slab, state.step, state.spheres) == (1, 8, len(spheres))
    assert (state.sha256, state.skipped) == (state_sha256(spheres), 2)


def test_all_slabs_of_one_step_make_a_whole(view, scenario, make_frame):
    for slab in (2, 0):
        assert len(take(view, make_frame, slab, 8)) == 1
    _, whole = take(view, make_frame, 1, 8)
    assert isinstance(whole, WholeState)
    alone = Slab(scenario).spheres
    seen = observe(alone, scenario)
    assert (whole.step, whole.spheres) == (8, 60)
    assert whole.state_sha256 == state_sha256(alone)
    assert whole.kinetic == pytest.approx(seen.kinetic)
    assert whole.momentum == pytest.approx(seen.momentum)
    assert view.whole is whole


def test_lag_is_told_in_steps_behind_the_newest(view, make_frame):
    take(view, make_frame, 0, 16)
    (state,) = take(view, make_frame, 1, 12)
    assert isinstance(state, SlabState)
    assert state.lag == 4
    assert [view.lag_of(slab) for slab in range(3)] == [0, 4, 0]


def test_a_loss_is_told_and_counted(view, make_frame):
    take(view, make_frame, 0, 4)
    lost = view.lose(0, Loss(5, 7, LossReason.WINDOW))
    assert lost is not None
    assert (lost.slab, lost.first, lost.last, lost.reason) == (0, 5, 7, "window")
    assert "transmission window" in lost.text
    assert view.losses == view.summary("seen").losses == 1


def test_a_past_that_newer_frames_replaced_is_no_loss(view, make_frame):
    assert view.lose(0, Loss(1, 3, LossReason.GONE)) is None
    assert view.lose(0, Loss(4, 4, LossReason.TIMEOUT)) is not None
    take(view, make_frame, 0, 4)
    assert view.lose(0, Loss(5, 5, LossReason.GONE)) is not None


def test_who_joins_again_is_told_nothing_twice_and_misses_no_past(view, published, make_frame):
    take(view, make_frame, published.slab, 4)
    assert view.join(published, 9).id == 9
    assert view.lose(published.slab, Loss(1, 3, LossReason.GONE)) is None
    assert take(view, make_frame, published.slab, 4) == []
    assert len(take(view, make_frame, published.slab, 8)) == 1
    assert view.lose(published.slab, Loss(5, 5, LossReason.GONE)) is not None
    assert view.summary("seen").frames == 2


def test_it_is_over_when_no_slab_is_watched_and_finished_with_the_last_step(view, make_frame):
    for slab in range(3):
        assert not view.is_over
        take(view, make_frame, slab, 29)
        assert view.end(slab, "why").step == 29
    assert view.is_over
    assert not view.is_finished
    take(view, make_frame, 2, 30)
    assert view.is_finished


def test_a_scene_in_which_nothing_was_seen_is_neither(run):
    view = SimulationView(run)
    assert not view.is_over
    assert not view.is_finished
    assert not view.is_complete
    summary = view.summary("stopped")
    assert (summary.outcome, summary.step, summary.frames) == ("stopped", None, 0)


def test_once_wants_every_slab_and_steps_count_from_the_first(view, make_frame):
    once, ten, endless = (
        StopCondition(once=True),
        StopCondition(steps=10),
        StopCondition(seconds=1.0),
    )
    take(view, make_frame, 0, 4)
    take(view, make_frame, 1, 14)
    assert not once.is_reached(view)
    take(view, make_frame, 2, 14)
    assert once.is_reached(view)
    assert not ten.is_reached(view)
    take(view, make_frame, 0, 14)
    assert ten.is_reached(view)
    assert not endless.is_reached(view)
