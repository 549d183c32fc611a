"""More than anybody should ask: each bound bites, is counted by its name, and gives way again."""

import json
import time
from typing import Any

import msgpack
import pytest

from sphtp.core.control.client_messages import (
    Announce,
    CheckRequest,
    ClientData,
    Heartbeat,
    Lookup,
    StatusRequest,
)
from sphtp.core.control.codec import PART
from sphtp.core.control.counters import Count
from sphtp.core.control.interest import group_topic
from sphtp.core.control.outputs import PeerChanged
from sphtp.core.control.records import (
    MAX_MEMBERS,
    ClusterView,
    Digest,
    Holder,
    Member,
    Peer,
    PeerRecord,
    Watch,
)
from sphtp.core.control.registrations import CHECKS_PER_SECOND, RatesPerHolder
from sphtp.core.control.senders import SenderConnections
from sphtp.core.control.server_messages import Peers, ServerHeartbeat, ServerLeave
from sphtp.core.control.settings import MAX_RATE, ServerLimits
from sphtp.core.control.vocabulary import EVERYBODY, Command, Reason
from sphtp.errors import SettingsError
from sphtp.testing.cluster import (
    SimulatedClient,
    SimulatedCluster,
    SimulatedServer,
    server_address,
)
from tests.cases import each
from tests.core.control.helpers import ask, established, is_established, said

LIMITS = ServerLimits(max_clients=8, announces_per_second=5, lookups_per_second=3)


def limited_cluster() -> tuple[SimulatedCluster, SimulatedServer, SimulatedClient]:
    """Return a cluster with ``LIMITS``, and its server and its established client."""
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True, limits=LIMITS)
    client = bus.client("x")
    established(bus, client)
    bus.run(2.0)
    return bus, server, client


def test_a_flood_of_announcements_is_cut_and_clients_stay() -> None:
    """What must hold: so many are answered per second, and who is registered notices nothing."""
    bus, server, client = limited_cluster()
    answered = sum(bool(ask(bus, server, Announce(2 * n + 3, 5))) for n in range(1000))
    assert answered == 5
    assert server.machine.counters[Count.OVER_ANNOUNCES_PER_SECOND] == 995
    assert ask(bus, server, Heartbeat(client.machine.id, client.machine.nonce)) == []
    bus.run(30.0)
    assert is_established(client)
    assert len(ask(bus, server, Announce(9999, 5))) == 1


def test_a_flood_of_lookups_is_cut() -> None:
    """What must hold: a list is not sent more often than that, whoever asks."""
    bus, server, client = limited_cluster()
    before = len(said(server, Command.PEERS))
    for _ in range(500):
        bus.inject(server, Lookup(client.machine.id, client.machine.nonce).encode())
    bus.run(0.1)
    assert before < len(said(server, Command.PEERS)) <= before + 3
    assert server.machine.counters[Count.OVER_LOOKUPS_PER_SECOND] == 497


def test_lookups_that_get_no_answer_take_none_from_others() -> None:
    """What must hold: neither an unregistered program nor lookups at another server use it up."""
    bus, server, client = limited_cluster()
    before = len(said(server, Command.PEERS))
    for _ in range(500):
        bus.inject(server, Lookup(99, 5).encode())
        bus.inject(server, Lookup(client.id, client.machine.nonce, None, 4).encode())
    bus.inject(server, Lookup(client.id, client.machine.nonce).encode())
    bus.run(0.1)
    assert len(said(server, Command.PEERS)) == before + 1
    assert server.machine.counters[Count.OVER_LOOKUPS_PER_SECOND] == 0
    assert server.machine.counters[Count.NOT_REGISTERED] == 500


def test_a_flood_of_requests_for_checks_is_cut_and_those_of_others_are_passed_on() -> None:
    """What must hold: no client has others sent more than a few messages by one message each."""
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    left, right = bus.client("x"), bus.client("y")
    established(bus, left, right)
    before = len(said(server, Command.CHECK))
    for token in range(500):
        bus.inject(server, CheckRequest(left.id, left.machine.nonce, right.id, token).encode())
    bus.inject(server, CheckRequest(right.id, right.machine.nonce, left.id, 1).encode())
    assert len(said(server, Command.CHECK)) - before == CHECKS_PER_SECOND + 1
    assert server.machine.counters[Count.OVER_CHECKS_PER_SECOND] == 500 - CHECKS_PER_SECOND


