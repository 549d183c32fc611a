"""ZeroMQ by its blocking interface, with its default high-water marks.

Messages from the size on that pyzmq recommends for this are sent without a copy.
"""

import zmq

from sphtp_benchmarks.meters import say, stay
from sphtp_benchmarks.process_task import ProcessTask

HOST = "tcp://127.0.0.1"
BURST = 64  # messages between two looks at the clock


def receive(part: ProcessTask) -> None:
    """Bind PULL and count."""
    socket = _bound(zmq.PULL)
    part.tally().take_each(socket.recv)
    stay()


def send(part: ProcessTask) -> None:
    """Connect PUSH and send."""
    source = part.source()
    socket = _connected(zmq.PUSH, part.port)
    copy = part.size < zmq.COPY_THRESHOLD
    for burst in source.bursts(BURST):
        for message in burst:
            socket.send(message, copy=copy)
    source.done()
    stay()


def echo(_part: ProcessTask) -> None:
    """Bind PAIR and send everything back."""
    socket = _bound(zmq.PAIR)
    while True:
        socket.send(socket.recv())


def ping(part: ProcessTask) -> None:
    """Connect PAIR and time answers."""
    stopwatch = part.stopwatch()
    socket = _connected(zmq.PAIR, part.port)
    for message in stopwatch.pings():
        socket.send(message)
        stopwatch.pong(socket.recv())
    stopwatch.done()
    stay()


def publish(part: ProcessTask) -> None:
    """Bind a publisher, wait for its subscribers, and send."""
    source = part.source()
    socket = zmq.Context.instance().socket(zmq.XPUB)  # a PUB that receives the subscriptions
    socket.setsockopt(zmq.XPUB_VERBOSE, 1)
    socket.setsockopt(zmq.XPUB_NODROP, part.system == "zeromq-waits")
    say(port=socket.bind_to_random_port(HOST))
    for _ in range(part.receivers):
        socket.recv()
    copy = part.size < zmq.COPY_THRESHOLD
    for burst in source.bursts(BURST):
        for message in burst:
            socket.send(message, copy=copy)
    source.done()
    for message in source.encores():
        socket.send(message)


def subscribe(part: ProcessTask) -> None:
    """Connect SUB and count."""
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.subscribe(b"")
    socket.connect(f"{HOST}:{part.port}")
    part.tally().take_each(socket.recv)
    stay()


def _bound(kind: int) -> "zmq.Socket[bytes]":
    socket = zmq.Context.instance().socket(kind)
    say(port=socket.bind_to_random_port(HOST))
    return socket


def _connected(kind: int, port: int) -> "zmq.Socket[bytes]":
    socket = zmq.Context.instance().socket(kind)
    socket.connect(f"{HOST}:{port}")
    return socket
