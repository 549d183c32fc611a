"""Presence of some groups only: who is told of whom, and what the others cost."""

import random
from collections.abc import Iterable

import pytest

from sphtp.core.control.client_messages import Announce, Lookup
from sphtp.core.control.codec import PART, PEER, TARGET, decode_message_untrusted
from sphtp.core.control.counters import Count
from sphtp.core.control.interest import group_topic
from sphtp.core.control.outputs import PeerChanged, PeerEntered, PeerLeft, PeerUnknown, UserMessage
from sphtp.core.control.records import MAX_LOOKED_UP, MAX_WATCHES, Digest, Watch
from sphtp.core.control.vocabulary import Command, Reason
from sphtp.errors import SettingsError
from sphtp.testing.cluster import SimulatedClient, SimulatedCluster, SimulatedServer
from tests.core.control.helpers import active_server, ask, established, heard, said
from tests.soaked import soaked


def entered(
    bus: SimulatedCluster,
    name: str,
    groups: Iterable[str] = (),
    presence: Iterable[str] | None = None,
    servers: Iterable[int] = (0,),
) -> SimulatedClient:
    client = bus.client(name, servers, presence=presence)
    client.machine.set_groups(bus.now, groups)
    established(bus, client)
    return client


def two_servers(bus: SimulatedCluster) -> tuple[SimulatedServer, SimulatedServer]:
    servers = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(server.machine.view.active) == 2 for server in servers))
    return servers


def names(client: SimulatedClient) -> set[str]:
    return {peer.name for peer in client.peers.values()}


def test_a_client_sees_the_members_of_its_groups_and_nobody_else() -> None:
    bus = SimulatedCluster()
    two_servers(bus)
    both = (0, 1)
    entered(bus, "before", ["fluid"], servers=both)
    entered(bus, "solid-1", ["solid"], servers=both)
    watcher = entered(bus, "watcher", ["fluid"], ["fluid", "empty"], both)
    nobody = entered(bus, "nobody", [], [], both)
    everybody = entered(bus, "everybody", servers=both)
    bus.run_until(lambda: names(watcher) == {"before"})
    after = entered(bus, "after", ["solid", "fluid"], servers=both)
    bus.run_until(lambda: names(watcher) == {"before", "after"})
    after.machine.set_data(bus.now, b"\x07")
    bus.pump(after)
    bus.run_until(lambda: watcher.peers[after.id].data == 7)
    # It leaves the group, and enters it again; then it leaves for good.
    for groups, seen in ((["solid"], {"before"}), (["fluid"], {"before", "after"})):
        after.machine.set_groups(bus.now, groups)
        bus.pump(after)
        bus.run_until(lambda seen=seen: names(watcher) == seen)  # type: ignore[misc]
    after.machine.leave(bus.now)
    bus.pump(after)
    bus.run_until(lambda: names(watcher) == {"before"})
    assert {event.peer.name for event in watcher.of(PeerEntered)} == {"before", "after"}
    assert [event.reason for event in watcher.of(PeerLeft)] == [Reason.LEFT] * 2
    bus.run_until(lambda: names(everybody) == {"before", "solid-1", "watcher", "nobody"})
    assert nobody.of(PeerEntered) == []


def test_a_peer_that_is_looked_up_is_seen_whatever_its_groups() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    other, watcher = entered(bus, "other", ["solid"]), entered(bus, "watcher", [], ["fluid"])
    watcher.machine.lookup(bus.now, other.id)
    watcher.machine.lookup(bus.now, 99)
    bus.pump(watcher)
    bus.run_until(lambda: names(watcher) == {"other"} and bool(watcher.of(PeerUnknown)))
    assert [event.id for event in watcher.of(PeerUnknown)] == [99]
    other.machine.set_data(bus.now, b"\x07")
    bus.pump(other)
    bus.run_until(lambda: bool(watcher.of(PeerChanged)), 4)
    assert watcher.peers[other.id].data == 7
    bus.kill(other)
    bus.run_until(lambda: other.id not in server.clients)
    bus.run_until(lambda: not watcher.peers, 4)
    assert [event.reason for event in watcher.of(PeerLeft)] == [Reason.EXPIRED]


def test_the_interest_can_change() -> None:
    bus = SimulatedCluster()
    two_servers(bus)
    for name in ("fluid", "solid", "air"):
        entered(bus, name, [name], servers=(0, 1))
    watcher = entered(bus, "watcher", [], ["fluid"], (0, 1))
    for presence, seen in (
        (["solid", "air"], {"solid", "air"}),
        (None, {"fluid", "solid", "air"}),
        ([], set[str]()),
        (["fluid"], {"fluid"}),
    ):
        watcher.machine.set_presence(bus.now, presence)
        bus.pump(watcher)
        bus.run_until(lambda seen=seen: names(watcher) == seen, 5)  # type: ignore[misc]
        bus.run(5)
        assert names(watcher) == seen
    with pytest.raises(SettingsError, match="group"):
        watcher.machine.set_presence(bus.now, [""])
    assert watcher.machine.is_watching("fluid")
    assert not watcher.machine.is_watching("solid")


