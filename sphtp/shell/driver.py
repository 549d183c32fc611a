"""The driver of a machine of the control plane, which passes time and messages to the machine."""

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.machine import ControlMachine
from sphtp.shell.bus_dialing import BusArrival
from sphtp.shell.vouching import VerifiedMessage, Vouching


class Wakeup:
    """The wake-up of one waiting task, called from Trio's thread.

    The task waits inside ``waiting`` and calls ``clear`` afterwards. If it does not wait at the
    time of a wake-up, its next wait ends at once.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._scope = trio.CancelScope()

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._is_set = True
        self._scope.cancel()

    def interrupt(self) -> None:
        """End the present wait, if there is one, because its deadline may have changed."""
        self._scope.cancel()

    def waiting(self, deadline: float | None) -> trio.CancelScope:
        """Return the scope to wait in, until a wake-up or ``deadline``, if there is one."""
        self._scope = trio.CancelScope(deadline=math.inf if deadline is None else deadline)
        if self._is_set:
            self._scope.cancel()
        return self._scope

    def clear(self) -> bool:
        """Return True if there was a wake-up since the last call."""
        is_set, self._is_set = self._is_set, False
        return is_set


LINGER: Final = 0.05
"""Seconds from LEAVE to the closing of the sockets, which drops queued messages."""

REST: Final = 0.01
"""The pause in seconds between two batches of a busy machine."""

BUSY_AFTER: Final = 16
"""The number of batches, less than two ``REST`` apart, after which the driver pauses. A
registration takes fewer batches.
"""


class ArrivalSource(Protocol):
    """The receiving half of a bus socket, whether it dials or listens."""

    async def receive_arrivals(self, limit: int = 256) -> list[BusArrival]:
        """Wait for messages, or, at a socket that listens, for the end of a connection."""
        ...

    def take_ended(self) -> list[int]:
        """Return the connections that ended since the last call."""
        ...

    def prove(self, number: int) -> None:
        """Note that a connection brought a valid message."""
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
    """Run a machine until cancelled; ``flush`` performs its outputs after each wait.

    A wait ends with a batch of messages, a timer of the machine, or ``wakeup``: a socket of the
    machine has a new connection, for example.

    Waking the task costs more than handling a heartbeat, and a thousand clients send a thousand
    heartbeats in a second, each at its own time. So after many batches in a row the driver pauses
    for ``REST`` seconds, and then handles the messages of that time together.
    """
    before, row = float("-inf"), 0
    while True:
        batch: list[BusArrival] = []
        with wakeup.waiting(machine.poll_timeout()):
            batch = await subscriber.receive_arrivals()
        now = trio.current_time()
        if wakeup.clear():
            machine.handle_connected(now)
        # If the last messages of an ended connection are in this batch, the end is handled after
        # them, because one may be a LEAVE. Otherwise the end is handled first, because the client
        # may have a new connection already, and must not be suspected.
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
    """Return the message if it is valid; tell its socket of a valid or a replayed one."""
    verified = vouching.check(arrival, counters)
    if verified is not None:
        subscriber.prove(arrival.pipe)
    elif vouching.is_repeated:
        subscriber.note_replayed_message(arrival.pipe)
    return verified
