"""The cluster's time among the real machines, whose clocks have nothing in common."""

import itertools
import random

import pytest

from sphtp.core.clock import MAX_TIME, ClusterClock, Reading, Stamp, Term, TimeRequest
from sphtp.core.control.client_messages import Announce, Heartbeat
from sphtp.core.control.codec import TIME_REQUEST, decode_message
from sphtp.core.control.counters import Count
from sphtp.core.control.records import ClusterView, Member
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_messages import ServerHeartbeat, ServerLeave, TimeAnswer
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Command, MemberState
from sphtp.errors import StateError
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.cases import each
from tests.core.control.helpers import Node, established

FAST, SLOW = 1 + 100e-6, 1 - 100e-6


def read(bus: SimulatedCluster, node: Node) -> Reading:
    clock: ClusterClock = node.machine.clock
    return clock.read(node.local(bus.now))


def agree(bus: SimulatedCluster, nodes: list[Node]) -> None:
    """Check that no two readings of this moment contradict each other."""
    readings = [read(bus, node) for node in nodes]
    for one, other in itertools.combinations(readings, 2):
        assert abs(one.time - other.time) <= one.error + other.error


@each(("seed", "says_so"), [(1, True), (2, False), (3, False)])
def test_that_time_goes_on_when_its_server_ends(seed: int, says_so: bool) -> None:
    bus = SimulatedCluster(seed, delay=(0.0, 0.02), loss=0.02)
    first = bus.server(0, new_cluster=True, clock=(7e5, SLOW))
    bus.run(2)
    second = bus.server(1, join=[0], clock=(3.0, FAST))
    clients = [bus.client("a", clock=(1e5, FAST)), bus.client("b", clock=(42.0, SLOW))]
    established(bus, *clients)
    bus.run(30)
    nodes: list[Node] = [first, second, *clients]
    agree(bus, nodes)
    # A round trip takes 40 ms at most, and a clock loses 0.2 ms in a second to another one.
    assert all(read(bus, node).error < 0.03 for node in nodes)
    before = read(bus, first).time
    if says_so:
        first.machine.stop(first.local(bus.now))
        bus.pump(first)
    bus.run(0.1)
    bus.kill(first)
    nodes.remove(first)
    latest = [read(bus, node).time for node in nodes]
    errors = set[float]()
    for _ in range(60):
        bus.run(0.5)
        agree(bus, nodes)
        times = [read(bus, node).time for node in nodes]
        assert all(early < late for early, late in zip(latest, times, strict=True))
        latest = times
        if second.machine.clock.is_reference:
            errors.add(round(read(bus, second).error, 6))
    terms = {node.machine.clock.term for node in nodes}
    assert len(terms) == 1
    assert second.machine.clock.is_reference
    assert len(errors) == 1
    # No clock says more than that the first server's would have gone on.
    for node in nodes:
        time, error = read(bus, node)
        assert abs(time - (before + 30.1 * SLOW)) <= error + 30.1 * 2 * 100e-6


def test_that_a_client_has_no_time_before_it_hears_a_server() -> None:
    bus = SimulatedCluster()
    client = bus.client("a")
    bus.run(1)
    with pytest.raises(StateError, match="no server"):
        read(bus, client)


def test_that_answers_are_fewer_where_each_costs_very_many() -> None:
    server = ServerMachine(
        random.Random(1),
        ControlTimers(),
        secrets=random.Random(2),
        address=server_address(0),
        new_cluster=True,
    )
    server.handle_start(0.0)
    ids, answers = range(3, 303, 2), 0
    for number in ids:
        server.handle_message(0.5, Announce(number, number).encode())
    assert len(server.clients) == len(ids)
    while server.poll_transmit() is not None:
        pass
    for second in range(1, 11):
        for number in ids:
            heartbeat = Heartbeat(number, number, 0, TimeRequest(server.id, second))
            server.handle_message(second + number / 303, heartbeat.encode())
            while (message := server.poll_transmit()) is not None:
                answers += decode_message(message.data).command == Command.TIME
    server.handle_timeout(12.0)
    while (message := server.poll_transmit()) is not None:
        answers += decode_message(message.data).command == Command.TIME
    # Each costs 150 clients 2 us, and all together 2 % of a core; 50 ms may be spent at once.
    assert 600 < answers <= (0.02 * 10 + 0.001) / (150 * 2e-6) + 1
    assert server.counters[Count.OVER_TIME_ANSWERS] == 1500 - answers


def test_that_answers_of_many_leave_with_other_messages() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    ids = range(3, 1003, 2)
    for number in ids:
        server.machine.handle_message(bus.now, Announce(number, number).encode())
    bus.run(5)
    sent = batches(bus, server, ids, 10)
    assert sum(has_time for has_time, _ in sent) > 10
    # Alone they may take 4 % of a core, 20 us for each of 500 clients; 50 ms may be spent before.
    alone = [has_time for has_time, has_others in sent if not has_others]
    assert len(alone) <= (0.04 * 10 + 0.05) / (500 * 20e-6) + 1


def batches(
    bus: SimulatedCluster, server: Node, ids: range, seconds: int
) -> list[tuple[bool, bool]]:
    """Have all clients ask for the time in each second; return what each sending had in it."""
    found = []
    for second in range(seconds):
        for place, number in enumerate(ids):
            request = TimeRequest(server.machine.id, second * 1000 + place)
            heartbeat = Heartbeat(number, number, 0, request)
            server.machine.handle_message(bus.now, heartbeat.encode())
            sent = []
            while (message := server.machine.poll_transmit()) is not None:
                sent.append(decode_message(message.data).command == Command.TIME)
            if sent:
                found.append((any(sent), not all(sent)))
            if place % 5 == 0:
                bus.run(0.01)
    return found


@each(("generation", "time"), [(2**32 - 1, 10**15), (1, MAX_TIME), (2**32 - 1, MAX_TIME)])
def test_that_a_server_with_an_absurd_clock_silences_no_other(generation: int, time: int) -> None:
    """What must hold: whatever time a server names, the others go on with all but the time."""
    bus = SimulatedCluster()
    honest = bus.server(0, new_cluster=True)
    client = bus.client("a")
    established(bus, client)
    liar = Member(1000, 77, server_address(1), MemberState.ACTIVE)
    stamp = Stamp(Term(5, generation, 77, 0, 0), time, 1000)
    answered = 0
    for _ in range(40):
        heartbeat = ServerHeartbeat(liar, ClusterView(1, (liar,)), None, stamp)
        bus.inject(honest, heartbeat.encode())
        bus.run(0.5)
        for sent in honest.sent:
            if (request := TIME_REQUEST.first(decode_message(sent.data))) is not None:
                answer = TimeAnswer(liar.id, honest.id, request.origin, stamp)
                bus.inject(honest, answer.encode())
                answered += 1
        honest.sent.clear()
    assert answered
    assert honest.machine.clock.term == stamp.term
    bus.inject(honest, ServerLeave(liar.id, liar.nonce).encode())
    bus.run(30)
    assert client.is_established
    assert client.machine.counters.as_dict().get("malformed", 0) == 0
