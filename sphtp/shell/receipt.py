"""What became of a message, for whoever sent it."""

from collections.abc import Callable

import trio

from sphtp.core.channel.ticket import Outcome, Ticket

Callback = Callable[["Receipt"], object]


class Receipt:
    """Of one message that was sent. Made by ``Channel.send``."""

    __slots__ = ("_callbacks", "_run", "_settled", "_ticket")

    def __init__(self, ticket: Ticket, run: Callable[[Callback, "Receipt"], None]) -> None:
        self._ticket = ticket
        self._run = run
        self._settled: trio.Event | None = None
        self._callbacks: list[Callback] = []

    @property
    def outcome(self) -> Outcome | None:
        """What became of it; None as long as that is open."""
        return self._ticket.outcome

    @property
    def latency(self) -> float | None:
        """Seconds from ``send`` to the ack; None for a message that was not delivered."""
        ticket = self._ticket
        if ticket.outcome is not Outcome.DELIVERED or ticket.settled_at is None:
            return None
        return ticket.settled_at - ticket.sent_at

    async def wait(self) -> Outcome:
        """Wait until it is known what became of it. Cancelling loses nothing."""
        await trio.lowlevel.checkpoint()
        while self._ticket.outcome is None:
            if self._settled is None:
                self._settled = trio.Event()
            await self._settled.wait()
        return self._ticket.outcome

    def add_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when it is known; soon, should it be known already.

        Callbacks run one after the other in a task of the node's, never in the one that receives.
        An error in one of them ends the node.
        """
        if self._ticket.outcome is None:
            self._callbacks.append(callback)
        else:
            self._run(callback, self)

    def _announce(self) -> None:
        if self._settled is not None:
            self._settled.set()
        for callback in self._callbacks:
            self._run(callback, self)
        self._callbacks.clear()
