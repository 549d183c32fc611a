"""Many clients at once: what is said per client is said together."""

from collections import Counter

import pytest

from sphtp.core.control import codec
from sphtp.core.control.client_messages import Announce, Lookup
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import (
    ACKED,
    MAX_MESSAGE,
    NONCE,
    PEER,
    Message,
    Parameter,
    decode_message_untrusted,
)
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import Subscribe, Unsubscribe, topic
from sphtp.core.control.records import Candidate, Holder
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import (
    EVERYBODY,
    FEATURES,
    RESTRICTED,
    SHARDED,
    WITHOUT_PRESENCE,
    Command,
    shard_topic,
)
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import Node, is_established, said
from tests.soaked import soaked


def batch(bus: SimulatedCluster, server: Node, *messages: Announce | Lookup) -> list[Message]:
    """Give a server several messages at once; return what it says to clients then."""
    before = len(server.sent)
    for message in messages:
        server.machine.handle_message(bus.now, message.encode())
    bus.pump(server)
    sent = [decode_message_untrusted(out.data) for out in server.sent[before:]]
    return [m for m in sent if m.command in (Command.ACK, Command.PEERS)]


def test_each_client_is_acknowledged_by_itself_and_very_many_together() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    news, *acks = batch(bus, server, *(Announce(n, n) for n in (7, 9, 11)))
    assert [(m.command, m.simulation, NONCE.need(m)) for m in acks] == [
        (Command.ACK, n, n) for n in (7, 9, 11)
    ]
    assert [record.id for record in PEER.every(news)] == [7, 9, 11]
    bus.run(0.5)
    crowd = range(13, 413, 2)
    news, many = batch(bus, server, *(Announce(n, n) for n in (7, *crowd)))[-2:]
    assert many.simulation == EVERYBODY
    assert {holder.id for holder in ACKED.every(many)} >= set(crowd)
    assert [record.id for record in PEER.every(news)] == list(crowd)


@pytest.mark.parametrize(("expiry", "more"), [(10.0, 0), (0.4, 1)])
def test_of_a_crowd_a_few_use_up_the_burst_and_one_batch_answers_all_others(
    expiry: float, more: int
) -> None:
    """With a short expiry, the pause is over before the last of them announce."""
    bus = SimulatedCluster(timers=ControlTimers(heartbeat=0.18, jitter=0, expiry=expiry))
    server = bus.server(0, new_cluster=True)
    bus.run(0.55)  # so that no heartbeat takes the batch along
    machine, now = server.machine, bus.now
    batches: list[int] = []

    def flush() -> None:
        acked = 0
        while (out := machine.poll_transmit()) is not None:
            message = decode_message_untrusted(out.data)
            if message.command == Command.ACK:
                acked += max(1, len(ACKED.every(message)))
        batches.extend([acked] if acked else [])

    for number in range(3, 4003, 2):
        now += 15e-6
        machine.handle_message(now, Announce(number, number).encode())
        flush()
    while sum(batches) < 2000:
        due = machine.poll_timeout()
        assert due is not None
        now = due
        machine.handle_timeout(now)
        flush()
    alone = [acked for acked in batches if acked == 1]
    assert batches[: len(alone)] == alone
    assert len(alone) < 20
    assert len(batches) == len(alone) + 1 + more
    assert sum(batches) == 2000
    assert now < bus.now + 0.1


def rest(server: Node, now: float) -> float:
    """Return the seconds until an answer leaves that becomes due now."""
    server.machine.handle_message(now, Announce(60_001, 7).encode())
    due: float | None = server.machine.poll_timeout()
    assert due is not None
    return due - now


@pytest.mark.parametrize(("expiry", "longest"), [(4.0, 0.4), (40.0, 1.0)])
def test_a_server_pauses_for_a_second_or_a_tenth_of_the_expiry_at_most(
    expiry: float, longest: float
) -> None:
    bus = SimulatedCluster(timers=ControlTimers(heartbeat=expiry / 4, expiry=expiry))
    server = bus.server(0, new_cluster=True)
    bus.run(0.1)
    batch(bus, server, *(Announce(n, n) for n in range(3, 4003, 2)))
    assert rest(server, bus.now) == pytest.approx(longest)


