"""Many timers in one heap, against a dict as the model."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.agenda import SLACK, Agenda

keys = st.integers(0, 5)
times = st.integers(0, 20).map(float)
commands = st.one_of(
    st.tuples(st.just("set"), keys, times | st.none()),
    st.tuples(st.just("take"), times, st.none()),
)


@given(st.lists(commands, max_size=200))
def test_against_a_dict(script: list[tuple[str, float, float | None]]) -> None:
    agenda, model = Agenda(), dict[int, float]()
    for command, number, when in script:
        if command == "take":
            due = sorted((when, key) for key, when in model.items() if when <= number)
            assert list(agenda.take_due(number)) == [key for _, key in due]
            model = {key: when for key, when in model.items() if when > number}
            continue
        agenda.set(int(number), when)
        model.pop(int(number), None)
        if when is not None:
            model[int(number)] = when
        assert agenda.next() == min(model.values(), default=None)


def test_setting_again_while_taking_is_possible() -> None:
    agenda = Agenda()
    agenda.set(1, 1.0)
    agenda.set(2, 1.0)
    taken = []
    for key in agenda.take_due(1.0):
        taken.append(key)
        agenda.set(key, 5.0)
    assert taken == [1, 2]
    assert agenda.next() == 5.0


def test_moving_a_key_for_ever_takes_no_memory() -> None:
    agenda = Agenda()
    agenda.set(1, 0.0)
    for step in range(10_000):
        agenda.set(2, 100.0 + step)
        assert len(agenda._heap) <= SLACK + 4
    assert (agenda.next(), list(agenda.take_due(1e9))) == (0.0, [1, 2])
