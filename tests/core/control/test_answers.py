"""The eight answers to what the seed leaves open."""

from dataclasses import replace
from typing import Any, cast

import pytest

from sphtp.core.control.client_messages import Announce, Heartbeat
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import NONCE, REASON, Message, Parameter, decode_message_untrusted
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import IdLost, Suspended, UserMessage
from sphtp.core.control.records import PeerRecord
from sphtp.core.control.registry import MemoryRegistry, Registry
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.errors import StateError
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import active_server, ask, established, heard, is_established, said

# 1. Commands below 0x0100 are the protocol's, others the user's.


def test_user_commands_travel_both_ways() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x")
    with pytest.raises(StateError):
        client.machine.publish(bus.now, 0x0100, [])
    established(bus, client)
    parameter = Parameter(0x0177, b"?")
    client.machine.publish(bus.now, 0x0100, [parameter])
    server.machine.publish(bus.now, client.machine.id, 0x0101, [parameter])
    server.machine.publish(bus.now, 0, 0x0102, [])
    bus.pump(client)
    bus.pump(server)
    bus.run(1)
    assert server.of(UserMessage) == [UserMessage(client.machine.id, 0x0100, (parameter,))]
    assert client.of(UserMessage) == [
        UserMessage(server.machine.id, 0x0101, (parameter,)),
        UserMessage(server.machine.id, 0x0102, ()),
    ]


@pytest.mark.parametrize(("command", "parameter"), [(0xFF, 0x100), (0x100, 0xFF), (0x100, 3)])
def test_the_application_has_numbers_of_its_own(command: int, parameter: int) -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x")
    established(bus, client)
    parameters = [Parameter(0x0100, b""), Parameter(parameter, b"")]
    with pytest.raises(StateError, match="protocol"):
        client.machine.publish(bus.now, command, parameters)
    with pytest.raises(StateError, match="protocol"):
        server.machine.publish(bus.now, 0, command, parameters)
    assert client.machine.poll_transmit() is None
    assert server.machine.poll_transmit() is None


def test_the_application_sees_no_parameters_of_the_protocol() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x", ids=iter((7,)))
    established(bus, client)
    own, theirs = Parameter(0x0100, b"own"), Parameter(0xFF, b"of a later version")
    nonce = NONCE.of(client.machine.nonce)
    bus.inject(server, Message(7, 7, 0x0100, (theirs, own, nonce)).encode())
    bus.inject(client, Message(7, server.machine.id, 0x0100, (theirs, own)).encode())
    assert server.of(UserMessage) == [UserMessage(7, 0x0100, (own,))]
    assert client.of(UserMessage) == [UserMessage(server.machine.id, 0x0100, (own,))]


def test_user_commands_of_strangers_are_dropped() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    bus.inject(server, Message(7, 7, 0x0100).encode())
    assert server.of(UserMessage) == []
    assert server.machine.counters["not_registered"] == 1


# 2. A 64-bit nonce tells holders apart; nonce-free clients are served.


def test_same_nonce_is_acknowledged_again_and_another_refused() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    for _ in range(2):
        assert ask(bus, server, Announce(7, 5)) == [(Command.ACK, 7, 5, 0)]
    refused = [(Command.NACK, 7, 6, Reason.CONFLICT)]
    assert ask(bus, server, Announce(7, 6)) == refused
    assert ask(bus, server, Heartbeat(7, 6)) == refused
    assert ask(bus, server, Heartbeat(7, 5, 0)) == []


def test_a_plain_client_is_the_same_one_until_its_first_heartbeat() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    for _ in range(2):
        assert ask(bus, server, Announce(7, 0)) == [(Command.ACK, 7, 0, 0)]
    assert ask(bus, server, Heartbeat(7, 0)) == []
    assert ask(bus, server, Announce(7, 0)) == [(Command.NACK, 7, 0, Reason.CONFLICT)]
    assert ask(bus, server, Announce(7, 5)) == [(Command.NACK, 7, 5, Reason.CONFLICT)]
    assert ask(bus, server, Announce(9, 5)) == [(Command.ACK, 9, 5, 0)]
    assert ask(bus, server, Announce(9, 0)) == [(Command.NACK, 9, 0, Reason.CONFLICT)]
    plain = Message(7, 7, Command.ANNOUNCE).encode()
    assert decode_message_untrusted(plain).parameters == ()


