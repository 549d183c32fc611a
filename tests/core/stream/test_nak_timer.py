"""The timers of gaps: each rings once, of those that are due the lowest first."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.loss_map import Gap, GapState
from sphtp.core.stream.nak import NakTimer
from tests.profiles import brisk

gaps = st.integers(0, 9)
steps = st.one_of(
    st.tuples(st.just("set"), gaps, st.floats(0, 10)),
    st.tuples(st.just("stop"), gaps, st.none()),
    st.tuples(st.just("take"), st.none(), st.floats(0, 10)),
)


@brisk
@given(st.lists(steps, max_size=60))
def test_it_is_as_good_as_looking_at_all(script: list[tuple[str, int, float]]) -> None:
    timer, model = NakTimer(), dict[int, float]()
    all_gaps = [Gap(number, number, 0.0, GapState.WAIT_FIRST) for number in range(10)]
    now = 0.0
    for what, number, time in script:
        if what == "set":
            timer.set(all_gaps[number], now + time)
            model[number] = now + time
        elif what == "stop":
            timer.stop(all_gaps[number])
            model.pop(number, None)
        else:
            now += time
            rung = min((it for it, due in model.items() if due <= now), default=None)
            taken = timer.take(now)
            assert (taken and taken.first) == rung
            model.pop(-1 if rung is None else rung, None)
        due, soonest = timer.next_due(), min(model.values(), default=None)
        assert due == soonest or (due is not None and soonest is not None and soonest <= due <= now)
        assert {it.first for it in all_gaps if it in timer} == set(model)
