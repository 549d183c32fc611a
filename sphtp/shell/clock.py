"""The cluster's time for a program: ``client.clock`` and ``server.clock``."""

from collections.abc import Awaitable, Callable

import trio

from sphtp.core.clock import ClusterClock, Reading

_LAST_SLEEP = 1.0
"""Seconds before the end from which a sleep is not divided: the estimate changes meanwhile."""

Wait = Callable[[Callable[[], bool]], Awaitable[None]]
"""Waits for a condition that messages of servers change: ``Registration.wait``."""


class Clock:
    """The cluster's time: seconds since its first server began, the same for all members.

    It never goes back while a server of the cluster lives. The error has a bound that holds
    whatever the delays are, as long as no machine's clock is wrong by more than ``max_drift``. If
    all servers end, the servers started next begin a new time at 0.
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
        """The most seconds by which ``now()`` is wrong; infinite before the first exchange.

        Raises ``StateError`` as ``now``.
        """
        return self.read().error

    def read(self) -> Reading:
        """Return time and error of the same moment. Raises ``StateError`` as ``now``."""
        return self._machine.read(trio.current_time())

    @property
    def is_synchronized(self) -> bool:
        """True if the error has a bound."""
        return self._machine.is_synchronized(trio.current_time())

    async def wait_synchronized(self) -> None:
        """Wait until the error has a bound: about one heartbeat after the start of a client.

        It waits as long as no server answers; ``with trio.fail_after(10):`` bounds the wait. Raises
        ``trio.ClosedResourceError`` if the client or server was closed before, or is meanwhile, and
        ``RefusedError`` if the servers refuse the client.
        """
        await self._wait(lambda: self.is_synchronized)

    async def sleep_until(self, time: float) -> None:
        """Sleep until the cluster's time is ``time``; return at once if that is past.

        Members that sleep until the same time wake within the sum of their errors, and the time
        that their machines take to wake a process. Waits until the clock is synchronized; raises as
        ``wait_synchronized``.
        """
        await self.wait_synchronized()
        while (remaining := time - self.now()) > 0:  # noqa: ASYNC110 # time passes on one clock, not in events
            await trio.sleep(remaining if remaining < _LAST_SLEEP else remaining / 2)
