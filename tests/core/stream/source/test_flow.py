"""How far a source may be ahead, of whom, and for how long."""

from sphtp.core.stream.bodies import Status
from sphtp.core.stream.source.flow import Flow

REACH, SIZE, PATIENCE = 100, 1000, 1.0
ROOMY = REACH * SIZE


def flow() -> Flow:
    return Flow(REACH * SIZE, SIZE, PATIENCE)


def flow_is_free(flowing: Flow) -> bool:
    return flowing.limit is None and flowing.due is None


def heard(lead: int, room: int = ROOMY) -> Status:
    return Status(lead, room)


def test_the_slowest_has_the_limit() -> None:
    flowing = flow()
    assert flowing.limit is None, "nobody is waited for"
    flowing.join(0.0, 1, 10)
    flowing.join(0.0, 2, 30)
    assert flowing.limit == 10 + REACH // 4, "nothing is known of either"
    flowing.hear(1, heard(60), 100)
    assert flowing.limit == 30 + REACH // 4
    flowing.hear(2, heard(30), 100)
    assert flowing.limit == 130
    flowing.hear(2, heard(90, room=20 * SIZE), 100)
    assert flowing.limit == 130, "less room than it told before takes nothing back"
    flowing.leave(2)
    assert flowing.limit == 160


def test_without_a_window_nobody_is_waited_for() -> None:
    flowing = Flow(0, SIZE, PATIENCE)
    flowing.join(0.0, 1, 10)
    assert flowing.limit is None
    assert flowing.due is None


def test_who_says_nothing_after_joining_is_left_behind_in_time() -> None:
    flowing = flow()
    flowing.join(5.0, 1, 0)
    assert flowing.due == 5.0 + PATIENCE
    flowing.expire(5.9)
    assert flowing.limit == REACH // 4
    flowing.expire(6.0)
    assert flowing.left_behind == 1
    assert flow_is_free(flowing)


def test_a_word_starts_no_clock_as_long_as_the_source_is_near() -> None:
    flowing = flow()
    flowing.join(0.0, 1, 0)
    flowing.hear(1, heard(1), 1)
    flowing.go_on(0.5, 50)
    assert flowing.due is None
    flowing.go_on(0.7, 51)
    assert flowing.due == 0.7 + PATIENCE
    flowing.go_on(0.9, 60)
    assert flowing.due == 0.7 + PATIENCE, "the clock runs"
    flowing.hear(1, heard(40), 60)
    assert flowing.due is None


def test_one_that_falls_silent_is_left_behind_before_anybody_waited_for_it() -> None:
    flowing = flow()
    for receiver in (1, 2):
        flowing.join(0.0, receiver, 0)
        flowing.hear(receiver, heard(0), 0)
    for step in range(1, 200):
        now, lead = step * 0.02, step
        assert flowing.limit is None or lead <= flowing.limit, "the source never waits"
        flowing.go_on(now, lead)
        flowing.hear(1, heard(lead), lead)
        flowing.expire(now)
    assert flowing.left_behind == 1
    assert flowing.limit == 199 + REACH


def test_who_is_held_by_too_little_room_has_as_much_patience() -> None:
    flowing = flow()
    flowing.join(0.0, 1, 0)
    flowing.hear(1, heard(0), 0)
    flowing.hear(1, heard(95, room=10 * SIZE), 95)
    flowing.go_on(1.0, 105)
    assert flowing.due is None
    flowing.hold(1.0)
    assert flowing.due == 1.0 + PATIENCE


def test_patience_ends_when_its_time_has_come_whatever_floats_do() -> None:
    """What rings has to find something to do, or time stands still."""
    flowing = flow()
    for tick in range(1000):
        flowing.join(tick * 0.1, tick, 0)
        due = flowing.due
        assert due is not None
        flowing.expire(due)
        assert flowing.due is None
        flowing.leave(tick)


def test_who_was_left_behind_is_followed_again_when_it_keeps_up() -> None:
    flowing = flow()
    flowing.join(0.0, 1, 0)
    flowing.expire(1.0)
    flowing.hear(1, heard(10), 500)
    assert flowing.limit is None, "it is too far behind to be waited for"
    flowing.hear(1, heard(450), 500)
    assert flowing.limit == 450 + REACH


def test_a_source_that_is_done_waits_for_nobody_whoever_joins() -> None:
    flowing = flow()
    flowing.join(0.0, 1, 0)
    flowing.close()
    flowing.join(0.5, 2, 0)
    flowing.go_on(0.5, 90)
    flowing.hold(0.5)
    assert flow_is_free(flowing)
    assert flowing.left_behind == 0
