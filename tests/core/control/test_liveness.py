"""Who is suspected and given up, and who is not because this process slept."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.counters import Counters
from sphtp.core.control.graves import Graves
from sphtp.core.control.liveness import Liveness, SleepWatch
from sphtp.core.control.vocabulary import Reason

EXPIRY = 10.0


def test_suspicion_comes_at_half_the_expiry_and_the_end_at_all_of_it() -> None:
    liveness = Liveness(EXPIRY)
    liveness.refresh(0.0, 7)
    assert liveness.next_due() == 5.0
    assert liveness.take_suspects(4.9) == []
    assert liveness.take_suspects(5.0) == [7]
    assert liveness.take_suspects(5.1) == []
    assert liveness.next_due() == 10.0
    assert liveness.take_expired(9.9) == []
    assert liveness.take_expired(10.0) == [7]
    assert 7 not in liveness
    assert liveness.next_due() is None


def test_hearing_a_suspect_ends_the_suspicion() -> None:
    liveness = Liveness(EXPIRY)
    liveness.refresh(0.0, 7)
    assert liveness.take_suspects(6.0) == [7]
    assert list(liveness.suspects) == [7]
    liveness.refresh(7.0, 7)
    assert list(liveness.suspects) == []
    assert liveness.next_due() == 12.0


def test_forgiving_shifts_every_deadline_once() -> None:
    liveness = Liveness(EXPIRY)
    liveness.refresh(0.0, 7)
    assert liveness.take_suspects(5.0) == [7]
    liveness.forgive(100.0)
    assert liveness.take_expired(105.0) == []
    assert liveness.take_expired(110.0) == [7]
    liveness.refresh(110.0, 9)
    assert liveness.next_due() == 115.0


class Model:
    """The obvious way to do it: look at everybody every time."""

    def __init__(self) -> None:
        self.heard: dict[int, float] = {}
        self.suspects: set[int] = set()

    def refresh(self, now: float, number: int) -> None:
        self.heard[number] = now
        self.suspects.discard(number)

    def suspect(self, now: float) -> set[int]:
        due = {n for n, heard in self.heard.items() if heard + EXPIRY / 2 <= now}
        new, self.suspects = due - self.suspects, self.suspects | due
        return new

    def expire(self, now: float) -> set[int]:
        due = {n for n, heard in self.heard.items() if heard + EXPIRY <= now}
        for number in due:
            del self.heard[number]
        self.suspects -= due
        return due


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(1, 5)))))
def test_the_queues_agree_with_looking_at_everybody(steps: list[tuple[int, int | None]]) -> None:
    liveness, model, now = Liveness(EXPIRY), Model(), 0.0
    for seconds, number in steps:
        now += seconds
        if number is None:
            assert set(liveness.take_suspects(now)) == model.suspect(now)
            assert set(liveness.take_expired(now)) == model.expire(now)
        else:
            liveness.refresh(now, number)
            model.refresh(now, number)
        assert len(liveness) == len(model.heard)


def test_a_missed_timeout_is_lag_but_a_busy_process_is_awake() -> None:
    counters = Counters()
    watch = SleepWatch(1.0, counters)
    assert watch.overslept(0.0, None) == 0.0
    assert watch.overslept(1.0, 1.0) == 0.0
    assert watch.overslept(62.0, 2.0) == 60.0
    assert watch.overslept(62.5, 2.0) == 0.0
    assert watch.overslept(63.4, 2.0) == 0.0
    assert counters.as_dict() == {"overslept": 1}


def test_graves_keep_an_id_for_one_period_and_for_one_holder() -> None:
    graves = Graves(EXPIRY, capacity=2)
    graves.put(0.0, 7, 5, Reason.EXPIRED)
    grave = graves.find(9.9, 7)
    assert grave is not None
    assert grave.admits(5)
    assert not grave.admits(6)
    assert graves.find(10.0, 7) is None
    graves.put(10.0, 7, 5, Reason.LEFT)
    left = graves.find(10.0, 7)
    assert left is not None
    assert not left.admits(5)
    for number in (9, 11):
        graves.put(11.0, number, 5, None)
    assert len(graves) == 2
    assert graves.find(11.0, 7) is None