# In the last of the quick ones a peer changed its groups, and left, and one server's list had both.
@pytest.mark.parametrize("seed", [0, 4, *soaked((1, 2, 3, 5))])
def test_whatever_is_lost_the_watchers_agree_with_the_servers_in_the_end(seed: int) -> None:
    bus = SimulatedCluster(seed, loss=0.2)
    servers = list(two_servers(bus))
    draw, groups = random.Random(seed), ["a", "b", "c"]
    watchers = [entered(bus, f"w{n}", groups[: n % 2], groups[n:], (0, 1)) for n in range(3)]
    members = [entered(bus, f"m{n}", [draw.choice(groups)], servers=(0, 1)) for n in range(6)]
    for _ in range(15):
        member = draw.choice(members)
        member.machine.set_groups(bus.now, draw.sample(groups, draw.randrange(3)))
        bus.pump(member)
        bus.run(draw.uniform(0, 2))
    members.pop().machine.leave(bus.now)
    bus.kill(members.pop())
    if seed % 2:
        bus.kill(servers.pop())
    bus.run(15)
    bus.loss = 0.0
    bus.run(15)
    for number, watcher in enumerate(watchers):
        told = servers[0].clients.values()
        wanted = {p.name for p in told if set(p.groups) & set(groups[number:])} - {watcher.name}
        assert names(watcher) == wanted


def test_others_cost_a_watcher_no_message() -> None:
    """A hundred enter, change and leave beside a group of ten: the watcher receives none of it."""
    bus = SimulatedCluster()
    server = active_server(bus)
    for number in range(3, 403, 2):
        bus.inject(server, Announce(number, 5).encode())
    bus.pump(server)
    for number in range(9):
        entered(bus, f"m{number}", ["fluid"])
    watcher = entered(bus, "watcher", ["fluid"], ["fluid"])
    whole = entered(bus, "whole")
    bus.run_until(lambda: len(watcher.peers) == 9)
    bus.run(5)
    watcher.received.clear()
    whole.received.clear()
    others = [bus.client(f"o{number}") for number in range(100)]
    established(bus, *others)
    for other in others:
        other.machine.leave(bus.now)
        bus.pump(other)
    bus.run(5)
    received = [decode_message_untrusted(data) for data in watcher.received]
    own = [message for message in received if message.command in (Command.TIME, Command.ACK)]
    assert {message.command for message in received} <= {
        Command.HEARTBEAT,
        *(m.command for m in own),
    }
    assert {message.simulation for message in own} == {watcher.id}
    assert len(watcher.received) <= 20
    assert sum(map(len, whole.received)) > 10 * sum(map(len, watcher.received))


def test_servers_that_agree_are_asked_together_and_another_one_by_itself() -> None:
    bus = SimulatedCluster()
    servers = two_servers(bus)
    for number in range(3):
        entered(bus, f"m{number}", ["fluid"], servers=(0, 1))
    watcher = entered(bus, "watcher", presence=["fluid"], servers=(0, 1))
    bus.run_until(lambda: len(watcher.peers) == 3)
    bus.run(5)
    watcher.sent.clear()
    bus.run(10)
    asked = said(watcher, Command.LOOKUP)
    assert {TARGET.first(message) for message in asked} == {None}
    assert len(asked) == 4  # as often as one server alone would be asked
    bus.cut_way(servers[1], watcher)
    entered(bus, "late", ["fluid"], servers=(0, 1))
    bus.run(0.5)
    bus.heal()
    watcher.sent.clear()
    bus.run(4)
    asked = said(watcher, Command.LOOKUP)
    assert servers[1].machine.id in {TARGET.first(message) for message in asked}


def test_a_list_of_a_group_never_goes_to_a_shard() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    ask(bus, server, Announce(7, 5))
    watches = tuple(Watch(topic, Digest(9, 9)) for topic in range(2, 20, 2))
    bus.inject(server, Lookup(7, 5, watches=watches).encode())
    bus.run(3)
    lists = [m.simulation for m in said(server, Command.PEERS) if PART.first(m) is not None]
    assert lists == [18]


