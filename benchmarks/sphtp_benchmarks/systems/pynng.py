"""nng by its blocking interface."""

import socket
import threading

import pynng

from sphtp_benchmarks.meters import say, stay
from sphtp_benchmarks.process_task import ProcessTask

HOST = "tcp://127.0.0.1"
BURST = 64  # messages between two looks at the clock


def receive(part: ProcessTask) -> None:
    """Listen with Pull0 and count."""
    pull = _listening(pynng.Pull0())
    part.tally().take_each(pull.recv)
    stay()


def send(part: ProcessTask) -> None:
    """Dial with Push0 and send."""
    source = part.source()
    push = pynng.Push0(dial=f"{HOST}:{part.port}", block_on_dial=True)
    for burst in source.bursts(BURST):
        for message in burst:
            push.send(message)
    source.done()
    stay()


def echo(_part: ProcessTask) -> None:
    """Listen with Pair0 and send everything back."""
    pair = _listening(pynng.Pair0())
    while True:
        pair.send(pair.recv())


def ping(part: ProcessTask) -> None:
    """Dial with Pair0 and time answers."""
    stopwatch = part.stopwatch()
    pair = pynng.Pair0(dial=f"{HOST}:{part.port}", block_on_dial=True)
    for message in stopwatch.pings():
        pair.send(message)
        stopwatch.pong(pair.recv())
    stopwatch.done()
    stay()


def publish(part: ProcessTask) -> None:
    """Listen with Pub0, wait for subscribers, and send."""
    source, arrivals = part.source(), threading.Semaphore(0)
    pub = pynng.Pub0()
    pub.add_post_pipe_connect_cb(lambda _pipe: arrivals.release())
    _listening(pub)
    for _ in range(part.receivers):
        arrivals.acquire()
    for burst in source.bursts(BURST):
        for message in burst:
            pub.send(message)
    source.done()
    for message in source.encores():
        pub.send(message)


def subscribe(part: ProcessTask) -> None:
    """Dial with Sub0 and count."""
    sub = pynng.Sub0(topics=b"", dial=f"{HOST}:{part.port}", block_on_dial=True)
    part.tally().take_each(sub.recv)
    stay()


def _listening(listening: pynng.Socket) -> pynng.Socket:
    listener = listening.listen(f"{HOST}:0")
    say(port=socket.ntohs(listener.local_address.port))
    return listening