def test_the_pause_after_acks_to_shards_has_the_cost_of_the_one_that_a_client_receives() -> None:
    bus = SimulatedCluster(timers=ControlTimers(heartbeat=10, expiry=40))
    server = bus.server(0, new_cluster=True, limits=ServerLimits(announces_per_second=10_000))
    bus.run(0.1)
    announced = [Announce(n, n, features=SHARDED) for n in range(3, 8003, 2)]
    batch(bus, server, *announced)
    bus.run(1.1)
    again = batch(bus, server, *announced)  # without news, which would cost as much
    assert {m.simulation for m in again} == set(range(2, 18, 2))
    # To filter out all eight would take the clients 0.13 s, and a pause of four times that.
    assert rest(server, bus.now) == pytest.approx(1)


@pytest.mark.parametrize("to", [EVERYBODY, 8])
def test_of_an_ack_for_many_a_client_decodes_its_own_part_only(to: int) -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("client", ids=iter((7,)))
    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    own = Holder(client.machine.id, client.machine.nonce)
    others = (ACKED.of(Holder(9, 7)), Parameter(ACKED.id, b"short"))

    def hear(*acked: Parameter) -> bool:
        message = Message(to, server.machine.id, Command.ACK, acked)
        client.machine.handle_message(bus.now, message.encode())
        assert client.machine.counters[Count.MALFORMED] == 0
        return is_established(client)

    assert not hear(*others)
    assert not hear(*others, ACKED.of(Holder(own.id, own.nonce ^ 1)))
    assert hear(*others, ACKED.of(own))


def test_a_client_that_draws_another_id_is_acknowledged_in_an_ack_for_many() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    bus.inject(server, Announce(7, 7).encode())
    client = bus.client("client", ids=iter((7, 9)))
    bus.run_until(lambda: client.machine.id == 9)
    own = Holder(9, client.machine.nonce)
    many = Message(
        EVERYBODY, server.machine.id, Command.ACK, (*map(ACKED.of, (Holder(7, 7), own)),)
    )
    client.machine.handle_message(bus.now, many.encode())
    assert is_established(client)


def test_a_heartbeat_takes_the_batch_along_and_the_next_batch_waits_for_it() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    batch(bus, server, *(Announce(n, n) for n in range(3, 2003, 2)))
    machine, now = server.machine, bus.now
    for number in range(4):
        now += 0.11  # connections come up, and each causes a heartbeat
        machine.handle_message(now, Announce(2003 + 2 * number, 7).encode())
        machine.handle_connected(now)
        machine.handle_timeout(now)
        while machine.poll_transmit() is not None:
            pass
    machine.handle_message(now, Announce(2203, 7).encode())
    due = machine.poll_timeout()
    assert due is not None
    assert due > now + 0.5


