"""Timers are as good as looking at all of them each time, and take no memory for what moved."""

import tracemalloc
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.timers import ExpiringDict, TimerQueue, earliest
from tests.profiles import brisk

keys = st.integers(0, 5)
times = st.integers(0, 20).map(float)


@brisk
@given(st.lists(st.none() | times))
def test_the_earliest_of_any_number_of_times(some: list[float | None]) -> None:
    assert earliest(*some) == min((time for time in some if time is not None), default=None)


class NaiveQueue:
    """Each key's time, and when it was set: the first is looked for among all."""

    def __init__(self) -> None:
        self.dues: dict[int, tuple[float, int]] = {}
        self.order = count()

    def set(self, key: int, when: float | None) -> None:
        if when is None:
            self.dues.pop(key, None)
        elif key not in self.dues or self.dues[key][0] != when:
            self.dues[key] = when, next(self.order)

    def due(self, now: float) -> list[int]:
        places = sorted((place, key) for key, place in self.dues.items())
        return [key for place, key in places if place[0] <= now]


queue_steps = st.one_of(
    st.tuples(st.just("set"), keys, times | st.none()),
    st.tuples(st.just("take"), keys, times),
    st.tuples(st.just("pop"), keys, st.none()),
)


@brisk
@given(st.lists(queue_steps, max_size=200))
def test_a_timer_queue_against_looking_at_all(script: list[tuple[str, int, float | None]]) -> None:
    queue, model = TimerQueue[int](), NaiveQueue()
    for what, key, when in script:
        if what == "take" and when is not None:
            due = model.due(when)
            assert list(queue.take_due(when)) == due
            for taken in due:
                model.set(taken, None)
        elif what == "pop":
            first = next(iter(model.due(100.0)), None)
            assert queue.first() == first
            assert queue.pop() == first
            model.dues.pop(-1 if first is None else first, None)
        else:
            queue.set(key, when)
            model.set(key, when)
        assert queue.next_due() == min((due for due, _ in model.dues.values()), default=None)
        assert {key for key in range(6) if key in queue} == set(model.dues)
        assert len(queue) == len(model.dues)


def test_setting_again_while_taking_is_possible() -> None:
    queue, taken = TimerQueue[str](), list[str]()
    queue.set("a", 1.0)
    queue.set("b", 1.0)
    for key in queue.take_due(1.0):
        taken.append(key)
        queue.set(key, 1.0 if taken == ["a"] else 5.0)
    assert taken == ["a", "b", "a"]
    assert queue.next_due() == 5.0


def test_keys_need_no_order() -> None:
    queue = TimerQueue[object]()
    for _ in range(3):
        queue.set(object(), 1.0)
    assert len(list(queue.take_due(1.0))) == 3


def test_moving_times_for_ever_takes_no_memory() -> None:
    queue = TimerQueue[int]()
    queue.set(1, 0.0)
    tracemalloc.start()
    for step in range(10_000):
        queue.set(2, 100.0 + step)
        queue.set(3, 20_000.0 - step)
        queue.set(4 + step, 100.0)
        queue.set(4 + step, None)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 64_000, "as a hundred places, not as ten thousand"
    assert list(queue.take_due(1e9)) == [1, 3, 2]


class Compared(float):
    """A time that counts how often any is compared with another."""

    number = 0

    def __lt__(self, other: float) -> bool:
        Compared.number += 1
        return float(self) < float(other)


def test_what_an_earlier_time_left_behind_is_looked_at_once() -> None:
    queue = TimerQueue[int]()
    for step in range(1000):
        # An ack is due soon, and has left; then there is only what comes much later.
        queue.set(1, Compared(step + 5))
        queue.next_due()
        queue.set(1, Compared(step + 500))
        assert queue.next_due() == step + 500
    assert Compared.number < 20 * 1000, "not a heap of what is left over, each time"


PERIOD = 3.0
CAPACITY = 3

dict_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys),
        st.tuples(st.just("pop"), keys),
        st.tuples(st.just("wait"), st.integers(0, 4)),
        st.tuples(st.just("postpone"), st.integers(0, 4)),
        st.tuples(st.just("take"), st.just(0)),
    ),
    max_size=100,
)


@brisk
@given(dict_steps)
def test_an_expiring_dict_against_a_list_of_ends(script: list[tuple[str, int]]) -> None:
    expiring, model, now = ExpiringDict[int, float](CAPACITY), dict[int, list[float]](), 0.0
    for what, number in script:
        if what == "put":
            expiring.put(number, now, now + PERIOD)
            model.pop(number, None)
            if len(model) == CAPACITY:
                # Of those that end first, the one that was put first.
                del model[min(model, key=lambda key: model[key][1])]
            model[number] = [now, now + PERIOD]
        elif what == "pop":
            gone = model.pop(number, None)
            assert expiring.pop(number) == (None if gone is None else gone[0])
        elif what == "take":
            over = [(key, due) for key, (_, due) in model.items() if due <= now]
            assert expiring.take_expired(now) == over
            for key, _ in over:
                del model[key]
        elif what == "postpone":
            expiring.postpone(number)
            for entry in model.values():
                entry[1] += number
            now += number
        else:
            now += number
        assert list(expiring) == list(model)
        assert len(expiring) == len(model)
        for key in range(6):
            at, due = model.get(key, (None, None))
            assert (expiring.get(key), expiring.due(key), key in expiring) == (
                at,
                due,
                key in model,
            )
        assert expiring.next_due() == min((due for _, due in model.values()), default=None)


def test_what_has_no_end_goes_only_for_want_of_room() -> None:
    bounded = ExpiringDict[int, str](2)
    for key in (1, 2, 1, 3):
        bounded.put(key, "here")
    assert list(bounded) == [1, 3], "2 was put longest ago"
    assert bounded.take_expired(1e300) == []
