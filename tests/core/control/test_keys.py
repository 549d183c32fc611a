"""Public keys in the roster: told by their holders, carried to everybody, and never replaced."""

import random
from dataclasses import replace

import pytest

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_messages import Announce
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import PeerChanged, PeerEntered
from sphtp.core.control.records import PeerRecord
from sphtp.core.control.registry import MemoryRegistry
from sphtp.core.control.server_messages import Peers, Registered
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import DataId
from sphtp.errors import SettingsError
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import Node, active_server, ask, established
from tests.core.control.samples import KEY

OTHER = bytes(32)


def two_servers(bus: SimulatedCluster) -> tuple[Node, Node]:
    servers = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(server.machine.view.active) == 2 for server in servers))
    return servers


def test_every_server_and_peer_learns_a_key() -> None:
    bus = SimulatedCluster()
    servers = two_servers(bus)
    one, other = bus.client("one", (0, 1), key=KEY), bus.client("other", (0, 1))
    established(bus, one, other)
    bus.run_until(lambda: one.machine.id in other.machine.peers)
    bus.run_until(lambda: other.machine.id in one.machine.peers)
    assert other.machine.peers[one.machine.id].key == KEY
    assert one.machine.peers[other.machine.id].key == b""
    assert [server.machine.clients[one.machine.id].key for server in servers] == [KEY, KEY]


def test_a_server_that_joins_later_learns_keys_from_the_snapshot() -> None:
    bus = SimulatedCluster()
    active_server(bus)
    client = bus.client("x", key=KEY)
    established(bus, client)
    later = bus.server(1, join=[0])
    bus.run_until(lambda: client.machine.id in later.machine.clients)
    assert later.machine.clients[client.machine.id].key == KEY


def test_a_holder_keeps_its_first_key() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    assert ask(bus, server, Announce(7, 5, key=KEY)) != []
    assert ask(bus, server, Announce(7, 5, key=OTHER)) == []
    assert server.machine.clients[7].key == KEY
    assert server.machine.counters[Count.FOREIGN_KEY] == 1
    # Whoever tells none says nothing against it.
    assert ask(bus, server, Announce(7, 5)) != []
    assert server.machine.clients[7].key == KEY


def test_a_key_may_come_after_a_registration_without() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    ask(bus, server, Announce(7, 5))
    ask(bus, server, Announce(7, 5, key=KEY))
    assert server.machine.clients[7].key == KEY


def test_a_server_that_tells_no_keys_takes_none_away() -> None:
    bus = SimulatedCluster()
    servers = two_servers(bus)
    client = bus.client("x", (0,), key=KEY)
    bus.run_until(lambda: client.machine.id in servers[1].machine.clients)
    record = PeerRecord(client.machine.id, client.machine.nonce, data=b"new", revision=9)
    bus.inject(servers[1], Registered(servers[0].machine.id, (record,)).encode())
    held = servers[1].machine.clients[client.machine.id]
    assert (held.key, held.data) == (KEY, b"new")


def test_a_peer_keeps_the_key_that_was_told_first() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    client = bus.client("x")
    established(bus, client)
    for key in (KEY, b"", OTHER):
        bus.inject(client, Peers(server.machine.id, 0, (PeerRecord(7, 5, key=key),)).encode())
    assert client.machine.peers[7].key == KEY
    assert [event.peer.id for event in client.of(PeerEntered)] == [7]
    assert client.of(PeerChanged) == []


def test_lists_with_and_without_keys_have_one_digest() -> None:
    """So that programs which know nothing of keys do not ask for a list again and again."""
    bus = SimulatedCluster()
    registry = MemoryRegistry(10.0, 4)
    server = bus.server(0, new_cluster=True, registry=registry)
    bus.run(0.5)
    ask(bus, server, Announce(7, 5))
    without = registry.digest
    ask(bus, server, Announce(7, 5, key=KEY))
    assert registry.digest == without


def test_an_older_reader_sees_the_record_as_before() -> None:
    record = PeerRecord(7, 5, data=b"data", key=KEY)
    told = decode_message_untrusted(Peers(4, 0, (record,)).encode())
    (before,) = decode_message_untrusted(
        Peers(4, 0, (replace(record, key=b""),)).encode()
    ).parameters
    assert told.parameters[0] == before
    assert [parameter.id for parameter in told.parameters[1:]] == [DataId.PEER_KEY]


@pytest.mark.parametrize("size", [1, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(SettingsError, match="public key"):
        ClientMachine(
            random.Random(1),
            ControlTimers(),
            secrets=random.Random(2),
            servers=[],
            candidates=[],
            key=bytes(size),
        )
