"""Links: channels to other slabs that carry a simulation's messages and the news of who left.

Bytes are the simulation's. A map is news: a peer that learns of a departure tells its other
neighbours, so that all of a row of slabs can say which one is missing, and not only those beside
the gap. Every slab receives from all its neighbours in every step, so news always finds a reader.
"""

from collections.abc import Iterable
from contextlib import suppress

import trio
from pydantic import ValidationError

from sphtp import Channel
from sphtp.errors import SphtpError
from sphtp_client.simulation.events import LinkReport, PeerLeft

TELL = 1.0  # seconds to tell a neighbour who left


class PeerLeftError(SphtpError):
    """A peer of this run is gone; ``news`` says which and why."""

    def __init__(self, news: PeerLeft) -> None:
        super().__init__(str(news))
        self.news = news


class PeerLink:
    """One channel to another slab. ``opened`` tells which side opened it: that one closes first."""

    def __init__(self, channel: Channel, slab: int, *, opened: bool) -> None:
        self.slab = slab
        self.opened = opened
        self.peer_id = channel.peer_id
        self._channel = channel
        self._left: PeerLeftError | None = None

    async def send(self, data: bytes) -> None:
        """Send one message; raises ``PeerLeftError``."""
        try:
            await self._channel.send(data)
        except trio.BrokenResourceError:
            # What the other side said before it went explains more than that it is gone.
            await self.wait_end()
            raise self._departure("closed its channel before the end") from None

    async def receive(self) -> bytes:
        """Return the next message; raises ``PeerLeftError``.

        It waits as long as the channel lives: the channel's timeout tells of a peer that vanished.
        """
        try:
            message = await self._channel.receive()
        except trio.EndOfChannel:
            raise self._departure("closed its channel before the end") from None
        except trio.BrokenResourceError as error:
            raise self._departure(str(error)) from error
        if isinstance(message, bytes):
            return message
        raise self._hear_news(message)

    async def tell(self, news: PeerLeft) -> None:
        """Pass on who left; a neighbour that is gone itself need not know."""
        with trio.move_on_after(TELL), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._channel.send(news.model_dump(mode="json"))

    async def wait_end(self) -> None:
        """Wait until the other side has closed, skipping what it still says."""
        with suppress(PeerLeftError):
            while True:
                await self.receive()

    async def aclose(self) -> None:
        """Close the channel once everything sent has arrived, or nobody is there to take it."""
        with suppress(trio.BrokenResourceError):
            await self._channel.aclose()

    def report(self) -> LinkReport:
        """Return the channel's figures."""
        figures = self._channel.statistics()
        return LinkReport(
            peer=self.peer_id,
            slab=self.slab,
            sent=figures.sent,
            received=figures.received,
            lost=figures.lost,
            resent=figures.resent,
            rtt_ms=None if figures.rtt is None else round(figures.rtt * 1000, 3),
        )

    def _hear_news(self, message: object) -> PeerLeftError:
        try:
            self._left = PeerLeftError(PeerLeft.model_validate(message))
        except ValidationError:
            return self._departure(f"sent a {type(message).__name__} that makes no sense")
        return self._left

    def _departure(self, reason: str) -> PeerLeftError:
        """Return what ended this link, which is told to everybody who waits for it."""
        if self._left is None:
            news = PeerLeft(slab=self.slab, id=self.peer_id, reason=reason)
            self._left = PeerLeftError(news)
        return self._left


async def tell_all(links: Iterable[PeerLink], news: PeerLeft) -> None:
    """Tell all neighbours who left, side by side."""
    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(link.tell, news)
