"""The tables compile, are drawn, and every action that they name has a method."""

import random
from typing import Any

import pytest

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import CLIENT, ClientAction, ClientSignal, ClientState
from sphtp.core.control.counters import Counters
from sphtp.core.control.runner import Runner
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_table import SERVER, ServerAction, ServerSignal, ServerState
from sphtp.core.control.timers import ControlTimers
from sphtp.core.fsm import diagram, table
from sphtp.errors import StateError
from tests.core.control.bus import address

TABLES: list[Any] = [
    (CLIENT, ClientState, ClientSignal, ClientAction),
    (SERVER, ServerState, ServerSignal, ServerAction),
]


def machines() -> list[Any]:
    entropy, timers = random.Random(1), ControlTimers()
    client = ClientMachine(entropy, timers, secrets=entropy, servers=[], candidates=[])
    return [client, ServerMachine(entropy, timers, secrets=entropy, address=address(0))]


@pytest.mark.parametrize(("machine", "states", "signals", "actions"), TABLES)
def test_every_state_signal_and_action_is_used(
    machine: Any, states: Any, signals: Any, actions: Any
) -> None:
    assert machine.states == tuple(states)
    assert {row.on for row in machine.rows} == set(signals)
    assert machine.actions == frozenset(actions)
    assert all(row.why for row in machine.rows)


@pytest.mark.parametrize("machine", machines())
def test_every_action_has_a_method_and_every_method_an_action(machine: Any) -> None:
    assert set(machine._list_actions()) == machine._runner._machine.actions


@pytest.mark.parametrize(("machine", "states", "signals", "actions"), TABLES)
def test_tables_are_drawn(machine: Any, states: Any, signals: Any, actions: Any) -> None:
    assert all(state.name in diagram(machine) for state in states)
    assert all(signal.name in table(machine) for signal in signals)


def test_a_runner_without_all_methods_cannot_be_built() -> None:
    with pytest.raises(KeyError):
        Runner(CLIENT, {}, Counters())


def test_refused_signals_are_counted_and_refused_commands_raise() -> None:
    counters = Counters()
    runner = Runner(CLIENT, dict.fromkeys(ClientAction, lambda _: None), counters)
    runner.signal(0.0, ClientSignal.STALE)
    runner.offer(0.0, ClientSignal.STALE)
    assert counters.as_dict() == {"refused_by_state": 1}
    runner.command(0.0, ClientSignal.LEAVE)
    assert runner.is_over
    with pytest.raises(StateError, match="left refuses LEAVE"):
        runner.command(0.0, ClientSignal.LEAVE)


def test_an_alarm_that_the_new_state_refuses_is_stopped() -> None:
    runner = Runner(CLIENT, dict.fromkeys(ClientAction, lambda _: None), Counters())
    runner.signal(0.0, ClientSignal.SERVER_READY)
    runner.alarms.set(ClientSignal.DEADLINE, 3.0)
    runner.alarms.set(ClientSignal.HEARTBEAT_DUE, 1.0)
    runner.signal(0.5, ClientSignal.ACKNOWLEDGED)
    assert runner.alarms.pending() == (ClientSignal.HEARTBEAT_DUE,)