def test_acks_that_do_not_fit_one_message_go_to_shards_of_the_clients_with_that_feature() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    ids = range(3, 8003, 2)
    features = (SHARDED, SHARDED | RESTRICTED, FEATURES, RESTRICTED)
    announced = [Announce(n, n, features=features[n // 2 % 4]) for n in ids]
    answers = [m for m in batch(bus, server, *announced) if m.command == Command.ACK]
    acked = {m.simulation: [holder.id for holder in ACKED.every(m)] for m in answers}
    assert len(acked) == len(answers)
    assert acked.pop(EVERYBODY) == [n for n in ids if n // 2 % 4 == 2]
    assert acked.pop(WITHOUT_PRESENCE) == [n for n in ids if n // 2 % 4 == 3]
    others = [n for n in ids if n // 2 % 4 < 2]
    shards = {shard_topic(n) for n in others}
    assert acked == {to: [n for n in others if shard_topic(n) == to] for to in shards}
    assert shards <= set(range(2, 18, 2))


@pytest.mark.parametrize(
    ("presence", "features"), [(None, SHARDED), (["group"], SHARDED | RESTRICTED)]
)
def test_a_client_sends_its_features_with_every_announcement(
    presence: list[str] | None, features: int
) -> None:
    bus = SimulatedCluster(timers=ControlTimers(announce_deadline=9))
    server = bus.server(0, new_cluster=True)
    client = bus.client("client", presence=presence)
    bus.run_until(lambda: client.is_in(ClientState.ANNOUNCING))
    bus.cut(client, server)
    bus.run(2.5)
    repeated = len(said(client, Command.ANNOUNCE))
    bus.heal()
    bus.run_until(lambda: is_established(client))
    client.machine.set_candidates(bus.now, [Candidate("::1", 7)])
    bus.run(2.5)
    announced = said(client, Command.ANNOUNCE)
    assert len(announced) > repeated + 1 > 3
    assert {codec.FEATURES.first(m) for m in announced} == {features}


def test_a_client_whose_next_id_is_in_the_same_shard_keeps_the_topic_of_the_shard() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    bus.inject(server, Announce(7, 7).encode())
    client = bus.client("client", ids=iter((7, 23)))
    bus.run_until(lambda: client.machine.id == 23)
    drawn = client.commands.index(Subscribe(topic(7)))
    assert client.commands[drawn:] == [
        Subscribe(topic(7)),
        Subscribe(topic(8)),
        Subscribe(topic(23)),
        Unsubscribe(topic(7)),
    ]


def start(number: int, servers: int) -> tuple[float, float]:
    """Start clients at once. Return the acks, and all messages, that one receives in 0.5 s."""
    bus = SimulatedCluster(timers=ControlTimers())
    most = max(4096, number)
    limits = ServerLimits(most, most, most, max_answers=2 * most)
    first = bus.server(0, new_cluster=True, limits=limits)
    others = [bus.server(n, join=[0], limits=limits) for n in range(1, servers)]
    while any(len(server.machine.view.active) < servers for server in (first, *others)):
        bus.run(0.25)
    clients = [bus.client(f"{n}", range(servers), presence=[]) for n in range(number)]
    bus.run(0.5)
    # Not all of them in one assertion: a description of thousands would take gigabytes.
    assert sum(map(is_established, clients)) == number
    kinds = Counter(data[8] for client in clients for data in client.received)
    return kinds[Command.ACK] / number, kinds.total() / number


@pytest.mark.parametrize(
    ("few", "many", "servers"),
    [(400, 4000, 1), pytest.param(1000, 10_000, 10, marks=pytest.mark.soak)],
)
def test_a_client_receives_no_more_messages_in_a_larger_start(
    few: int, many: int, servers: int
) -> None:
    few_acks, few_messages = start(few, servers)
    many_acks, many_messages = start(many, servers)
    assert servers <= many_acks <= few_acks < 1.1 * servers
    assert many_messages <= few_messages < 2.1 * servers + 1


def test_plain_clients_are_acknowledged_one_by_one() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    answers = batch(bus, server, *(Announce(n, 0) for n in (7, 9)))
    acks = [m for m in answers if m.command == Command.ACK]
    assert [(m.simulation, m.parameters) for m in acks] == [(7, ()), (9, ())]


def test_the_list_of_peers_goes_to_one_or_to_everybody() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    batch(bus, server, *(Announce(n, n) for n in (7, 9, 11)))
    assert [m.simulation for m in batch(bus, server, Lookup(7, 7))] == [7]
    bus.run(0.1)
    assert [m.simulation for m in batch(bus, server, Lookup(7, 7), Lookup(9, 9))] == [EVERYBODY]
    assert batch(bus, server, Lookup(7, 7, target=4444)) == []


def test_thousands_of_answers_are_cut_into_messages_that_fit() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    candidates = tuple(Candidate("::1", port) for port in range(1, 9))
    ids = range(3, 8195, 2)
    answers = batch(bus, server, *(Announce(n, n, candidates) for n in ids))
    acks = [m for m in answers if m.command == Command.ACK]
    assert [holder.id for m in acks for holder in ACKED.every(m)] == list(ids)
    assert len(acks) == 2
    assert all(len(m.encode()) < MAX_MESSAGE for m in answers)
    assert len(server.machine.clients) == len(ids)


@pytest.mark.parametrize("number", [60, *soaked([300])])
def test_hundreds_of_clients_announce_at_once(number: int) -> None:
    bus = SimulatedCluster(delay=(0.001, 0.001))
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    clients = [bus.client(str(n)) for n in range(number)]
    bus.run_until(lambda: is_established(*clients), 10)
    assert bus.now < 105
    bus.run(3)
    ids = {client.machine.id for client in clients}
    assert len(ids) == number
    assert set(server.machine.clients) == ids
    assert all(len(client.machine.peers) == number - 1 for client in clients)
    assert sum(m.command == Command.ACK for m in said(server)) < 20
    assert sum(m.command == Command.PEERS for m in said(server)) < 60


@pytest.mark.soak
def test_60_clients_that_want_one_id_all_get_different_ones() -> None:
    bus = SimulatedCluster(delay=(0.001, 0.05))
    servers = [bus.server(0, new_cluster=True), bus.server(1, join=[0])]
    bus.run(5)
    clients = [bus.client(str(n), ids=iter((7,))) for n in range(60)]
    bus.run_until(lambda: is_established(*clients), 60)
    ids = {client.machine.id for client in clients}
    assert len(ids) == 60
    bus.run(12)
    assert all(set(server.machine.clients) == ids for server in servers)
    assert all(client.is_in(ClientState.ESTABLISHED) for client in clients)
