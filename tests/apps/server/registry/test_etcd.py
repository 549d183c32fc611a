"""A registry on etcd, case by case: restarts, takeovers, early ends of leases, foreign values."""

from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sphtp.core.control.client_messages import Announce
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import REASON, decode_message_untrusted
from sphtp.core.control.counters import Count
from sphtp.core.control.records import Holder, Member, PeerRecord, ServerAddress
from sphtp.core.control.registry import StoreLost, StoreReached
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.errors import RemoteError
from sphtp.events import Established, PeerLeft, RegistryFailing, Suspended
from sphtp_server.registry.etcd import EtcdRegistry, StoreRequest, StoreTask
from sphtp_server.registry.keyspace import (
    IdKey,
    Keyspace,
    encode_registration,
    parse_entries_untrusted,
    parse_events_untrusted,
    parse_lease_untrusted,
    parse_outcomes_untrusted,
    parse_revision_untrusted,
    parse_watch_untrusted,
)
from tests.apps.server.registry.etcd_cluster import EtcdCluster, Node
from tests.apps.server.registry.simulated_etcd import SimulatedEtcd
from tests.cases import each

KEYSPACE = Keyspace("sphtp")


def is_active(*servers: Node) -> bool:
    return all(server.is_in(ServerState.ACTIVE) for server in servers)


def is_established(*clients: Node) -> bool:
    return all(client.is_in(ClientState.ESTABLISHED) for client in clients)


def test_a_server_that_is_killed_serves_again_within_a_second() -> None:
    bus = EtcdCluster()
    first = bus.server(0)
    client = bus.client("gas", ids=iter((7,)))
    bus.run_until(lambda: is_established(client))
    bus.kill(first)
    again = bus.server(0)
    rival = bus.client("rival", ids=iter((7,)))
    bus.run_until(lambda: is_active(again), 0.5)
    bus.run(30)
    assert is_established(client, rival)
    assert client.machine.id == 7
    assert not client.of(Suspended)
    assert len(again.clients) == 2


def test_servers_learn_of_each_other_from_the_store_alone() -> None:
    bus = EtcdCluster()
    servers = [bus.server(number) for number in range(3)]
    client = bus.client("gas", servers=(0,))
    bus.run_until(lambda: is_established(client), 5)
    bus.run_until(lambda: len(client.machine.acknowledged_by) == 3, 5)
    assert len({server.machine.view for server in servers}) == 1


def test_the_server_that_starts_last_has_the_address() -> None:
    bus = EtcdCluster()
    first = bus.server(0)
    bus.run_until(lambda: is_active(first))
    second = bus.server(0)
    bus.run_until(lambda: is_active(second) and first.is_in(ServerState.DETACHED), 1)
    assert "another server has entered" in first.of(RegistryFailing)[-1].why
    bus.run(30)
    assert first.is_in(ServerState.DETACHED)
    bus.kill(second)
    bus.run_until(lambda: is_active(first))


def test_leases_that_end_early_are_granted_again() -> None:
    bus = EtcdCluster()
    server = bus.server(0)
    client = bus.client("gas")
    bus.run_until(lambda: is_established(client))
    before = client.machine.id
    bus.revoke_leases(server)
    bus.run_until(lambda: server.is_in(ServerState.DETACHED), 1)
    bus.run_until(lambda: is_active(server) and is_established(client), 5)
    bus.run(5)
    assert client.machine.id == before
    assert len(bus.etcd.names("/sphtp/ids/")) == 2


def test_a_server_is_silent_before_an_id_of_its_clients_can_be_another_ones() -> None:
    bus = EtcdCluster()
    apart, other = bus.server(0), bus.server(1)
    client = bus.client("gas", servers=(0,), ids=iter((7,)))
    bus.run_until(lambda: is_established(client))
    bus.cut(client, other)
    bus.cut(apart, other)
    bus.parted.add(apart)
    rival = bus.client("rival", servers=(1,), ids=iter([7] * 100))
    bus.cut(rival, apart)
    bus.run_until(lambda: rival.machine.id == 7 and is_established(rival), 120)
    assert client.is_in(ClientState.SUSPENDED)


def test_a_server_without_proof_answers_nothing() -> None:
    bus = EtcdCluster()
    server = bus.server(0)
    client = bus.client("gas")
    bus.run_until(lambda: is_established(client))
    bus.parted.add(server)
    bus.run_until(lambda: server.is_in(ServerState.DETACHED))
    before = len(server.sent)
    assert is_established(client)
    client.machine.lookup(bus.now, 9)
    client.machine.set_data(bus.now, b"new")
    bus.pump(client)
    bus.client("late")
    bus.run(5)
    assert len(server.sent) == before


