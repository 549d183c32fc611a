"""New addresses of a client reach the servers, whatever its state is when it learns them."""

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Message
from sphtp.core.control.records import Candidate
from sphtp.core.control.vocabulary import Command
from sphtp.testing.cluster import SimulatedCluster
from tests.core.control.helpers import active_server, established, is_established, said

NEW = Candidate("203.0.113.9", 5)


def test_an_address_that_changes_while_the_client_resumes_is_announced() -> None:
    bus = SimulatedCluster()
    server, client = active_server(bus), bus.client("x")
    established(bus, client)
    bus.cut(client, server)
    bus.run(15)
    bus.heal()
    bus.run_until(lambda: client.id in server.machine.clients)
    assert client.is_in(ClientState.RESUMING)
    client.machine.set_candidates(bus.now, [NEW])
    established(bus, client)
    bus.run(10)
    assert server.machine.clients[client.id].candidates == (NEW,)


def test_servers_of_plain_sphtp_get_no_announcement_of_it() -> None:
    bus = SimulatedCluster()
    client = bus.client("x", servers=(), ids=iter((7,)))
    bus.inject(client, Message(0, 4444, Command.HEARTBEAT).encode())
    bus.inject(client, Message(7, 4444, Command.ACK).encode())
    assert is_established(client)
    client.machine.set_candidates(bus.now, [NEW])
    for _ in range(5):
        bus.inject(client, Message(0, 4444, Command.HEARTBEAT).encode())
        bus.run(1)
    # They refuse what they have registered, so that it would cost the id.
    assert len(said(client, Command.ANNOUNCE)) == 1
