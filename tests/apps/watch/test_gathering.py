"""Frames of the same step find each other, whatever order the slabs' streams come in."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp_client.watch.gathering import MOST_STEPS, Gathering
from tests.reach import reach


def test_the_last_slab_of_a_step_makes_it_whole(make_frame):
    gathering = Gathering(3)
    frames = [make_frame(slab, 8) for slab in range(3)]
    assert gathering.add(2, frames[2]) is None
    assert gathering.add(0, frames[0]) is None
    assert gathering.add(1, frames[1]) == tuple(frames)


def test_slabs_that_are_not_equally_far_meet_at_the_steps_they_share(make_frame):
    gathering = Gathering(2)
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
    gathering = Gathering(4)  # one slab never comes
    for slab, step in pairs:
        frame = Step(step)
        assert gathering.add(slab, frame) is None  # type: ignore[arg-type]
        kept = {it.step for it in reach(gathering) if isinstance(it, Step)}
        assert len(kept) <= MOST_STEPS


class Step:
    def __init__(self, step: int) -> None:
        self.step = step