def test_a_lease_is_proven_from_the_start_of_its_renewal() -> None:
    etcd, registry = SimulatedEtcd(), EtcdRegistry(10.0, 10)
    registry.handle_start(0.0, Member(2, 1, ServerAddress.parse("tcp://127.0.0.1:1")))
    watched: StoreRequest | None = None
    following = 1
    for now in (0.7, 1.7, 2.7, 3.3, 5.3):
        registry.handle_time(now)
        # What is asked at one time is answered half a second later.
        while (request := registry.poll_request(now)) is not None:
            if request.task is StoreTask.WATCH:
                watched, following = request, int(request.body["create_request"]["start_revision"])
            else:
                answer = etcd.handle(now, request.path, request.body)
                registry.handle_answer(now + 0.5, request, answer)
        if watched is not None:
            events, following = etcd.changes(following)
            registry.handle_answer(now + 0.6, watched, {"result": {"events": events}})
    assert list(iter(registry.poll_change, None))[-1] == StoreReached()
    # The leases were renewed by requests at 3.3, and the last beat is of 5.3.
    registry.handle_time(13.2)
    assert registry.poll_change() is None
    registry.handle_time(13.3)
    assert registry.poll_change() == StoreLost()


@pytest.mark.parametrize(
    ("seconds", "state"), [(3, ServerState.ACTIVE), (11, ServerState.DETACHED)]
)
def test_a_server_whose_machine_was_suspended_knows_what_it_may_have_lost(
    seconds: float, state: ServerState
) -> None:
    bus = EtcdCluster()
    server = bus.server(0)
    client = bus.client("gas")
    bus.run_until(lambda: is_established(client))
    bus.run(5)
    bus.parted.add(server)
    bus.suspended += seconds
    # Before it sends anything it asks, with its own clock, which stood.
    assert server.machine.is_detached(bus.now) is (state is ServerState.DETACHED)
    bus.parted.clear()
    bus.run_until(lambda: is_active(server), 2)


def test_a_client_that_only_another_server_hears_stays() -> None:
    bus = EtcdCluster()
    servers = bus.server(0), bus.server(1)
    client, peer = bus.client("gas", (0, 1)), bus.client("peer", (0, 1))
    bus.run_until(lambda: is_established(client, peer))
    bus.cut(client, servers[0])
    bus.run(40)
    assert is_established(client, peer)
    assert not peer.of(PeerLeft)
    assert all(len(server.clients) == 2 for server in servers)
    bus.kill(client)
    bus.run(60)
    assert all(len(server.clients) == 1 for server in servers)


def test_an_id_that_one_server_keeps_reserved_is_gone_when_the_other_one_loses_its_holder() -> None:
    bus = EtcdCluster()
    servers = bus.server(0), bus.server(1)
    client = bus.client("gas", (0, 1))
    bus.run_until(lambda: is_established(client) and all(server.clients for server in servers))
    for server in servers:
        bus.cut(client, server)
    bus.run_until(lambda: not any(server.clients for server in servers))
    bus.heal()
    bus.cut(client, servers[0])
    bus.run_until(lambda: all(server.clients for server in servers), 5)
    bus.kill(client)
    bus.run_until(lambda: not any(server.clients for server in servers), 5)


@pytest.mark.parametrize("moment", [0.0, 0.033, 0.066, 0.099])
def test_an_id_that_two_servers_expire_at_once_rests(moment: float) -> None:
    bus = EtcdCluster()
    servers = bus.server(0), bus.server(1)
    client = bus.client("gas", (0, 1), ids=iter((7,)))
    bus.run_until(lambda: is_established(client) and all(server.clients for server in servers))
    bus.run(5 + moment)
    for server in servers:
        bus.cut(client, server)
    bus.run_until(lambda: not any(server.clients for server in servers))
    bus.run(1)
    assert bus.etcd.names("/sphtp/ids/00000007")


def test_who_leaves_is_gone_everywhere_at_once_and_its_id_rests() -> None:
    bus = EtcdCluster()
    servers = bus.server(0), bus.server(1)
    client = bus.client("gas", (0, 1), ids=iter((7,)))
    bus.run_until(lambda: is_established(client))
    bus.cut(client, servers[1])
    client.machine.leave(bus.now)
    bus.pump(client)
    bus.run(1)
    assert not any(server.clients for server in servers)
    rival = bus.client("rival", (0, 1), ids=iter((7,)))
    bus.run_until(lambda: is_established(rival))
    assert rival.machine.id != 7
    bus.run(15)
    assert len(bus.etcd.names("/sphtp/ids/")) == 4


def test_a_store_that_was_put_back_or_emptied_is_filled_again() -> None:
    bus = EtcdCluster()
    server = bus.server(0)
    client = bus.client("gas")
    bus.run_until(lambda: is_established(client))
    bus.run(30)
    bus.empty_store()
    bus.run(60)
    assert is_active(server)
    assert is_established(client)
    assert len(bus.etcd.names("/sphtp/ids/")) == 2


def test_many_clients_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sphtp_server.registry.keyspace.PAGE", 3)
    bus = EtcdCluster()
    first = bus.server(0)
    clients = [bus.client(str(number)) for number in range(8)]
    bus.run_until(lambda: is_established(*clients))
    second = bus.server(1)
    bus.run_until(lambda: set(first.clients) == set(second.clients) and is_active(second), 5)


