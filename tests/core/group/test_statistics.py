"""The times of steps, and the waiting in them."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.group.steps import BOUNDS, StepStatistics

STEPS = st.lists(
    st.tuples(st.floats(0, 20), st.floats(0, 20), st.sampled_from([None, "ada", "bob"])),
    max_size=30,
)


@given(STEPS)
def test_the_waits_by_member_are_all_the_waiting(
    steps: list[tuple[float, float, str | None]],
) -> None:
    statistics, now = StepStatistics[str](), 0.0
    for computed, waited, last in steps:
        statistics.add(now + computed, now + computed + waited, last)
        now += computed + waited
    waited_for = [(waited, last) for _, waited, last in steps if last is not None]
    for member in ("ada", "bob"):
        waits = statistics.waits.get(member)
        times = [waited for waited, last in waited_for if last == member]
        assert (waits is None) == (not times)
        if waits is not None:
            assert abs(waits.total - sum(times)) < 1e-6
            assert sum(waits.counts) == len(times)
    assert sum(statistics.exchanges.counts) == len(steps)
    assert sum(statistics.steps.counts) == max(0, len(steps) - 1)


def test_a_time_is_counted_at_the_first_bound_that_it_does_not_exceed() -> None:
    statistics = StepStatistics[str]()
    for number, bound in enumerate(BOUNDS):
        statistics.add(0.0, bound, "ada")
        statistics.add(0.0, bound * 1.001, "bob")
        assert statistics.waits["ada"].counts[number] == 1
        assert statistics.waits["bob"].counts[number + 1] == 1


def test_those_who_are_gone_are_forgotten() -> None:
    statistics = StepStatistics[str]()
    for member in ("ada", "bob"):
        statistics.add(0.0, 1.0, member)
    statistics.keep_only(["bob", "eve"])
    assert list(statistics.waits) == ["bob"]
