"""Tables that compile are complete, runners have a rule for what these refuse, alarms ring once."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.fsm import Alarms, Machine, Name, Row, Runner, TableError, diagram, table
from sphtp.errors import StateError
from tests.cases import each


class Door(Name):
    """States."""

    OPEN = 1
    SHUT = 2
    GONE = 3


class Hand(Name):
    """Events."""

    PUSH = 1
    PULL = 2
    BURN = 3


class Sound(Name):
    """Actions."""

    CREAK = 1
    SLAM = 2


DoorRow = Row[Door, Hand, Sound]

SHUTS = Row(Door.OPEN, Hand.PUSH, Door.SHUT, (Sound.CREAK, Sound.SLAM), "a push shuts it")
OPENS = Row(Door.SHUT, Hand.PULL, Door.OPEN, (Sound.CREAK,), "a pull opens it")
BURNS: DoorRow = Row(Door.SHUT, Hand.BURN, Door.GONE, (), "wood burns")
ROWS = (SHUTS, OPENS, BURNS)
REFUSED = {
    Door.OPEN: frozenset({Hand.PULL, Hand.BURN}),
    Door.SHUT: frozenset({Hand.PUSH}),
    Door.GONE: frozenset(Hand),
}
FINAL = frozenset({Door.GONE})


def door(
    rows: Iterable[DoorRow] = ROWS,
    refused: Mapping[Door, frozenset[Hand]] = REFUSED,
    final: frozenset[Door] = FINAL,
) -> Machine[Door, Hand, Sound]:
    return Machine("door", Door.OPEN, rows, events=Hand, final=final, refused=refused)


def without(state: Door, *events: Hand) -> Mapping[Door, frozenset[Hand]]:
    return {**REFUSED, state: REFUSED[state] - set(events)}


def test_a_row_is_found_by_state_and_event() -> None:
    machine = door()
    assert machine.find(Door.OPEN, Hand.PUSH) is SHUTS
    assert machine.find(Door.SHUT, Hand.PULL) is OPENS
    assert machine.find(Door.SHUT, Hand.BURN) is BURNS


def test_what_is_refused_has_no_row() -> None:
    machine = door()
    refused = {(state, event) for state in Door for event in REFUSED[state]}
    assert {(s, e) for s in Door for e in Hand if machine.find(s, e) is None} == refused


def test_a_machine_names_its_states_and_actions() -> None:
    machine = door()
    assert machine.name == "door"
    assert machine.initial is Door.OPEN
    assert machine.states == (Door.OPEN, Door.SHUT, Door.GONE)
    assert machine.final == FINAL
    assert machine.actions == {Sound.CREAK, Sound.SLAM}


def test_rows_may_come_from_a_generator_once() -> None:
    assert door(rows=(row for row in ROWS)).rows == ROWS


def test_a_compiled_table_does_not_follow_its_source() -> None:
    refused = dict(REFUSED)
    machine = door(refused=refused)
    refused[Door.OPEN] = frozenset()
    assert machine.refused[Door.OPEN] == {Hand.PULL, Hand.BURN}


def test_duplicate_rows_are_refused() -> None:
    again: DoorRow = Row(Door.OPEN, Hand.PUSH, Door.OPEN, (), "or not")
    with pytest.raises(TableError, match="two rows for PUSH in OPEN"):
        door(rows=(*ROWS, again))


def test_an_unreachable_state_is_refused() -> None:
    with pytest.raises(TableError, match=r"^door: GONE is unreachable$"):
        door(rows=(SHUTS, OPENS), refused={**REFUSED, Door.SHUT: frozenset({Hand.PUSH, Hand.BURN})})


def test_a_dead_end_is_refused() -> None:
    with pytest.raises(TableError, match=r"^door: GONE is a dead end$"):
        door(final=frozenset())


def test_a_loop_is_no_way_out() -> None:
    smoulders: DoorRow = Row(Door.GONE, Hand.BURN, Door.GONE, (), "ashes glow")
    with pytest.raises(TableError, match=r"^door: GONE is a dead end$"):
        door(rows=(*ROWS, smoulders), refused=without(Door.GONE, Hand.BURN), final=frozenset())


def test_a_final_state_may_loop() -> None:
    smoulders: DoorRow = Row(Door.GONE, Hand.BURN, Door.GONE, (), "ashes glow")
    machine = door(rows=(*ROWS, smoulders), refused=without(Door.GONE, Hand.BURN))
    assert machine.find(Door.GONE, Hand.BURN) is smoulders


def test_a_final_state_with_a_way_out_is_refused() -> None:
    with pytest.raises(TableError, match=r"^door: SHUT is final and has a way out$"):
        door(final=frozenset({Door.GONE, Door.SHUT}))


def test_an_undecided_pair_is_refused() -> None:
    with pytest.raises(TableError, match="OPEN neither has a row for BURN nor refuses it"):
        door(refused=without(Door.OPEN, Hand.BURN))


def test_a_state_left_out_of_the_refusals_is_undecided() -> None:
    refused: dict[Door, frozenset[Hand]] = {
        state: REFUSED[state] for state in (Door.SHUT, Door.GONE)
    }
    with pytest.raises(TableError, match=r"OPEN .* PULL .*; OPEN .* BURN"):
        door(refused=refused)


def test_a_pair_decided_twice_is_refused() -> None:
    with pytest.raises(TableError, match="OPEN both has a row for PUSH and refuses it"):
        door(refused={**REFUSED, Door.OPEN: frozenset(Hand)})


def test_one_error_names_every_problem() -> None:
    with pytest.raises(TableError) as caught:
        door(rows=(), refused={}, final=frozenset())
    problems = str(caught.value).removeprefix("door: ").split("; ")
    assert len(problems) == len(Door) - 1 + len(Door) + len(Door) * len(Hand)


decisions = st.one_of(st.none(), st.sampled_from(Door))


@given(
    st.fixed_dictionaries({(state, event): decisions for state in Door for event in Hand}),
    st.frozensets(st.sampled_from(Door)),
)
def test_exactly_the_sound_tables_compile(
    targets: dict[tuple[Door, Hand], Door | None], final: frozenset[Door]
) -> None:
    """Every pair leads somewhere or is refused; an oracle says which tables are sound."""
    rows: list[DoorRow] = [
        Row(s, e, to, (), "drawn") for (s, e), to in targets.items() if to is not None
    ]
    refused = {s: frozenset(e for e in Hand if targets[s, e] is None) for s in Door}
    if sound(targets, final):
        machine = door(rows, refused, final)
        for (state, event), to in targets.items():
            row = machine.find(state, event)
            assert (row.to if row else None) is to
    else:
        with pytest.raises(TableError, match=r"^door: "):
            door(rows, refused, final)


def sound(targets: dict[tuple[Door, Hand], Door | None], final: frozenset[Door]) -> bool:
    reached = {Door.OPEN}
    for _ in Door:
        reached |= {to for (at, _), to in targets.items() if at in reached and to is not None}
    left = {at for (at, _), to in targets.items() if to not in (None, at)}
    return reached == set(Door) and left == set(Door) - final


def test_a_diagram_has_a_line_for_each_row() -> None:
    assert diagram(door()).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> OPEN",
        "    OPEN --> SHUT: PUSH",
        "    SHUT --> OPEN: PULL",
        "    SHUT --> GONE: BURN",
        "    GONE --> [*]",
    ]


def test_a_table_has_rows_then_refusals() -> None:
    assert table(door()).splitlines() == [
        "| at | on | to | do | why |",
        "|---|---|---|---|---|",
        "| OPEN | PUSH | SHUT | CREAK, SLAM | a push shuts it |",
        "| SHUT | PULL | OPEN | CREAK | a pull opens it |",
        "| SHUT | BURN | GONE |  | wood burns |",
        "",
        "| state | refuses |",
        "|---|---|",
        "| OPEN | BURN, PULL |",
        "| SHUT | PUSH |",
        "| GONE | BURN, PULL, PUSH |",
    ]


def test_names_hash_by_identity() -> None:
    assert hash(Door.OPEN) == object.__hash__(Door.OPEN)
    assert {Door.OPEN: 1}[Door(1)] == 1


# The runner


class House:
    """A door with a burglar alarm, and a list of what happens."""

    def __init__(self) -> None:
        self.state = Door.OPEN
        self.alarms = Alarms[Hand]()
        self.heard = list[tuple[Sound, Door, tuple[object, ...]]]()
        self.refused = 0

    def _creak(self, *told: object) -> None:
        self.heard.append((Sound.CREAK, self.state, told))

    def _slam(self, *told: object) -> None:
        self.heard.append((Sound.SLAM, self.state, told))
        if told == ("hard",):
            RUNNER.step(self, Hand.PULL)

    def count(self) -> None:
        self.refused += 1

    METHODS = MappingProxyType({Sound.CREAK: _creak, Sound.SLAM: _slam})


RULES: Mapping[str, Any] = {
    "raised": {Hand.PULL},
    "counted": {Hand.PUSH},
    "ignored": {Hand.BURN},
    "count": House.count,
}
RUNNER = Runner(door(), House.METHODS, **RULES)


def test_the_state_changes_first_and_the_methods_get_what_the_step_was_given() -> None:
    house = House()
    RUNNER.step(house, Hand.PUSH, 1, "two")
    assert house.heard == [(sound, Door.SHUT, (1, "two")) for sound in (Sound.CREAK, Sound.SLAM)]


def test_an_action_may_be_the_cause_of_the_next_event() -> None:
    house = House()
    RUNNER.step(house, Hand.PUSH, "hard")
    assert house.state is Door.OPEN
    assert house.heard[-1] == (Sound.CREAK, Door.OPEN, ())


@given(st.lists(st.sampled_from(Hand)))
def test_any_events_lead_where_the_table_says_and_what_it_refuses_changes_nothing(
    events: list[Hand],
) -> None:
    machine, house = door(), House()
    counted = 0
    for event in events:
        before, heard = house.state, len(house.heard)
        row = machine.find(before, event)
        if row is None and event is Hand.PULL:
            with pytest.raises(StateError, match=f"door in state {before.name} refuses PULL"):
                RUNNER.step(house, event)
        else:
            RUNNER.step(house, event)
        counted += row is None and event is Hand.PUSH
        assert house.state is (before if row is None else row.to)
        assert len(house.heard) - heard == (0 if row is None else len(row.do))
    assert house.refused == counted


def test_many_doors_of_one_house_have_a_state_each() -> None:
    class Leaf:
        def __init__(self, state: Door) -> None:
            self.state = state

    house, front, back = House(), Leaf(Door.OPEN), Leaf(Door.SHUT)
    for leaf in (front, back):
        RUNNER.step_of(leaf, house, Hand.PUSH, "why")
    assert (front.state, back.state, house.state) == (Door.SHUT, Door.SHUT, Door.OPEN)
    assert [told for _, _, told in house.heard] == [(front, "why"), (front, "why")]
    assert house.refused == 1
    RUNNER.step_of(back, house, Hand.PULL)
    with pytest.raises(StateError, match="OPEN refuses PULL"):
        RUNNER.step_of(back, house, Hand.PULL)


def test_an_alarm_that_the_new_state_refuses_is_stopped() -> None:
    runner = Runner(door(), House.METHODS, timed=True, **RULES)
    house = House()
    house.alarms.set(Hand.PULL, 1.0)
    house.alarms.set(Hand.PUSH, 2.0)
    runner.step(house, Hand.PUSH)
    assert house.alarms.pending() == (Hand.PULL,)
    runner.handle_timeout(house, 0.5)
    assert len(house.heard) == 2
    runner.handle_timeout(house, 1.0)
    assert house.heard[-1] == (Sound.CREAK, Door.OPEN, (1.0,))
    assert house.alarms.pending() == ()


@each(
    ("changes", "what"),
    [
        ({"methods": {Sound.CREAK: House.count}}, "SLAM has no method"),
        ({"ignored": ()}, "BURN, refused, has 0 rules"),
        ({"ignored": Hand}, "PULL, refused, has 2 rules; PUSH, refused, has 2 rules"),
        ({"count": None}, "a method that counts"),
        ({"counted": (), "ignored": {Hand.PUSH, Hand.BURN}}, "a method that counts"),
    ],
)
def test_a_runner_without_all_methods_and_rules_cannot_be_made(
    changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(TableError, match=f"^door: .*{what}"):
        Runner(door(), **{"methods": House.METHODS, **RULES, **changes})


def test_a_method_for_what_is_no_action_is_a_mistake() -> None:
    machine = door((Row(Door.OPEN, Hand.PUSH, Door.SHUT, (), "softly"), OPENS, BURNS))
    with pytest.raises(TableError, match="SLAM is no action of it"):
        Runner(machine, House.METHODS, **RULES)


# Alarms


def test_an_alarm_rings_once() -> None:
    alarms: Alarms[Hand] = Alarms()
    assert alarms.due is None
    assert alarms.take(0.0) is None
    alarms.set(Hand.PUSH, 2.0)
    alarms.set(Hand.PULL, 1.0)
    assert alarms.due == 1.0
    assert alarms.take(0.999) is None
    assert alarms.take(1.0) is Hand.PULL
    assert alarms.take(1.0) is None
    assert alarms.due == 2.0


def test_alarms_ring_in_the_order_of_their_times_whatever_the_order_of_setting() -> None:
    alarms: Alarms[Hand] = Alarms()
    for when, timer in enumerate(Hand):
        alarms.set(timer, -when)
    assert [alarms.take(100.0) for _ in Hand] == list(reversed(Hand))


def test_alarms_of_one_time_ring_in_the_order_of_setting() -> None:
    alarms: Alarms[Hand] = Alarms()
    for timer in reversed(Hand):
        alarms.set(timer, 1.0)
    assert [alarms.take(1.0) for _ in Hand] == list(reversed(Hand))


def test_only_an_alarm_that_is_set_moves() -> None:
    alarms: Alarms[Hand] = Alarms()
    alarms.move(Hand.PUSH, 1.0)
    alarms.postpone(Hand.PUSH, 1.0)
    assert alarms.due is None
    alarms.set(Hand.PUSH, 1.0)
    alarms.move(Hand.PUSH, 3.0)
    assert alarms.due == 3.0
    alarms.postpone(Hand.PUSH, 1.0)
    assert alarms.due == 4.0
    assert alarms.take(3.9) is None
    assert alarms.take(4.0) is Hand.PUSH


def test_stop_and_clear() -> None:
    alarms: Alarms[Hand] = Alarms()
    for timer in Hand:
        alarms.set(timer, 1.0)
    alarms.stop(Hand.PULL, Hand.PUSH)
    alarms.stop(Hand.PULL)
    assert set(alarms.pending()) == set(Hand) - {Hand.PULL, Hand.PUSH}
    alarms.clear()
    assert alarms.due is None
    assert alarms.pending() == ()
