"""Drives a machine of the control plane: hands it time and messages, and decides nothing."""

from collections.abc import Callable
from typing import Final, Protocol

import trio

from sphtp.shell.bell import Bell
from sphtp.shell.bus import Subscriber

LINGER: Final = 0.05
"""Seconds from the good-bye to the closing of the sockets, which drops what is queued."""


class ControlMachine(Protocol):
    """What a client's and a server's machine have in common."""

    def handle_connected(self, now: float) -> None:
        """Take it that a connection of the bus came up."""
        ...

    def handle_message(self, now: float, data: bytes) -> None:
        """Take a message in."""
        ...

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        ...

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` is due."""
        ...


async def drive(
    machine: ControlMachine, subscriber: Subscriber, bell: Bell, flush: Callable[[], None]
) -> None:
    """Keep a machine running; ``flush`` performs what it asks for, once per batch of messages.

    ``bell`` is rung when one of its publishers is connected to somebody new.
    """
    while True:
        batch: list[bytes] = []
        with bell.listening(machine.poll_timeout()):
            batch = await subscriber.receive_batch()
        now = trio.current_time()
        if bell.answer():
            machine.handle_connected(now)
        for data in batch:
            machine.handle_message(now, data)
        deadline = machine.poll_timeout()
        if deadline is not None and deadline <= now:
            machine.handle_timeout(now)
        flush()
