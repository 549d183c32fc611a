"""Names and groups of clients: a name for the life of an id, groups that change like data."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.client_messages import Announce, ClientData
from sphtp.core.control.codec import NAME, NONCE, Message, Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.records import Peer, PeerRecord
from sphtp.core.control.server_messages import Peers, Registered
from sphtp.core.control.vocabulary import Command, DataId
from sphtp.core.topics import LONGEST_NAME, check_name
from sphtp.errors import SettingsError, WireError
from sphtp.testing.cluster import SimulatedClient, SimulatedCluster
from tests.cases import each
from tests.core.control.helpers import active_server, ask, established

FLUID = ("fluid", "流体")


def tell(bus: SimulatedCluster, client: SimulatedClient, *groups: str) -> None:
    client.machine.set_groups(bus.now, groups)
    bus.pump(client)


def test_servers_and_peers_learn_a_name_with_the_id_and_groups_as_they_change() -> None:
    bus = SimulatedCluster()
    servers = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(server.machine.view.active) == 2 for server in servers))
    one, other = bus.client("fluid-1", (0, 1)), bus.client("other", (0, 1))
    established(bus, one, other)
    bus.run(2)
    (entered,) = other.of(PeerEntered)
    assert (entered.peer.name, entered.peer.groups) == ("fluid-1", ())
    for groups in (FLUID, FLUID[:1], ()):
        tell(bus, one, *groups)
        bus.run_until(lambda told=groups: other.peers[one.id].groups == told)  # type: ignore[misc]
        bus.run_until(
            lambda told=groups: all(  # type: ignore[misc]
                server.clients[one.id].groups == told for server in servers
            )
        )
    later = bus.client("later", (0, 1))
    established(bus, later)
    bus.run_until(lambda: one.id in later.peers)
    assert later.peers[one.id].name == "fluid-1"
    assert [len(other.of(kind)) for kind in (PeerEntered, PeerChanged)] == [2, 3]


def test_the_first_name_of_a_holder_counts() -> None:
    bus = SimulatedCluster()
    server = active_server(bus)
    ask(bus, server, Announce(7, 5))
    for name in ("fluid-1", "", "liar"):
        ask(bus, server, Announce(7, 5, name=name))
        assert server.machine.clients[7].name == "fluid-1"
    told = PeerRecord(7, 5, name="fluid-1", groups=FLUID, revision=1)
    client = bus.client("x")
    established(bus, client)
    number = server.machine.id
    # A server that knows nothing of names and groups takes none away.
    for record in (told, replace(told, name="liar"), replace(told, name="", groups=())):
        bus.inject(client, Peers(number, 0, (record,)).encode())
        assert (client.peers[7].name, client.peers[7].groups) == ("fluid-1", FLUID)
    bus.inject(client, Peers(number, 0, (PeerRecord(7, 6, name="next"),)).encode())
    assert client.of(PeerLeft)[-1].peer == Peer.from_record(told)
    assert client.peers[7].name == "next"


def test_a_server_that_tells_no_groups_takes_none_away() -> None:
    bus = SimulatedCluster()
    servers = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(server.machine.view.active) == 2 for server in servers))
    bus.inject(servers[1], Announce(7, 5, name="fluid-1").encode())
    bus.inject(servers[1], ClientData(7, 5, 1, b"", (), FLUID).encode())
    bare = PeerRecord(7, 5, revision=1)
    bus.inject(servers[1], Registered(servers[0].machine.id, (bare,)).encode())
    assert (servers[1].clients[7].name, servers[1].clients[7].groups) == ("fluid-1", FLUID)


@each("groups", [[""], ["a\nb"], ["x" * 256], [str(n) for n in range(65)], "fluid"])
def test_groups_that_nobody_can_have_are_refused_by_name(groups: list[str]) -> None:
    bus = SimulatedCluster()
    client = bus.client("x")
    with pytest.raises(SettingsError, match="group"):
        client.machine.set_groups(bus.now, groups)


@pytest.mark.parametrize("name", ["a\nb", "x" * (LONGEST_NAME + 1), "\u202e"])
def test_a_name_that_nobody_can_have_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"name is .* 64 printable characters"):
        SimulatedCluster().client(name)


@each("data", [b"x" * 65, b"\xff", b"a\x00", b"\x7f", "\x9f".encode()])
def test_a_malformed_name_registers_nobody(data: bytes) -> None:
    with pytest.raises(WireError):
        NAME.decode(data)
    bus = SimulatedCluster()
    server = active_server(bus)
    parameters = (NONCE.of(5), Parameter(DataId.NAME, data))
    bus.inject(server, Message(7, 7, Command.ANNOUNCE, parameters).encode())
    assert not server.machine.clients
    assert server.machine.counters[Count.MALFORMED] == 1


@given(st.text(st.characters(exclude_categories=("C", "Z")), max_size=LONGEST_NAME))
def test_any_printable_name_travels(name: str) -> None:
    assert NAME.decode(NAME.of(check_name(name)).data) == name
