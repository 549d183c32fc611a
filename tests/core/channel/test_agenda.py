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
            taken = list(agenda.take_due(number))
            assert len(taken) == len(set(taken))
            assert {key for key, when in model.items() if when <= number} <= set(taken)
            # Those whose time has moved away meanwhile are set anew by who took them.
            model = {key: when for key, when in model.items() if when > number}
            for key in taken:
                agenda.set(key, model.get(key))
            continue
        agenda.set(int(number), when)
        model.pop(int(number), None)
        if when is not None:
            model[int(number)] = when
        due = agenda.next()
        assert (due is None) == (not model)
        assert due is None or due <= min(model.values())


def test_a_time_that_moves_nearer_counts_at_once_and_one_that_moves_away_later() -> None:
    agenda = Agenda()
    agenda.set(1, 5.0)
    agenda.set(1, 3.0)
    assert agenda.next() == 3.0
    agenda.set(1, 9.0)
    assert list(agenda.take_due(2.0)) == []
    assert list(agenda.take_due(3.0)) == [1], "whoever takes it looks, and sets it anew"
    agenda.set(1, 9.0)
    assert agenda.next() == 9.0


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
