"""Status, limits, and how a server stops."""

import json

import pytest

from sphtp.core.control.client_messages import Announce, Heartbeat, Leave, StatusRequest
from sphtp.core.control.codec import PART, TEXT, decode_message_untrusted
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import BusAudience, BusMessage, ServerLeft
from sphtp.core.control.registry import MemoryRegistry
from sphtp.core.control.settings import ServerLimits
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.errors import MessageTooLargeError, StateError
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import active_server, ask, established, is_established


def test_status_comes_in_parts_to_anybody_with_an_odd_id() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    for number in range(3, 1403, 2):
        bus.inject(server, Announce(number, 5).encode())
    bus.run(1.0)
    before = len(server.sent)
    bus.inject(server, StatusRequest(9999).encode())
    answers = [decode_message_untrusted(out.data) for out in server.sent[before:]]
    parts = [PART.need(m) for m in answers]
    assert [part.index for part in parts] == list(range(len(answers)))
    assert parts[0].count == len(answers) > 1
    assert {m.simulation for m in answers} == {9999}
    status = json.loads(b"".join(TEXT.need(m) for m in answers))
    assert status == server.machine.status()
    assert len(status["clients"]) == 700


def test_a_full_server_says_so() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True, registry=MemoryRegistry(10.0, 1))
    assert ask(bus, server, Announce(7, 5)) == [(Command.ACK, 7, 5, 0)]
    assert ask(bus, server, Announce(9, 5)) == [(Command.NACK, 9, 5, Reason.FULL)]


def test_limits_that_change_hold_from_the_next_message_on() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True, limits=ServerLimits(max_clients=1))
    assert ask(bus, server, Announce(7, 5)) == [(Command.ACK, 7, 5, 0)]
    assert ask(bus, server, Announce(9, 5)) == [(Command.NACK, 9, 5, Reason.FULL)]
    server.machine.set_limits(ServerLimits(max_clients=2))
    assert ask(bus, server, Announce(9, 5)) == [(Command.ACK, 9, 5, 0)]
    # Those who are there stay, and are acknowledged again.
    server.machine.set_limits(ServerLimits(max_clients=1, announces_per_second=1))
    assert ask(bus, server, Announce(9, 5)) == [(Command.ACK, 9, 5, 0)]
    assert ask(bus, server, Announce(7, 5)) == []
    assert server.machine.counters[Count.OVER_ANNOUNCES_PER_SECOND] == 1
    server.machine.set_limits(ServerLimits(max_clients=1))
    bus.run(1)
    assert ask(bus, server, Announce(11, 5)) == [(Command.NACK, 11, 5, Reason.FULL)]
    assert server.machine.clients.keys() == {7, 9}


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    for number in range(3, 403, 2):
        for message in (Announce(number, 0), Heartbeat(number, 0), Leave(number, 0)):
            bus.inject(server, message.encode())
    assert not server.machine.clients
    # Nor that the last holder of an id had settled: the next one may announce it twice.
    bus.run(bus.timers.expiry + 1)
    for _ in range(2):
        assert ask(bus, server, Announce(3, 0)) == [(Command.ACK, 3, 0, 0)]


def test_data_are_bounded() -> None:
    bus = SimulatedCluster()
    with pytest.raises(MessageTooLargeError):
        bus.client("x", packed=bytes(4097))
    active_server(bus)
    client = bus.client("y", packed=b"1")
    established(bus, client)
    with pytest.raises(MessageTooLargeError):
        client.machine.set_data(bus.now, bytes(4097))


def test_a_server_that_stops_is_dropped_at_once() -> None:
    bus = SimulatedCluster()
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    client = bus.client("x")
    bus.run(5)
    first.machine.stop(bus.now)
    bus.pump(first)
    bus.run(0.5)
    assert [m.id for m in second.machine.view.members] == [second.machine.id]
    assert client.of(ServerLeft)[0].reason is Reason.LEFT
    assert is_established(client)
    assert first.machine.poll_timeout() is None
    with pytest.raises(StateError):
        first.machine.stop(bus.now)
    assert {out.audience for out in first.sent[-2:]} == set(BusAudience)
    assert isinstance(first.sent[-1], BusMessage)