def test_a_full_server_refuses_a_claim_that_it_made_before_it_was_full() -> None:
    bus = EtcdCluster()
    bus.capacity = 1
    server = bus.server(0)
    bus.run_until(lambda: is_active(server))
    for number in (7, 9):
        bus.inject(server, Announce(number, 5).encode())
    before = len(server.sent)
    bus.run(1)
    sent = [decode_message_untrusted(message.data) for message in server.sent[before:]]
    reasons = {one.simulation: REASON.first(one) for one in sent if one.command == Command.NACK}
    assert reasons == {9: Reason.FULL}
    assert server.machine.clients.keys() == {7}
    assert server.machine.counters[Count.OVER_MAX_CLIENTS] == 1
    # Its key does not stay.
    assert len(bus.etcd.names("/sphtp/ids/")) == 2


def test_an_etcd_that_takes_less_at_once_gets_less() -> None:
    bus = EtcdCluster()
    bus.etcd.most_operations = 2
    server = bus.server(0)
    clients = [bus.client(str(number)) for number in range(20)]
    bus.run_until(lambda: is_established(*clients), 20)
    bus.run(15)
    assert is_active(server)
    assert is_established(*clients)


def test_a_watch_that_is_always_cancelled_is_tried_ever_more_rarely() -> None:
    bus = EtcdCluster()
    bus.cancels_watches = True
    server = bus.server(0)
    bus.run(10)
    assert server.is_in(ServerState.DETACHED)
    whys = [event.why for event in server.of(RegistryFailing)]
    assert whys == ["changes of keys: canceled by etcd: permission denied"]
    bus.cancels_watches = False
    bus.run_until(lambda: is_active(server), 2)


def test_what_no_server_wrote_is_counted_and_keeps_its_id() -> None:
    bus = EtcdCluster()
    server = bus.server(0)
    bus.run_until(lambda: is_active(server))
    for name in ("ids/00000007/1/1", "ids/many", "members/tcp://a:1", "members/b"):
        bus.put_foreign(f"/sphtp/{name}", b"\xff{}")
    client = bus.client("gas", ids=iter((7,)))
    bus.run_until(lambda: is_established(client))
    assert client.machine.id != 7
    assert server.machine.status()["registry"]["malformed"] == 4
    assert len(server.machine.view.members) == 1
    assert client.of(Established)


def test_a_registration_at_the_key_of_another_holder_is_counted() -> None:
    bus = EtcdCluster()
    server = bus.server(0)
    bus.run_until(lambda: is_active(server))
    value = encode_registration(PeerRecord(7, 9), 2)
    bus.put_foreign(KEYSPACE.id(Holder(7, 5), 3), value)
    bus.run(1)
    assert server.machine.status()["registry"]["malformed"] == 1
    assert is_active(server)
    assert not server.clients


def test_a_registration_has_one_key() -> None:
    key = KEYSPACE.id(Holder(7, 9), 2)
    assert KEYSPACE.parse_id_untrusted(key) == IdKey(7, 9, 2)
    for other in (
        "/sphtp/ids/7/9/2",
        key.replace("/00000007/", "/-0000007/"),
        key.replace("/00000007/", "/0000_007/"),
        key.removeprefix(KEYSPACE.prefix),
        key + "\n",
    ):
        with pytest.raises(RemoteError):
            KEYSPACE.parse_id_untrusted(other)


@each(
    ("parse", "document"),
    [
        (parse_revision_untrusted, {"header": []}),
        (parse_revision_untrusted, {"header": {"revision": "many"}}),
        (parse_revision_untrusted, {"header": {"revision": float("inf")}}),
        (parse_lease_untrusted, {"result": 1}),
        (parse_lease_untrusted, {"ID": [], "TTL": "1"}),
        (partial(parse_outcomes_untrusted, count=1), {"responses": {}}),
        (partial(parse_outcomes_untrusted, count=1), {"responses": [{"response_txn": 1}]}),
        (partial(parse_outcomes_untrusted, count=2), {"responses": [{"response_txn": {}}]}),
        (parse_entries_untrusted, {"kvs": [1]}),
        (parse_entries_untrusted, {"kvs": [{"key": "%"}]}),
        (parse_entries_untrusted, {"kvs": [{"key": b64encode(b"\xff").decode()}]}),
        (parse_watch_untrusted, {}),
        (parse_watch_untrusted, {"result": {"compact_revision": "x"}}),
        (parse_events_untrusted, {"result": {"events": [{"kv": []}]}}),
    ],
)
def test_documents_that_etcd_never_sends_are_refused(
    parse: Callable[[Any], object], document: dict[str, Any]
) -> None:
    with pytest.raises(RemoteError):
        parse(document)


@each(
    "value",
    [
        *(b"", b"{}", b"[]", b"7", b'{"id": 2, "nonce": "1"}', b"\xff", 100_000 * b"["),
        b'{"id": "2", "nonce": "1", "address": 7}',
    ],
)
def test_values_that_no_server_wrote_are_refused(value: bytes) -> None:
    keyspace = Keyspace("gas")
    for parse in (keyspace.parse_member_untrusted, keyspace.parse_registration_untrusted):
        with pytest.raises(RemoteError):
            parse(value)
