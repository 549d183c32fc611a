"""Workers with a key of Zenoh for each other one: peers on TCP, by its blocking interface."""

import json
import socket
from time import sleep
from typing import Any, Final

import numpy
import zenoh

from sphtp_benchmarks.lockstep.steps import DTYPE, Steps, meet
from sphtp_benchmarks.meters import stay
from sphtp_benchmarks.process_task import ProcessTask

HOST: Final = "127.0.0.1"
LOOK: Final = 0.01
"""Seconds between two checks that the others have subscribed."""


def work(part: ProcessTask) -> None:
    """Connect, and keep step."""
    mine, others = _free_port(), [n for n in range(part.workers) if n != part.number]
    ports = meet(part, [mine] * (part.workers - part.number - 1))
    with zenoh.open(_configuration(mine, ports)) as session:
        subscribers = [session.declare_subscriber(f"{n}/{part.number}") for n in others]
        publishers = [
            session.declare_publisher(
                f"{part.number}/{n}", congestion_control=zenoh.CongestionControl.BLOCK
            )
            for n in others
        ]
        while not all(_has_subscriber(publisher) for publisher in publishers):
            sleep(LOOK)
        steps = Steps(part)
        for array in steps:
            for publisher in publishers:
                publisher.put(array.tobytes())
            for subscriber in subscribers:
                sample = subscriber.recv()
                steps.take(numpy.frombuffer(sample.payload.to_bytes(), DTYPE))
        steps.done()
        stay()


def _has_subscriber(publisher: zenoh.Publisher) -> bool:
    status: Any = publisher.matching_status  # its stub says bool
    return bool(status.matching)


def _free_port() -> int:
    """Return a port that was free a moment ago, because a session does not report its port."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


def _configuration(mine: int, ports: list[int]) -> zenoh.Config:
    configuration = zenoh.Config()
    for key, value in {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "listen/endpoints": [f"tcp/{HOST}:{mine}"],
        "connect/endpoints": [f"tcp/{HOST}:{port}" for port in ports],
    }.items():
        configuration.insert_json5(key, json.dumps(value))
    return configuration
