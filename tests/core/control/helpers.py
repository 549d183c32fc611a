"""What the tests say often."""

from typing import Any

from sphtp.core.control.client_messages import Announce, Heartbeat
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import NONCE, REASON, Message, decode_message_untrusted
from sphtp.core.control.vocabulary import Command
from sphtp.testing.cluster import Participant, SimulatedCluster

Node = Participant[Any]


def said(node: Node, command: Command | None = None) -> list[Message]:
    raw = [message if isinstance(message, bytes) else message.data for message in node.sent]
    messages = [decode_message_untrusted(data) for data in raw]
    return [m for m in messages if command in (None, m.command)]


def heard(node: Node, command: Command) -> list[Message]:
    messages = [decode_message_untrusted(data) for data in node.received]
    return [message for message in messages if message.command == command]


def is_established(*nodes: Node) -> bool:
    return all(node.is_in(ClientState.ESTABLISHED) for node in nodes)


def established(bus: SimulatedCluster, *nodes: Node) -> None:
    bus.run_until(lambda: is_established(*nodes))


def ask(
    bus: SimulatedCluster, server: Node, message: Announce | Heartbeat
) -> list[tuple[int, ...]]:
    """Return command, simulation id, nonce and reason of each answer to a message."""
    before = len(server.sent)
    bus.inject(server, message.encode())
    answers = [decode_message_untrusted(out.data) for out in server.sent[before:]]
    return [
        (m.command, m.simulation, NONCE.first(m) or 0, REASON.first(m) or 0)
        for m in answers
        if m.command in (Command.ACK, Command.NACK)
    ]


def active_server(bus: SimulatedCluster) -> Node:
    server = bus.server(0, new_cluster=True)
    bus.run(0.5)
    return server
