"""The cluster's time for a program: ``client.clock`` and ``server.clock``."""

from collections.abc import Awaitable, Callable

import trio

from sphtp.core.clock import ClusterClock, Reading

_LAST_SLEEP = 1.0
"""Seconds. If more time remains, one sleep takes only half of it, because the estimate of the
cluster's time changes meanwhile.
"""

Wait = Callable[[Callable[[], bool]], Awaitable[None]]
"""A function that waits for a condition that messages change, such as ``Registration.wait``."""


class Clock:
    """The clock of the cluster: seconds since its first server started, the same for all members.

    The time never goes back as long as this process hears a server of the cluster. ``error`` bounds
    the error of the time, for any delays of messages, if the rate of no machine's clock is wrong by
    more than ``max_drift`` of ``ControlTimers``. If all servers end, the next ones begin a new time
    at 0.
    """

    def __init__(self, machine: ClusterClock, wait: Wait) -> None:
        self._machine = machine
        self._wait = wait

    def __repr__(self) -> str:
        if self._machine.term is None:
            return "<Clock without a time>"
        return f"<Clock {self.now():.6f} s, within {self.error:.6f} s>"

    def now(self) -> float:
        """Return the cluster's time in seconds.

        Raises ``StateError`` if no server has sent the time yet.
        """
        return self.read().time

    @property
    def error(self) -> float:
        """The most seconds by which ``now()`` is wrong; infinite while that has no bound.

        Raises ``StateError`` as ``now``.
        """
        return self.read().error

    def read(self) -> Reading:
        """Return the time and its error at one moment. Raises ``StateError`` as ``now``."""
        return self._machine.read(trio.current_time())

    @property
    def is_synchronized(self) -> bool:
        """True if the error has a bound, so that ``error`` is finite."""
        return self._machine.is_synchronized(trio.current_time())

    async def wait_synchronized(self) -> None:
        """Wait until the error has a bound: about one heartbeat after the start of a client.

        The wait has no end while no server sends the time; ``with trio.fail_after(10):`` bounds it.

        Raises:
            trio.ClosedResourceError: the client or server was closed before the call or during it.
            RefusedError: the servers refuse the client.
        """
        await self._wait(lambda: self.is_synchronized)

    async def sleep_until(self, time: float) -> None:
        """Sleep until the cluster's time is ``time``; return at once if that is past.

        Waits for synchronization first, and raises as ``wait_synchronized``. If members sleep until
        the same time, they wake apart by no more than the sum of their errors and the time that
        their machines need to wake a process.
        """
        await self.wait_synchronized()
        while (remaining := time - self.now()) > 0:  # noqa: ASYNC110 # time passes on one clock, not in events
            await trio.sleep(remaining if remaining < _LAST_SLEEP else remaining / 2)
