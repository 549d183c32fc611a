"""Drives a machine of the control plane: hands it time and messages, and decides nothing."""

from collections.abc import Callable
from typing import Final, Protocol

import trio

from sphtp.core.control.counters import Counters
from sphtp.core.control.doorkeeper import Pipe
from sphtp.core.control.proofs import Session
from sphtp.shell.bell import Bell
from sphtp.shell.bus import Arrival, Subscriber
from sphtp.shell.vouching import Vouching

LINGER: Final = 0.05
"""Seconds from the good-bye to the closing of the sockets, which drops what is queued."""


class ControlMachine(Protocol):
    """What a client's and a server's machine have in common."""

    counters: Counters

    def handle_connected(self, now: float) -> None:
        """Take it that a connection of the bus came up."""
        ...

    def handle_disconnected(self, now: float, pipe: int) -> None:
        """Take it that a connection of the bus has ended."""
        ...

    def handle_message(
        self, now: float, data: bytes, pipe: Pipe = None, session: Session | None = None
    ) -> None:
        """Take a message in."""
        ...

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        ...

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` is due."""
        ...


async def drive(
    machine: ControlMachine,
    subscriber: Subscriber,
    vouching: Vouching,
    bell: Bell,
    flush: Callable[[], None],
) -> None:
    """Keep a machine running; ``flush`` performs what it asks for, once per batch of messages.

    ``bell`` is rung when one of its publishers is connected to somebody new.
    """
    while True:
        batch: list[Arrival] = []
        with bell.listening(machine.poll_timeout()):
            batch = await subscriber.receive_arrivals()
        now = trio.current_time()
        if bell.answer():
            machine.handle_connected(now)
        for pipe in subscriber.take_ended():
            machine.handle_disconnected(now, pipe)
        for arrival in batch:
            heard = vouching.check(arrival, machine.counters)
            if heard is not None:
                machine.handle_message(now, *heard)
        deadline = machine.poll_timeout()
        if deadline is not None and deadline <= now:
            machine.handle_timeout(now)
        flush()
