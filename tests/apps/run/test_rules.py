"""The rules of a run, in virtual time."""

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sphtp_client.run.rules import ENDED, Phase, ProgramRules, Restart, Rules, RunEnd, RunVerdict
from sphtp_client.run.run_file import MOST_PROGRAMS
from tests.cases import each


def rules_of(**programs: dict[str, Any]) -> Rules:
    return Rules({name: ProgramRules(**values) for name, values in programs.items()})


def after(*names: str) -> dict[str, Any]:
    return {"after": frozenset(names)}


def test_programs_start_when_those_before_them_are_ready_or_have_finished() -> None:
    rules = rules_of(
        server={"announces": True, "background": True},
        mesh=after("server"),
        solver={**after("server"), "after_end": frozenset({"mesh"})},
        viewer=after("solver"),
    )
    assert rules.poll_starts(0) == ["server"]
    assert rules.waits_for("solver") == ["server", "mesh"]
    rules.handle_ready("server")
    assert rules.poll_starts(1) == ["mesh"]
    assert rules.poll_starts(2) == []
    rules.handle_ended("mesh", 0, 3)
    # The solver is ready as soon as it starts, so the viewer starts with it.
    assert rules.poll_starts(3) == ["solver", "viewer"]
    assert [sorted(names) for names in rules.stop_order()] == [
        ["viewer"],
        ["solver"],
        ["mesh"],
        ["server"],
    ]
    assert rules.end is None
    rules.handle_ended("solver", 0, 4)
    rules.handle_ended("viewer", 0, 4)
    assert rules.end == RunEnd(RunVerdict.FINISHED)


@each(
    ("restart", "code", "phase"),
    [
        (Restart.NEVER, 0, Phase.FINISHED),
        (Restart.NEVER, 7, Phase.FAILED),
        (Restart.ON_FAILURE, 0, Phase.FINISHED),
        (Restart.ON_FAILURE, -9, Phase.BACKOFF),
        (Restart.ALWAYS, 0, Phase.BACKOFF),
        (Restart.ALWAYS, 7, Phase.BACKOFF),
    ],
)
def test_the_rule_decides_after_which_end_a_program_starts_again(
    restart: Restart, code: int, phase: Phase
) -> None:
    rules = rules_of(one={"restart": restart})
    rules.poll_starts(0)
    rules.handle_ended("one", code, 1)
    assert rules.states["one"].phase is phase
    assert (rules.next_alarm() == inf) == (phase is not Phase.BACKOFF)


def test_the_backoff_doubles_up_to_its_limit_and_restarts_have_one() -> None:
    rules = rules_of(
        one={"restart": Restart.ON_FAILURE, "max_restarts": 4, "backoff": 1.0, "backoff_max": 3.0}
    )
    now, pauses = 0.0, []
    while rules.poll_starts(now) == ["one"]:
        rules.handle_ended("one", 7, now + 0.5)
        if rules.end is None:
            pauses.append(rules.next_alarm() - now - 0.5)
            assert rules.poll_starts(rules.next_alarm() - 0.001) == []
            now = rules.next_alarm()
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    assert rules.end == RunEnd(RunVerdict.FAILED, "one")
    assert (rules.states["one"].restarts, rules.states["one"].code) == (4, 7)


def test_a_program_may_be_started_again_for_ever() -> None:
    rules = rules_of(one={"restart": Restart.ALWAYS, "max_restarts": 1_000_000, "backoff_max": 3.0})
    now = 0.0
    for _ in range(1100):
        assert rules.poll_starts(now) == ["one"]
        rules.handle_ended("one", 7, now)
        now = rules.next_alarm()
    assert rules.end is None


def test_a_program_that_ran_for_long_has_all_its_restarts_again() -> None:
    rules = rules_of(one={"restart": Restart.ON_FAILURE, "max_restarts": 1, "steady": 10.0})
    now = 0.0
    for _ in range(5):
        assert rules.poll_starts(now) == ["one"]
        rules.handle_ended("one", 1, now + 10.0)
        assert rules.next_alarm() == now + 11.0
        now = rules.next_alarm()
    rules.poll_starts(now)
    rules.handle_ended("one", 1, now + 9.0)
    assert rules.end == RunEnd(RunVerdict.FAILED, "one")
    assert rules.states["one"].restarts == 5


