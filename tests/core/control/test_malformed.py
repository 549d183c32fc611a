"""Whatever strangers send: nothing raises, nothing changes, everything is counted."""

import copy
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.codec import Message, Parameter
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.records import MAX_MEMBERS
from sphtp.core.control.server_messages import ServerHeartbeat
from sphtp.core.control.vocabulary import Command, DataId
from sphtp.testing.cluster import SimulatedCluster
from tests.cases import each
from tests.core.control.helpers import Node, established, said
from tests.core.control.samples import FROM_CLIENT, FROM_MEMBER, FROM_SERVER


def world() -> tuple[SimulatedCluster, Node, Node]:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    client = bus.client("x", ids=iter((99,)), packed=b"spheres")
    established(bus, client)
    bus.run(2)
    return bus, server, client


BUS, SERVER, CLIENT = world()


def snapshot() -> Any:
    client = CLIENT.machine
    status = copy.deepcopy(SERVER.machine.status())
    del status["counters"]
    held = client.state, client.id, client.nonce, dict(client.peers), client.servers, client.view
    return status, held, SERVER.machine.poll_timeout(), client.poll_timeout()


def dropped() -> int:
    machines = (SERVER.machine, CLIENT.machine)
    return sum(sum(machine.counters.as_dict().values()) for machine in machines)


def feed(data: bytes) -> None:
    SERVER.machine.handle_message(BUS.now, data)
    CLIENT.machine.handle_message(BUS.now, data)
    for machine in (SERVER.machine, CLIENT.machine):
        assert machine.poll_event() is None
        while machine.poll_transmit() is not None:
            pass


@given(st.binary(max_size=100))
def test_random_bytes_change_nothing(data: bytes) -> None:
    before, count = snapshot(), dropped()
    feed(data)
    assert snapshot() == before
    assert dropped() > count


parameters = st.lists(
    st.builds(Parameter, st.sampled_from(list(DataId)), st.binary(max_size=3)),
    min_size=1,
    max_size=4,
).map(tuple)


@given(st.sampled_from(list(Command)), st.sampled_from((4, 7, 99)), parameters)
def test_known_commands_with_broken_parameters_change_nothing(
    command: Command, sender: int, broken: tuple[Parameter, ...]
) -> None:
    if command == Command.STATUS_REQUEST or sender == 4:
        broken = (*broken, Parameter(DataId.NONCE, b"short"))
    before, count = snapshot(), dropped()
    data = Message(sender if sender != 4 else 0, sender, command, broken).encode()
    feed(data[:-1])
    assert snapshot() == before
    assert dropped() > count


@each("message", FROM_CLIENT + FROM_SERVER + FROM_MEMBER)
def test_messages_cut_anywhere_change_nothing(message: Any) -> None:
    data = message.encode()
    before = snapshot()
    for end in (*range(10), len(data) - 1):
        feed(data[:end])
    assert snapshot() == before


def test_a_server_under_fire_holds_no_more_than_its_limits() -> None:
    bus = SimulatedCluster()
    server = bus.server(0, new_cluster=True)
    entropy = random.Random(5)
    commands = [c for c in Command if c != Command.STATUS_REQUEST]
    for _ in range(5000):
        sender = entropy.getrandbits(32)
        command = entropy.choice(commands)
        nonce = Parameter(DataId.NONCE, entropy.randbytes(8))
        to = sender if sender & 1 else 0
        server.machine.handle_message(bus.now, Message(to, sender, command, (nonce,)).encode())
    assert len(server.machine.view.members) == MAX_MEMBERS
    bus.pump(server)
    bus.run(1.2)
    heartbeat = said(server, Command.HEARTBEAT)[-1].encode()
    heard = MessageReader(ControlCounters(), for_client=True).take(heartbeat)
    assert isinstance(heard, ServerHeartbeat)
    assert len(heard.view.members) == MAX_MEMBERS
    assert len(server.machine.clients) <= 4096
    assert server.machine.counters["too_many"] > 0
    bus.pump(server)
    bus.run(25)
    assert server.machine.clients == {}
    assert len(server.machine.view.members) == 1
