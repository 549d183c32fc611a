"""Who waits for the messages of one channel."""

import trio

from sphtp.core.channel.connection import Connection
from sphtp.shell.busy_poll import BusyPoll


class Readers:
    """The tasks that wait: asleep, or looking."""

    __slots__ = ("_asleep", "_busy_poll", "_connection", "_is_over")

    def __init__(self, connection: Connection, busy_poll: BusyPoll) -> None:
        self._connection = connection
        self._busy_poll = busy_poll
        self._asleep = trio.lowlevel.ParkingLot()
        self._is_over = False

    async def wait(self) -> None:
        """Wait until there are messages, or there will be none."""
        await self._busy_poll.wait(self._asleep, self._has_news)

    def tell(self) -> bool:
        """Wake them if there is news; true when somebody slept, and messages are there."""
        is_awaited = bool(self._asleep) and self._connection.port.readable
        if is_awaited or self._connection.closed is not None:
            self._asleep.unpark_all()
        return is_awaited

    def end(self) -> None:
        """Wake them: the channel was closed on this side."""
        self._is_over = True
        self._asleep.unpark_all()

    def _has_news(self) -> bool:
        connection = self._connection
        return connection.port.readable or self._is_over or connection.closed is not None
