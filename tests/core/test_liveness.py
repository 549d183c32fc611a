"""Who is suspected and given up, and who is not because this process slept."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.registry import ReservedIds
from sphtp.core.control.vocabulary import Reason
from sphtp.core.timers import Liveness

EXPIRY = 10.0
PATIENCE = 3.0


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
    liveness.postpone_expiries(100.0)
    assert liveness.take_expired(105.0) == []
    assert liveness.take_expired(110.0) == [7]
    liveness.refresh(110.0, 9)
    assert liveness.next_due() == 115.0


class Model:
    """The obvious way to do it: look at everybody every time."""

    def __init__(self) -> None:
        self.heard: dict[int, float] = {}
        self.suspects: set[int] = set()
        self.doubted: dict[int, float] = {}

    def refresh(self, now: float, number: int) -> None:
        self.heard[number] = now
        self.suspects.discard(number)
        self.doubted.pop(number, None)

    def doubt(self, now: float, number: int) -> bool:
        heard = self.heard.get(number)
        if heard is None or number in self.doubted or heard + EXPIRY <= now + PATIENCE:
            return False
        self.doubted[number] = now + PATIENCE
        is_new = number not in self.suspects
        self.suspects.add(number)
        return is_new

    def suspect(self, now: float) -> set[int]:
        due = {n for n, heard in self.heard.items() if heard + EXPIRY / 2 <= now}
        new, self.suspects = due - self.suspects, self.suspects | due
        return new

    def expire(self, now: float) -> set[int]:
        due = {n for n, heard in self.heard.items() if heard + EXPIRY <= now}
        due |= {n for n, end in self.doubted.items() if end <= now}
        for number in due:
            del self.heard[number]
            self.doubted.pop(number, None)
        self.suspects -= due
        return due


STEP = st.one_of(st.none(), st.tuples(st.booleans(), st.integers(1, 5)))


@given(st.lists(st.tuples(st.integers(0, 4), STEP)))
def test_the_queues_agree_with_looking_at_everybody(
    steps: list[tuple[int, tuple[bool, int] | None]],
) -> None:
    """What must hold: of hearing, doubting and the passing of time, the queues make the same."""
    liveness, model, now = Liveness(EXPIRY), Model(), 0.0
    for seconds, step in steps:
        now += seconds
        if step is None:
            assert set(liveness.take_suspects(now)) == model.suspect(now)
            assert set(liveness.take_expired(now)) == model.expire(now)
            assert set(liveness.suspects) == model.suspects
        elif step[0]:
            assert liveness.doubt(now, step[1], PATIENCE) == model.doubt(now, step[1])
        else:
            liveness.refresh(now, step[1])
            model.refresh(now, step[1])
        assert len(liveness) == len(model.heard)


def test_graves_keep_an_id_for_one_period_and_for_one_holder() -> None:
    graves = ReservedIds(EXPIRY, capacity=2)
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