def test_a_failure_that_does_not_matter_ends_nothing_and_the_rest_decides() -> None:
    rules = rules_of(one={"essential": False}, two={})
    rules.poll_starts(0)
    rules.handle_ended("one", 1, 1)
    assert rules.end is None
    rules.handle_ended("two", 0, 2)
    assert rules.end == RunEnd(RunVerdict.FINISHED)


def test_the_end_is_that_of_the_first_failure() -> None:
    rules = rules_of(one={}, two={})
    rules.poll_starts(0)
    rules.handle_ended("two", 1, 1)
    rules.handle_ended("one", 1, 2)
    assert rules.end == RunEnd(RunVerdict.FAILED, "two")


def test_one_server_of_several_is_enough() -> None:
    both = {"background": True, "announces": True}
    rules = rules_of(
        first={**both, "stands_in": frozenset({"second"})},
        second={**both, "stands_in": frozenset({"first"})},
        worker=after("first", "second"),
    )
    rules.poll_starts(0)
    for name in ("first", "second"):
        rules.handle_ready(name)
    assert rules.poll_starts(1) == ["worker"]
    rules.handle_ended("first", -9, 2)
    assert rules.end is None
    rules.handle_ended("second", -9, 3)
    assert rules.end == RunEnd(RunVerdict.FAILED, "first")


def test_a_program_that_waits_in_vain_has_failed_and_the_cause_is_named_first() -> None:
    rules = rules_of(
        last=after("middle"),
        middle={**after("first"), "announces": True},
        first={"announces": True},
    )
    rules.poll_starts(0)
    rules.handle_ended("first", 0, 1)  # without ever being ready
    assert (rules.states["middle"].lost, rules.states["last"].lost) == ("first", "middle")
    assert rules.end == RunEnd(RunVerdict.FAILED, "middle")


def test_a_chain_may_be_as_long_as_a_file_may_have_programs() -> None:
    names = [f"p{number}" for number in range(MOST_PROGRAMS)]
    chain = Rules(
        {name: ProgramRules(**after(*names[at + 1 : at + 2])) for at, name in enumerate(names)}
    )
    assert chain.poll_starts(0) == names[::-1]
    chain = Rules(
        {
            name: ProgramRules(after_end=frozenset(names[at + 1 : at + 2]))
            for at, name in enumerate(names)
        }
    )
    assert chain.poll_starts(0) == names[-1:]
    chain.handle_ended(names[-1], 1, 1)
    assert chain.end == RunEnd(RunVerdict.FAILED, names[-1])


def test_a_run_without_anything_to_wait_for_does_not_end_by_itself() -> None:
    rules = rules_of(one={"background": True}, two={"background": True})
    rules.poll_starts(0)
    rules.handle_ended("one", 0, 1)
    assert rules.end is None
    assert rules.awaited() == []


@st.composite
def programs(draw: st.DrawFn) -> dict[str, ProgramRules]:
    found: dict[str, ProgramRules] = {}
    for name in "abcde"[: draw(st.integers(1, 5))]:
        earlier = st.frozensets(st.sampled_from([*found])) if found else st.just(frozenset())
        found[name] = ProgramRules(
            after=draw(earlier),
            after_end=draw(earlier),
            restart=draw(st.sampled_from(Restart)),
            max_restarts=draw(st.integers(0, 2)),
            announces=draw(st.booleans()),
            essential=draw(st.booleans()),
            background=draw(st.booleans()),
        )
    return found


@given(programs(), st.data())
def test_a_run_goes_on_until_it_ends(
    programs: dict[str, ProgramRules], data: st.DataObject
) -> None:
    """Whatever programs do, somebody runs or is about to, until all have ended for good."""
    rules, now = Rules(programs), 0.0
    for _ in range(60):
        for name in rules.poll_starts(now):
            assert not rules.waits_for(name)
        running = [name for name, it in rules.states.items() if it.phase is Phase.RUNNING]
        if rules.end is not None:
            break
        if not running:
            now = rules.next_alarm()
            if now == inf:
                assert all(it.phase in ENDED for it in rules.states.values())
                assert not rules.awaited()
                break
            continue
        name = data.draw(st.sampled_from(running))
        if not rules.states[name].is_ready and data.draw(st.booleans()):
            rules.handle_ready(name)
        else:
            rules.handle_ended(name, data.draw(st.sampled_from([0, 1])), now)
    for name, state in rules.states.items():
        assert state.in_a_row <= programs[name].max_restarts
    places = {name: n for n, names in enumerate(rules.stop_order()) for name in names}
    assert all(
        places[name] < places[other]
        for name, it in programs.items()
        for other in it.after | it.after_end
    )
