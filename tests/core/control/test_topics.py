"""Topics in the roster: told by those who have sources, seen by everybody, changed like data."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_messages import Announce, ClientData
from sphtp.core.control.codec import (
    BLOB,
    NONCE,
    REVISION,
    TOPICS,
    Message,
    Parameter,
    decode_message_untrusted,
)
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.records import (
    MAX_NAMES,
    MAX_NAMES_SIZE,
    PeerRecord,
    check_topics,
    size_of_names,
)
from sphtp.core.control.registry import MemoryRegistry
from sphtp.core.control.server_messages import IdNack, Peers, Registered
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Command, DataId, Reason
from sphtp.core.topics import LONGEST_TOPIC
from sphtp.errors import SettingsError, WireError
from sphtp.testing.cluster import SimulatedCluster
from tests.cases import each
from tests.core.control.helpers import Node, active_server, ask, established, said

ONE, MANY = ("positions",), ("positions", "位置/1")
FULL = tuple(f"{number:031}" for number in range(MAX_NAMES))


def two_servers(bus: SimulatedCluster) -> tuple[Node, Node]:
    servers = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(server.machine.view.active) == 2 for server in servers))
    return servers


def introduced(bus: SimulatedCluster, *clients: Node) -> None:
    """Let all know each other, and nothing be on its way any more."""
    established(bus, *clients)
    bus.run(2)


def tell(bus: SimulatedCluster, client: Node, *topics: str) -> None:
    client.machine.set_topics(bus.now, topics)
    bus.pump(client)


def seen(observer: Node, client: Node) -> tuple[str, ...]:
    """The topics that a server or a client sees of a client."""
    return seen_of(observer, client.machine.id)


def seen_of(observer: Node, number: int) -> tuple[str, ...]:
    machine = observer.machine
    known = machine.peers if isinstance(machine, ClientMachine) else machine.clients
    record: PeerRecord | None = known.get(number)
    return () if record is None else record.topics


# Told and seen


def test_every_server_and_peer_learns_topics() -> None:
    bus = SimulatedCluster()
    servers = two_servers(bus)
    one, other = bus.client("one", (0, 1)), bus.client("other", (0, 1), packed=b"spheres")
    established(bus, one, other)
    tell(bus, one, *MANY)
    bus.run_until(lambda: seen(other, one) == MANY)
    bus.run_until(lambda: all(seen(server, one) == MANY for server in servers))
    assert seen(one, other) == ()
    bus.run_until(lambda: one.machine.peers[other.machine.id].data == b"spheres")


def test_a_change_is_told_as_one() -> None:
    bus = SimulatedCluster()
    active_server(bus)
    one, other = bus.client("one", packed=b"spheres"), bus.client("other")
    introduced(bus, one, other)
    for topics in (ONE, MANY, ()):
        other.events.clear()
        tell(bus, one, *topics)
        bus.run_until(lambda: bool(other.of(PeerChanged)))
        record = other.of(PeerChanged)[-1].peer
        assert (record.topics, record.packed) == (topics, b"spheres")
        assert other.of(PeerEntered) == []


def test_data_that_changes_leaves_topics_as_they_are() -> None:
    bus = SimulatedCluster()
    active_server(bus)
    one, other = bus.client("one"), bus.client("other")
    introduced(bus, one, other)
    tell(bus, one, *ONE)
    one.machine.set_data(bus.now, b"new")
    bus.pump(one)
    bus.run_until(lambda: other.machine.peers[one.machine.id].data == b"new")
    assert seen(other, one) == ONE


def test_topics_told_before_the_registration_are_seen_after_it() -> None:
    bus = SimulatedCluster()
    active_server(bus)
    one, other = bus.client("one"), bus.client("other")
    tell(bus, one, *ONE)
    established(bus, one, other)
    bus.run_until(lambda: seen(other, one) == ONE)


def test_whoever_comes_later_learns_them_from_lists() -> None:
    bus = SimulatedCluster()
    active_server(bus)
    one = bus.client("one")
    established(bus, one)
    tell(bus, one, *FULL)
    server, client = bus.server(1, join=[0]), bus.client("later")
    bus.run_until(lambda: seen(server, one) == FULL)
    bus.run_until(lambda: seen(client, one) == FULL)


def test_topics_that_got_lost_are_told_again() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    one, other = bus.client("one"), bus.client("other")
    established(bus, one, other)
    bus.loss = 1.0
    tell(bus, one, *ONE)
    bus.loss = 0.0
    assert seen(server, one) == ()
    bus.run_until(lambda: seen(other, one) == ONE, 5.0)


def test_a_client_keeps_them_under_another_id() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    one, other = bus.client("one", ids=iter((7,))), bus.client("other")
    established(bus, one, other)
    tell(bus, one, *ONE)
    bus.run_until(lambda: seen(other, one) == ONE)
    nack = IdNack(server.machine.id, 7, one.machine.nonce, Reason.CONFLICT)
    bus.inject(one, nack.encode())
    bus.run_until(lambda: one.machine.id != 7)
    bus.run_until(lambda: seen(other, one) == ONE)


def test_topics_are_deleted_with_their_client() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    one = bus.client("one")
    established(bus, one)
    tell(bus, one, *ONE)
    bus.run_until(lambda: seen(server, one) == ONE)
    one.machine.leave(bus.now)
    bus.pump(one)
    bus.run_until(lambda: bool(server.of(PeerLeft)))
    assert server.of(PeerLeft)[0].peer.topics == ()


# Beside programs that know nothing of them


def registered(bus: SimulatedCluster, server: Node, *topics: str, revision: int = 1) -> None:
    ask(bus, server, Announce(7, 5))
    bus.inject(server, ClientData(7, 5, revision, b"", topics).encode())


def test_data_without_topics_means_none() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    registered(bus, server, *ONE)
    assert server.machine.clients[7].topics == ONE
    bus.inject(server, ClientData(7, 5, 2, b"new").encode())
    assert server.machine.clients[7].topics == ()


def test_a_peer_keeps_the_topics_of_a_revision() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x")
    established(bus, client)

    def hear(revision: int, *topics: str) -> tuple[str, ...]:
        record = PeerRecord(7, 5, revision=revision, topics=topics)
        bus.inject(client, Peers(server.machine.id, 0, (record,)).encode())
        return seen_of(client, 7)

    assert hear(1) == ()
    assert hear(1, *ONE) == ONE
    assert hear(1) == ONE
    assert hear(1, "others") == ONE
    assert hear(2) == ()
    assert hear(1, *ONE) == ()
    assert hear(2, *MANY) == MANY
    assert len(client.of(PeerEntered)) == 1
    assert [event.peer.topics for event in client.of(PeerChanged)] == [ONE, (), MANY]


def test_a_server_that_tells_no_topics_takes_none_away() -> None:
    bus = SimulatedCluster()
    servers = two_servers(bus)
    client = bus.client("x", (0,))
    established(bus, client)
    tell(bus, client, *ONE)
    bus.run_until(lambda: seen(servers[1], client) == ONE)
    record = replace(servers[1].machine.clients[client.machine.id], topics=())
    bus.inject(servers[1], Registered(servers[0].machine.id, (record,)).encode())
    assert seen(servers[1], client) == ONE


def test_topics_come_after_a_server_that_told_the_revision_without_them() -> None:
    bus = SimulatedCluster()
    servers = two_servers(bus)
    record = PeerRecord(7, 5, data=b"data", revision=1)
    bus.inject(servers[1], Registered(servers[0].machine.id, (record,)).encode())
    bus.inject(servers[1], ClientData(7, 5, 1, b"data", ONE).encode())
    assert servers[1].machine.clients[7].topics == ONE
    # The first ones count.
    bus.inject(servers[1], ClientData(7, 5, 1, b"lies", MANY).encode())
    held = servers[1].machine.clients[7]
    assert (held.topics, held.data) == (ONE, b"data")


def test_lists_with_and_without_topics_have_one_digest() -> None:
    """So that programs which know nothing of topics do not ask for a list again and again."""
    digests = []
    for topics in ((), ONE):
        bus = SimulatedCluster()
        registry = MemoryRegistry(10.0, 4)
        server = bus.server(0, new_cluster=True, registry=registry)
        bus.run(0.5)
        registered(bus, server, *topics)
        digests.append(registry.digest)
    assert digests[0] == digests[1]


def test_an_older_reader_sees_record_and_data_as_before() -> None:
    told = Peers(4, 0, (PeerRecord(7, 5, data=b"data", revision=1, topics=ONE),))
    peer, topics = decode_message_untrusted(told.encode()).parameters
    (before,) = decode_message_untrusted(
        Peers(4, 0, (PeerRecord(7, 5, data=b"data", revision=1),)).encode()
    ).parameters
    assert peer == before
    assert topics.id == DataId.PEER_TOPICS
    data = decode_message_untrusted(ClientData(7, 5, 1, b"data", ONE).encode()).parameters
    assert data[:-1] == decode_message_untrusted(ClientData(7, 5, 1, b"data").encode()).parameters
    assert data[-1].id == DataId.TOPICS


# Bounds


@each(
    ("topics", "complaint"),
    [
        ([f"{number}" for number in range(MAX_NAMES + 1)], "65 topics; allowed are 64"),
        ([*FULL[:-1], FULL[-1] + "x"], "take 2049 bytes.* allowed are 2048"),
        ([""], "topic is ''"),
        (["x" * (LONGEST_TOPIC + 1)], "1 to 255 bytes"),
        (["a\nb"], "printable"),
    ],
)
def test_topics_over_the_bounds_are_refused_by_name(topics: list[str], complaint: str) -> None:
    bus = SimulatedCluster()
    active_server(bus)
    client = bus.client("x")
    established(bus, client)
    with pytest.raises(SettingsError, match=complaint):
        client.machine.set_topics(bus.now, topics)
    bus.pump(client)
    assert said(client, Command.DATA) == []


def test_a_topic_of_two_sources_is_told_once() -> None:
    assert check_topics(("b", "a", "b")) == ("b", "a")


def test_as_many_topics_as_are_allowed_are_taken() -> None:
    assert size_of_names(FULL) == MAX_NAMES_SIZE
    assert check_topics(FULL) == FULL
    assert read(TOPICS.of(FULL).data) == FULL


def read(data: bytes) -> tuple[str, ...]:
    return TOPICS.decode(data)


def packed(*names: bytes) -> bytes:
    return b"".join(bytes([len(name)]) + name for name in names)


@each(
    "data",
    [
        b"\x02a",
        packed(b""),
        packed(b"a", b"a"),
        packed(b"\xff"),
        packed(b"\xed\xa0\x80"),
        packed(b"a\x00"),
        packed(b"\x7f"),
        packed("\x9f".encode()),
        packed(*(b"%d" % number for number in range(MAX_NAMES + 1))),
        packed(*(bytes([65 + number]) * LONGEST_TOPIC for number in range(8)), b"x"),
    ],
)
def test_malformed_topics_and_groups_change_nothing(data: bytes) -> None:
    with pytest.raises(WireError):
        read(data)
    bus = SimulatedCluster()
    server = active_server(bus)
    registered(bus, server, *ONE)
    for kind in (DataId.TOPICS, DataId.GROUPS):
        parameters = (NONCE.of(5), REVISION.of(2), BLOB.of(b"new"), Parameter(kind, data))
        bus.inject(server, Message(7, 7, Command.DATA, parameters).encode())
    held = server.machine.clients[7]
    assert (held.revision, held.topics, held.groups) == (1, ONE, ())
    assert server.machine.counters[Count.MALFORMED] == 2


names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40)


@given(st.lists(names, unique=True, max_size=12))
def test_any_names_travel(topics: list[str]) -> None:
    told = check_topics(topics)
    assert told == tuple(topics)
    assert read(TOPICS.of(told).data) == told


@given(st.binary(max_size=40))
def test_any_bytes_are_topics_or_refused(data: bytes) -> None:
    try:
        topics = read(data)
    except WireError:
        return
    assert TOPICS.of(topics).data == data


def test_a_machine_takes_topics_before_it_has_heard_anybody() -> None:
    machine = ClientMachine(
        random.Random(1), ControlTimers(), secrets=random.Random(2), servers=[], candidates=[]
    )
    machine.handle_start(0.0)
    machine.set_topics(0.0, ONE)
    assert machine.poll_transmit() is None
