"""Workers with a PAIR of ZeroMQ to each other one, by its blocking interface."""

from typing import Final

import numpy
import zmq

from sphtp_benchmarks.lockstep.catalog import ZMQ_UNCOPIED
from sphtp_benchmarks.lockstep.steps import DTYPE, Steps, meet
from sphtp_benchmarks.meters import stay
from sphtp_benchmarks.process_task import ProcessTask

HOST: Final = "tcp://127.0.0.1"


def work(part: ProcessTask) -> None:
    """Connect, and keep step."""
    context = zmq.Context.instance()
    sockets = [context.socket(zmq.PAIR) for _ in range(part.workers - 1)]
    awaited, dialled = sockets[part.number :], sockets[: part.number]
    ports = meet(part, [socket.bind_to_random_port(HOST) for socket in awaited])
    for socket, port in zip(dialled, ports, strict=True):
        socket.connect(f"{HOST}:{port}")
    copy = part.system != ZMQ_UNCOPIED
    steps = Steps(part)
    for array in steps:
        for socket in sockets:
            socket.send(array, copy=copy)
        for socket in sockets:
            steps.take(numpy.frombuffer(socket.recv(copy=copy), DTYPE))
    steps.done()
    stay()