def test_a_flood_of_watches_is_cut_and_a_group_listed_no_faster_than_its_readers_can_take() -> None:
    """What must hold: a client that lies about what it has gets no more than one that asks."""
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True, limits=ServerLimits(lookups_per_second=50))
    for number in range(3, 203, 2):
        ask(bus, server, Announce(number, 5))
        bus.inject(server, ClientData(number, 5, 1, bytes(2000), (), ("fluid",)).encode())
    bus.run(2.0)
    lie, before = Digest(9, 9), len(said(server, Command.PEERS))
    pins = tuple(Watch(number, lie) for number in range(3, 203, 2))
    for _ in range(20):
        bus.inject(server, Lookup(3, 5, None, None, pins).encode())
    bus.run(0.1)
    assert len(said(server, Command.PEERS)) <= before + 50
    bus.run(2.0)
    before = len(said(server, Command.PEERS))
    group = (Watch(group_topic("fluid"), lie),)
    for _ in range(100):
        bus.inject(server, Lookup(3, 5, None, None, group).encode())
        bus.run(0.01)
    # A list of these hundred takes four messages, and after each the group rests for 40 ms.
    assert 4 <= len(said(server, Command.PEERS)) - before <= 4 * 30


def test_a_flood_of_requests_for_the_status_is_cut() -> None:
    """What must hold: strangers' requests become no more than a few copies of the status."""
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    for number in range(3, 603, 2):
        ask(bus, server, Announce(number, 5))
    bus.run(2.0)
    before = len(server.sent)
    for stranger in range(100_001, 102_001, 2):
        server.machine.handle_message(bus.now, StatusRequest(stranger).encode())
    bus.pump(server)
    whole = len(json.dumps(server.machine.status()))
    assert whole < sum(len(out.data) for out in server.sent[before:]) < 20 * whole
    assert server.machine.counters[Count.OVER_STATUS_ANSWERS] > 900
    bus.run(2.0)
    bus.inject(server, StatusRequest(99_999).encode())
    bus.run(0.5)
    assert {message.simulation for message in said(server, Command.STATUS)} > {99_999}


def test_a_flood_of_groups_that_nobody_is_in_delays_no_list_of_another() -> None:
    """What must hold: who watches a group learns its members at once, whoever lies beside it."""
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    for number in range(3, 403, 2):
        ask(bus, server, Announce(number, 5))
    bus.inject(server, ClientData(3, 5, 1, b"", (), ("fluid",)).encode())
    bus.run(2.0)
    for start in range(2, 18_002, 600):
        lies = tuple(Watch(topic, Digest(9, 9)) for topic in range(start, start + 600, 2))
        server.machine.handle_message(bus.now, Lookup(5, 5, None, None, lies).encode())
    bus.pump(server)
    before = len(server.sent)
    watch = Watch(group_topic("fluid"), Digest(0, 0))
    bus.inject(server, Lookup(7, 5, None, None, (watch,)).encode())
    bus.run(0.01)
    assert group_topic("fluid") in [
        message.simulation for message in said(server, Command.PEERS) if PART.first(message)
    ]
    assert len(server.sent) < before + 30


def test_a_flood_of_data_is_cut_for_the_one_and_not_for_others() -> None:
    """What must hold: a hundred changes a second cost others ten, and the last one is not lost."""
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    rogue, honest, witness = (bus.client(name) for name in "xyz")
    established(bus, rogue, honest, witness)
    bus.run(2.0)
    before = len(witness.of(PeerChanged))
    for number in range(500):
        rogue.machine.set_data(bus.now, b"%d" % number)
        bus.pump(rogue)
        bus.run(0.01)
    honest.machine.set_data(bus.now, b"me")
    bus.pump(honest)
    bus.run(0.1)
    assert len(witness.of(PeerChanged)) - before <= 10 + 5 * 10 + 1
    assert witness.machine.peers[honest.machine.id].data == b"me"
    assert server.machine.counters[Count.OVER_DATA_PER_SECOND] >= 500 - 60 - 1
    bus.run(2.5)
    assert witness.machine.peers[rogue.machine.id].data == b"499"


