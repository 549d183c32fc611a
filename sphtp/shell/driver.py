"""The driver of a control plane's machine: it passes time and messages, and decides nothing.

A ``Wakeup`` ends its wait when a publisher has a new connection.
"""

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.machine import ControlMachine
from sphtp.shell.bus_dialing import BusArrival
from sphtp.shell.vouching import VerifiedMessage, Vouching


class Wakeup:
    """Wakes the one task that waits on it; called from Trio's thread.

    The task waits inside ``waiting`` and calls ``clear`` afterwards. A wake-up that finds nobody
    waiting is not lost: the next wait ends at once.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._scope = trio.CancelScope()

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._is_set = True
        self._scope.cancel()

    def interrupt(self) -> None:
        """End the present wait, if there is one: its deadline may no longer be right."""
        self._scope.cancel()

    def waiting(self, deadline: float | None) -> trio.CancelScope:
        """Return the scope to wait in, until a wake-up or ``deadline``, if there is one."""
        self._scope = trio.CancelScope(deadline=math.inf if deadline is None else deadline)
        if self._is_set:
            self._scope.cancel()
        return self._scope

    def clear(self) -> bool:
        """Return whether there was a wake-up since the last call."""
        is_set, self._is_set = self._is_set, False
        return is_set


LINGER: Final = 0.05
"""Seconds from LEAVE to the closing of the sockets, which drops queued messages."""

REST: Final = 0.01
"""Seconds between two batches of a busy machine."""

BUSY_AFTER: Final = 16
"""The batches, less than two rests apart, after which it rests. One registration takes fewer."""


class ArrivalSource(Protocol):
    """The receiving half of a bus socket, whether it dials or listens."""

    async def receive_arrivals(self, limit: int = 256) -> list[BusArrival]:
        """Wait for messages, or for the end of a connection."""
        ...

    def take_ended(self) -> list[int]:
        """Return the connections that ended since the last call."""
        ...

    def prove(self, number: int) -> None:
        """Note that a connection brought a message with a valid MAC."""
        ...

    def note_replayed_message(self, number: int) -> None:
        """Note that a connection brought a message that had come over another connection before."""
        ...


async def drive(
    machine: ControlMachine[Any, Any, Any],
    subscriber: ArrivalSource,
    vouching: Vouching,
    wakeup: Wakeup,
    flush: Callable[[], None],
) -> None:
    """Keep a machine running; ``flush`` performs its outputs, once per batch of messages.

    ``wakeup`` wakes it when one of its publishers has a new connection.

    A wake-up costs more than handling a heartbeat, and a thousand clients send a thousand
    heartbeats in a second, each at its own time. So after many wake-ups the machine pauses for a
    moment, and then handles the messages of that time together.
    """
    before, row = float("-inf"), 0
    while True:
        batch: list[BusArrival] = []
        with wakeup.waiting(machine.poll_timeout()):
            batch = await subscriber.receive_arrivals()
        now = trio.current_time()
        if wakeup.clear():
            machine.handle_connected(now)
        # A connection whose last messages are in this batch ends after them: a LEAVE counts first.
        # Any other ends first: a client that has already come back is not suspected.
        ended, spoke = subscriber.take_ended(), {arrival.pipe for arrival in batch}
        for pipe in ended:
            if pipe not in spoke:
                machine.handle_disconnected(now, pipe)
        for arrival in batch:
            verified = _check(arrival, subscriber, vouching, machine.counters)
            if verified is not None:
                machine.handle_message(now, *verified, through=arrival.pipe)
        for pipe in ended:
            if pipe in spoke:
                machine.handle_disconnected(now, pipe)
        deadline = machine.poll_timeout()
        if deadline is not None and deadline <= now:
            machine.handle_timeout(now)
        flush()
        row = row + 1 if now - before < 2 * REST else 0
        before = now
        if row >= BUSY_AFTER:
            await trio.sleep(REST)


def _check(
    arrival: BusArrival, subscriber: ArrivalSource, vouching: Vouching, counters: ControlCounters
) -> VerifiedMessage | None:
    """Return the message if it is valid, and note that its connection is authenticated."""
    verified = vouching.check(arrival, counters)
    if verified is not None:
        subscriber.prove(arrival.pipe)
    elif vouching.is_repeated:
        subscriber.note_replayed_message(arrival.pipe)
    return verified