def test_a_client_is_served_by_a_plain_server() -> None:
    bus = SimulatedCluster()
    client = bus.client("x", ids=iter((7, 9)))
    bus.inject(client, Message(0, 4, Command.HEARTBEAT).encode())
    assert client.is_in(ClientState.ANNOUNCING)
    bus.inject(client, Message(7, 4, Command.NACK).encode())
    assert client.is_in(ClientState.BACKING_OFF)
    bus.run(1)
    assert client.machine.id == 9
    bus.inject(client, Message(9, 4, Command.ACK).encode())
    assert is_established(client)


def test_answers_without_our_nonce_mean_nothing() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x", ids=iter((7,)))
    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    for parameters in ((), (NONCE.of(1),)):
        for command in (Command.ACK, Command.NACK):
            bus.inject(client, Message(7, server.machine.id, command, parameters).encode())
    assert client.is_in(ClientState.ANNOUNCING)
    own = (NONCE.of(client.machine.nonce),)
    bus.inject(client, Message(7, 4444, Command.ACK, own).encode())
    assert client.is_in(ClientState.ANNOUNCING)


# 3. Established means acknowledged by every member of the view.


def test_one_acknowledge_of_two_is_not_enough() -> None:
    bus = SimulatedCluster()
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run(5)
    client = bus.client("x", ids=iter((7,)))
    bus.cut(client, second)
    bus.run_until(lambda: client.is_in(ClientState.BACKING_OFF))
    assert heard(client, Command.ACK)
    assert {m.sender for m in heard(client, Command.ACK)} == {first.machine.id}
    bus.run(1)
    assert 7 not in first.machine.clients
    assert 7 not in second.machine.clients


def test_a_server_that_joins_later_is_asked_as_well() -> None:
    bus = SimulatedCluster()
    bus.server(0, new_cluster=True)
    client = bus.client("x")
    established(bus, client)
    second = bus.server(1, join=[0])
    bus.run(5)
    assert second.is_in(ServerState.ACTIVE)
    assert second.machine.id in {m.sender for m in heard(client, Command.ACK)}
    assert second.machine.status()["clients"][0]["told_by"] is None


def test_a_lost_id_is_told_and_replaced() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x", ids=iter((7, 9)))
    established(bus, client)
    parameters = (NONCE.of(client.machine.nonce), REASON.of(Reason.CONFLICT))
    bus.inject(client, Message(7, server.machine.id, Command.NACK, parameters).encode())
    assert client.of(IdLost) == [IdLost(7, Reason.CONFLICT)]
    established(bus, client)
    assert client.machine.id == 9


# 4. A restarted server is JOINING; unknown ids are asked to announce again.


def test_a_joining_server_is_silent_to_new_ids() -> None:
    bus = SimulatedCluster()
    server = bus.server(0)
    bus.run(0.5)
    assert ask(bus, server, Announce(7, 5)) == []
    assert server.machine.clients == {}
    bus.run(20)
    assert server.is_in(ServerState.ACTIVE)
    assert ask(bus, server, Announce(7, 5)) == [(Command.ACK, 7, 5, 0)]


def test_an_unknown_heartbeat_is_asked_for_an_announcement() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    assert ask(bus, server, Heartbeat(7, 5)) == [(Command.NACK, 7, 5, Reason.UNKNOWN)]
    assert server.machine.clients == {}


def test_a_joining_server_keeps_an_id_for_whom_it_heard_using_it() -> None:
    bus = SimulatedCluster()
    server = bus.server(0)
    bus.run(0.5)
    assert ask(bus, server, Heartbeat(7, 5)) == [(Command.NACK, 7, 5, Reason.UNKNOWN)]
    assert ask(bus, server, Announce(7, 6)) == [(Command.NACK, 7, 6, Reason.CONFLICT)]
    assert ask(bus, server, Heartbeat(7, 6)) == [(Command.NACK, 7, 6, Reason.UNKNOWN)]
    assert ask(bus, server, Announce(7, 5)) == [(Command.ACK, 7, 5, 0)]