def test_data_that_nobody_looks_at_is_not_unpacked() -> None:
    """What must hold: a change of data costs a client the same, whatever it is that was told."""
    record = PeerRecord(7, 1, data=msgpack.packb([[]] * 4000))
    began = time.process_time()
    peers = [Peer.from_record(record) for _ in range(300)]
    made = time.process_time()
    told = [peer.data for peer in peers[:100]]
    read = time.process_time()
    assert told == [[[]] * 4000] * 100
    assert peers[0].data is told[0]
    assert made - began < read - made, "three hundred were made in the time of reading a hundred"


def test_rates_of_those_that_are_gone_are_forgotten() -> None:
    here: dict[int, PeerRecord] = {}
    rates = RatesPerHolder(2, here)
    for number in range(1000):
        here.clear()
        here[number] = PeerRecord(number, 1)
        assert rates.take(0.0, Holder(number, 1))
        assert len(rates) <= 2
    last = Holder(999, 1)
    assert [rates.take(0.0, last) for _ in range(2)] == [True, False]
    assert rates.take(0.5, last)


def test_a_full_server_says_so_by_name() -> None:
    bus = SimulatedCluster()
    limits = ServerLimits(max_clients=2)
    server = bus.server(0, new_cluster=True, limits=limits)
    bus.run(0.5)
    answers = [ask(bus, server, Announce(2 * n + 3, 5)) for n in range(4)]
    reasons = [answer[3] for told in answers for answer in told]
    assert reasons == [0, 0, Reason.FULL, Reason.FULL]
    assert server.machine.status()["counters"][Count.OVER_MAX_CLIENTS] == 2


def test_a_crowd_is_let_in_by_and_by() -> None:
    """What must hold: a limit costs time and nobody's place."""
    bus = SimulatedCluster()
    bus.server(0, new_cluster=True, limits=ServerLimits(announces_per_second=5))
    crowd = [bus.client(f"c{n}") for n in range(20)]
    bus.run_until(lambda: is_established(*crowd), 120.0)


def test_servers_that_come_and_go_leave_a_client_no_more_than_the_peers_of_so_many() -> None:
    """What must hold: the peers of lost servers are kept for a while, not of ever more servers."""
    bus = SimulatedCluster()
    client = bus.client("x")
    for number in range(2, 402, 2):
        here = Member(number, 7, server_address(0))
        bus.inject(client, ServerHeartbeat(here, ClusterView(1, (here,))).encode())
        record = PeerRecord(number + 1, 5)
        bus.inject(client, Peers(number, EVERYBODY, (record,)).encode())
        bus.inject(client, ServerLeave(number, 7).encode())
    assert not client.machine.servers
    assert list(client.machine.peers) == list(range(403 - 2 * MAX_MEMBERS, 403, 2))


def test_connections_are_remembered_for_so_many_senders_only() -> None:
    origins = SenderConnections(5.0, 100)
    for number in range(1000):
        assert origins.admits(0.0, Holder(number, 1), pipe=number % 7)
    assert len(origins) == 100
    assert not origins.admits(0.0, Holder(999, 1), pipe=8)
    assert origins.admits(0.0, Holder(1, 1), pipe=8)
    assert sum(len(origins.end(pipe)) for pipe in range(9)) == 100
    assert len(origins) == sum(len(origins.end(pipe)) for pipe in range(9)) == 0


@each("name", ["announces_per_second", "lookups_per_second", "data_per_second"])
@each("rate", [0, 0.5, -1, float("nan"), MAX_RATE + 1])
def test_rates_that_make_no_sense_are_refused(name: str, rate: float) -> None:
    wrong: dict[str, Any] = {name: rate}
    with pytest.raises(SettingsError, match=name):
        ServerLimits(**wrong)
