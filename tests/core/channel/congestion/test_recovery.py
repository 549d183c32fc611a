"""One reaction per round trip, and its undoing."""

from sphtp.core.channel.congestion.new_reno import RecoveryEpoch


def test_it_answers_for_what_left_before_it_began() -> None:
    recovery: RecoveryEpoch[str] = RecoveryEpoch()
    assert recovery.started < 0.0
    recovery.begin(2.0, "before")
    assert recovery.started == 2.0
    recovery.reset()
    assert recovery.started < 0.0


def test_all_must_come_back() -> None:
    recovery: RecoveryEpoch[str] = RecoveryEpoch()
    recovery.begin(2.0, "before")
    recovery.lost(300)
    recovery.lost(100)
    assert recovery.spurious(300) is None
    assert recovery.spurious(100) == "before"
    assert recovery.spurious(100) is None


def test_a_new_reaction_answers_for_its_own_losses() -> None:
    recovery: RecoveryEpoch[str] = RecoveryEpoch()
    recovery.begin(2.0, "first")
    recovery.lost(300)
    recovery.begin(3.0, "second")
    recovery.lost(100)
    assert recovery.spurious(100) == "second"