def test_lists_of_many_groups_leave_together() -> None:
    """A list by itself would cost every client a wake-up, also those that filter it."""
    bus = SimulatedCluster()
    server = active_server(bus)
    groups = [f"g{number}" for number in range(100)]
    members = [bus.client(f"c{number}", presence=[]) for number in range(100)]
    for member, group in zip(members, groups, strict=True):
        member.machine.set_groups(bus.now, [group])
    established(bus, *members)
    watcher = entered(bus, "watcher", presence=[])
    bus.run(2)
    machine, holder = server.machine, (watcher.machine.id, watcher.machine.nonce)
    for group in groups:
        watches = (Watch(group_topic(group), Digest(0, 0)),)
        machine.handle_message(bus.now, Lookup(*holder, watches=watches).encode())
    topics = set(map(group_topic, groups))
    bursts: list[int] = []
    while sum(bursts) < len(groups):
        sent = []
        while (message := machine.poll_transmit()) is not None:
            sent.append(decode_message_untrusted(message.data).simulation)
        if lists := len(topics.intersection(sent)):
            bursts.append(lists)
        due = machine.poll_timeout()
        assert due is not None
        bus.now = max(bus.now, due)
        machine.handle_timeout(bus.now)
    assert bursts == [100]


def test_a_crowd_of_watchers_is_acknowledged_and_introduced() -> None:
    bus = SimulatedCluster(delay=(0.001, 0.001))
    active_server(bus)
    crowd = [bus.client(f"c{n}", presence=[f"g{n % 15}"]) for n in range(150)]
    for number, client in enumerate(crowd):
        client.machine.set_groups(bus.now, [f"g{number % 15}"])
    established(bus, *crowd)
    bus.run_until(lambda: all(len(client.peers) == 9 for client in crowd), 10)
    bus.run(5)
    assert all(len(client.peers) == 9 for client in crowd)


def test_groups_that_start_at_once_get_all_records_one_by_one() -> None:
    """They need no list, which costs each of n clients at least a filtered message per group."""
    bus = SimulatedCluster(delay=(0.001, 0.001))
    two_servers(bus)
    crowd = [bus.client(f"c{n}", (0, 1), presence=[f"g{n % 20}"]) for n in range(100)]
    for number, client in enumerate(crowd):
        client.machine.set_groups(bus.now, [f"g{number % 20}"])
    bus.run_until(lambda: all(len(client.peers) == 4 for client in crowd), 2)
    for client in crowd:
        single = [m for m in heard(client, Command.PEERS) if not PART.first(m)]
        assert {record.id for m in single for record in PEER.every(m)} >= client.peers.keys()


def test_commands_of_the_application_reach_everybody_once() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    clients = [entered(bus, "x"), entered(bus, "y", [], ["fluid"]), entered(bus, "z", [], [])]
    bus.run(1)
    server.machine.publish(bus.now, 0, 0x0100, ())
    bus.pump(server)
    bus.run(1)
    assert [len(client.of(UserMessage)) for client in clients] == [1, 1, 1]


def test_groups_that_nobody_watches_cost_nothing() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    watcher = entered(bus, "watcher", [], ["fluid"])
    bus.run(1)
    bus.kill(watcher)
    bus.run(15)
    server.sent.clear()
    entered(bus, "m", ["fluid", "solid"])
    topics = {int.from_bytes(out.data[:4], "little") for out in server.sent}
    assert not topics & {group_topic("fluid"), group_topic("solid")}


def test_the_peer_looked_up_first_makes_room() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    ids = range(3, 3 + 2 * (MAX_LOOKED_UP + 1), 2)
    for number in ids:
        bus.inject(server, Announce(number, 5).encode())
    watcher = entered(bus, "watcher", [], [])
    for number in ids:
        watcher.machine.lookup(bus.now, number)
    bus.pump(watcher)
    bus.run(5)
    assert set(watcher.peers) == set(ids[1:])


def test_a_lookup_that_watches_too_much_is_malformed_and_a_liar_deceives_nobody() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    entered(bus, "m", ["fluid"])
    watcher = entered(bus, "watcher", [], ["fluid"])
    bus.run_until(lambda: names(watcher) == {"m"})
    ask(bus, server, Announce(7, 5))
    lie = Digest(9, 9)
    for topic in (1, group_topic("fluid"), group_topic("none"), 7, 99):
        bus.inject(server, Lookup(7, 5, None, None, (Watch(topic, lie),)).encode())
    bus.run(3)
    assert names(watcher) == {"m"}
    assert watcher.of(PeerLeft) == []
    many = tuple(Watch(2 * number, lie) for number in range(1, MAX_WATCHES + 2))
    bus.inject(server, Lookup(7, 5, None, None, many).encode())
    assert server.machine.counters[Count.MALFORMED] == 1
