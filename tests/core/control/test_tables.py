"""The tables compile and are drawn; what they refuse raises, is counted or is left."""

import random
from typing import Any

import pytest

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import (
    CLIENT,
    NACKS,
    ClientAction,
    ClientSignal,
    ClientState,
)
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_table import (
    FROM_CLIENTS,
    SERVER,
    ServerAction,
    ServerSignal,
    ServerState,
)
from sphtp.core.control.settings import ControlTimers
from sphtp.core.fsm import diagram, table
from sphtp.errors import StateError
from sphtp.testing.cluster import server_address

TABLES: list[Any] = [
    (CLIENT, ClientState, ClientSignal, ClientAction),
    (SERVER, ServerState, ServerSignal, ServerAction),
]


def machines() -> list[Any]:
    entropy, timers = random.Random(1), ControlTimers()
    client = ClientMachine(entropy, timers, secrets=entropy, servers=[], candidates=[])
    return [client, ServerMachine(entropy, timers, secrets=entropy, address=server_address(0))]


@pytest.mark.parametrize(("machine", "states", "signals", "actions"), TABLES)
def test_every_state_signal_and_action_is_used(
    machine: Any, states: Any, signals: Any, actions: Any
) -> None:
    assert machine.states == tuple(states)
    assert {row.on for row in machine.rows} == set(signals)
    assert machine.actions == frozenset(actions)
    assert all(row.why for row in machine.rows)


@pytest.mark.parametrize(("machine", "states", "signals", "actions"), TABLES)
def test_tables_are_drawn(machine: Any, states: Any, signals: Any, actions: Any) -> None:
    assert all(state.name in diagram(machine) for state in states)
    assert all(signal.name in table(machine) for signal in signals)


def test_a_no_of_a_server_that_comes_too_late_is_counted() -> None:
    client, _ = machines()
    for signal in NACKS:
        client.signal(0.0, signal)
    assert client.counters.as_dict() == {"refused_by_state": len(NACKS)}


def test_what_a_server_hears_that_is_stopped_is_counted() -> None:
    _, server = machines()
    server.stop(0.0)
    for signal in FROM_CLIENTS:
        server.signal(0.0, signal, None)
    assert server.counters.as_dict() == {"refused_by_state": len(FROM_CLIENTS)}


def test_what_holds_or_is_ready_too_early_is_neither_an_error_nor_counted() -> None:
    client, server = machines()
    client.set_data(0.0, b"data")
    client.handle_connected(0.0)
    server.signal(0.0, ServerSignal.NEW_CLUSTER)
    server.signal(0.0, ServerSignal.SNAPSHOT_COMPLETE)
    assert (client.state, server.state) == (ClientState.SEARCHING, ServerState.ACTIVE)
    assert client.counters.as_dict() == server.counters.as_dict() == {}


def test_leaving_or_stopping_twice_is_an_error_of_whoever_does_it() -> None:
    client, server = machines()
    client.leave(0.0)
    server.stop(0.0)
    with pytest.raises(StateError, match="LEFT refuses LEAVE"):
        client.leave(0.0)
    with pytest.raises(StateError, match="STOPPED refuses STOP"):
        server.stop(0.0)