def test_clients_survive_the_restart_of_their_only_server() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    clients = [bus.client(name, packed=name.encode()) for name in "xyz"]
    established(bus, *clients)
    bus.run(2)
    ids = [client.machine.id for client in clients]
    bus.kill(server)
    bus.run(3)
    again = bus.server(0)
    bus.run(30)
    assert is_established(*clients)
    assert [client.machine.id for client in clients] == ids
    assert {record.data for record in again.machine.clients.values()} == {b"x", b"y", b"z"}
    assert not any(client.of(Suspended) or client.of(IdLost) for client in clients)
    assert all(len(client.machine.peers) == 2 for client in clients)


# 5. SUSPENDED, not gone: test_resume.py. 6. Timers: test_records.py and test_steps.py.


def test_all_periods_can_be_configured() -> None:
    timers = ControlTimers(heartbeat=0.1, expiry=0.5, announce_deadline=0.3, backoff=0.05)
    bus = SimulatedCluster(timers=timers)
    server = bus.server(0, new_cluster=True)
    client = bus.client("x")
    start = bus.now
    established(bus, client)
    assert bus.now - start < 0.3
    bus.kill(server)
    bus.run(0.6)
    assert client.is_in(ClientState.SUSPENDED)


# 7. Versions and features travel as parameters; unknown ones are skipped (test_codec.py).


def test_another_version_is_refused_for_good() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    answer = ask(bus, server, replace(Announce(7, 5), version=2))
    assert answer == [(Command.NACK, 7, 5, Reason.VERSION)]
    client = bus.client("x", ids=iter((9,)))
    established(bus, client)
    parameters = (NONCE.of(client.machine.nonce), REASON.of(Reason.VERSION))
    bus.inject(client, Message(9, server.machine.id, Command.NACK, parameters).encode())
    assert client.is_in(ClientState.REFUSED)
    assert client.machine.poll_timeout() is None
    assert said(client)[-1].command == Command.LEAVE


def test_the_application_may_refuse_clients() -> None:
    bus = SimulatedCluster()
    bus.server(0, new_cluster=True, admit=lambda record: record.id != 7)
    client, other = bus.client("x", ids=iter((7,))), bus.client("y", ids=iter((9,)))
    bus.run_until(lambda: client.is_in(ClientState.REFUSED))
    established(bus, other)


# 8. The registry is an interface.


def test_another_registry_can_be_used() -> None:
    class Watched:
        """Keeps its records elsewhere, and counts them."""

        def __init__(self, elsewhere: Registry) -> None:
            self.created = 0
            self._elsewhere = elsewhere

        def __getattr__(self, name: str) -> Any:
            return getattr(self._elsewhere, name)

        def create(self, now: float, record: PeerRecord, *, expires: bool) -> None:
            self.created += 1
            self._elsewhere.create(now, record, expires=expires)

    bus = SimulatedCluster()
    registry = Watched(MemoryRegistry(10.0, 5))
    bus.server(0, new_cluster=True, registry=cast("Registry", registry))
    established(bus, bus.client("x"))
    assert registry.created == 1


def test_applicants_for_whom_there_is_no_place_are_counted() -> None:
    bus = SimulatedCluster()
    limits = ServerLimits(max_answers=2)
    server = bus.server(0, new_cluster=True, admit=lambda _: True, limits=limits)
    bus.run(3)
    for number in (7, 9, 9, 11):
        server.machine.handle_message(bus.now, Announce(number, 5).encode())
    # Who asks again is not counted: its place is taken by itself.
    assert server.machine.counters[Count.OVER_MAX_ANSWERS] == 1
    bus.pump(server)
    assert server.machine.clients.keys() == {7, 9}


def test_status_has_the_wall_clock_if_that_is_handed_in() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    assert "wall_time" not in server.machine.status()
    server.machine.wall_ahead = 1e9
    began = server.machine.status()["wall_time"]
    bus.run(60.0)
    passed = server.machine.status()["wall_time"] - began
    assert passed == pytest.approx(60.0, abs=2 * bus.timers.heartbeat)
