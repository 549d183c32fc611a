"""ENet through pyenet: reliable packets on one channel.

ENet queues messages without a limit, and walks through the queue on every service. So a sender that
is not held back slows it down. Grants from the receiver hold it back; with the window chosen here
it carries about twice as many small messages as without.
"""

from collections.abc import Iterator
from typing import Final

import enet

from sphtp_benchmarks.meters import say
from sphtp_benchmarks.process_task import ProcessTask
from sphtp_benchmarks.systems.credit import CREDIT, CreditWindow, Grants, Room

HOST: Final = b"127.0.0.1"
IN_FLIGHT: Final = 65_536  # bytes; ENet's own window ends there
PATIENCE: Final = 100  # milliseconds of a service that waits


def receive(part: ProcessTask) -> None:
    """Accept a peer and count."""
    tally, grants = part.tally(), Grants(_window(part))
    host = _accepting()
    while True:
        messages: list[bytes] = []
        peer = None
        for event in _received(host, PATIENCE):
            messages.append(event.packet.data)
            peer = event.peer
        for _ in range(grants.due(len(messages))):
            _send(peer, CREDIT)
        if tally.take(messages):
            _serve(host)


def send(part: ProcessTask) -> None:
    """Connect and send."""
    source, room = part.source(), Room(_window(part))
    host, peer = _connected(part.port)
    for burst in source.bursts(_window(part).burst):
        while not room.take(len(burst)):
            room.granted(len(list(_received(host, PATIENCE))))
        for message in burst:
            _send(peer, message)
        room.granted(len(list(_received(host, 0))))
    source.done()
    _serve(host)


def echo(_part: ProcessTask) -> None:
    """Accept a peer and send everything back."""
    host = _accepting()
    while True:
        for event in _received(host, PATIENCE):
            _send(event.peer, event.packet.data)
        host.flush()


def ping(part: ProcessTask) -> None:
    """Connect and time answers."""
    stopwatch = part.stopwatch()
    host, peer = _connected(part.port)
    for message in stopwatch.pings():
        _send(peer, message)
        host.flush()
        while not (answers := list(_received(host, PATIENCE))):
            pass
        stopwatch.pong(answers[0].packet.data)
    stopwatch.done()
    _serve(host)


def _window(part: ProcessTask) -> CreditWindow:
    return CreditWindow.of(IN_FLIGHT, part.size)


def _accepting() -> enet.Host:
    host = enet.Host(enet.Address(HOST, 0), 1, 1, 0, 0)
    say(port=host.address.port)
    return host


def _connected(port: int) -> tuple[enet.Host, enet.Peer]:
    host = enet.Host(None, 1, 1, 0, 0)
    peer = host.connect(enet.Address(HOST, port), 1)
    while host.service(PATIENCE).type != enet.EVENT_TYPE_CONNECT:
        pass
    return host, peer


def _send(peer: enet.Peer, message: bytes) -> None:
    peer.send(0, enet.Packet(message, enet.PACKET_FLAG_RELIABLE))


def _received(host: enet.Host, wait: int) -> Iterator[enet.Event]:
    """Serve once, and iterate over all packets that this brought."""
    event = host.service(wait)
    while event is not None and event.type != enet.EVENT_TYPE_NONE:
        if event.type == enet.EVENT_TYPE_RECEIVE:
            yield event
        event = host.check_events()


def _serve(host: enet.Host) -> None:
    """Acknowledge and resend until this process is ended."""
    while True:
        host.service(PATIENCE)
