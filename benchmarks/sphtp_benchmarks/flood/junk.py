"""Datagrams that a node has to drop."""

import socket
from collections.abc import Iterator
from random import Random
from struct import Struct
from time import perf_counter, sleep
from typing import Final

# Version 1 and every kind of channels: a datagram that looks right at first costs most.
FRONT: Final = Struct("<BI")
FIRST_BYTES: Final = tuple(range(0x10, 0x1C))
SIZES: Final = (5, 21, 37, 200, 400, 1200)
VARIETY: Final = 4096
BATCH_SECONDS: Final = 0.002


def junk(random: Random) -> Iterator[bytes]:
    """Yield random bytes, and random bytes behind the front of a datagram."""
    while True:
        data = random.randbytes(random.choice(SIZES))
        if random.random() < 0.5:
            front = FRONT.pack(random.choice(FIRST_BYTES), random.choice((0, 1, 0xFFFFFFFF)))
            data = front + data[FRONT.size :]
        yield data


def flood(host: str, port: int, rate: int, seed: int) -> None:
    """Send junk at ``rate`` datagrams per second until the process ends."""
    source = junk(Random(seed))
    datagrams = [next(source) for _ in range(VARIETY)]
    began, sent = perf_counter(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, port))
        while True:
            due = int((perf_counter() - began) * rate)
            for number in range(sent, due):
                try:
                    sock.send(datagrams[number % VARIETY])
                except (BlockingIOError, ConnectionRefusedError):
                    continue
            sent = due
            sleep(BATCH_SECONDS)
