"""Events for whoever wants them, without ever waiting for anybody."""

from typing import Generic, Self, TypeVar

import trio

T = TypeVar("T")

FEED_BUFFER = 1024
"""Events that are kept for a listener that is busy with something else."""


class Listener(Generic[T]):
    """An async iterator over the events since it was made; it ends when their source does."""

    def __init__(self, channel: trio.MemoryReceiveChannel[T]) -> None:
        self._channel = channel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._channel.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Want no more events."""
        self._channel.close()


class Feed(Generic[T]):
    """Hands each event to all listeners. One that is ``buffer`` events behind misses the next."""

    def __init__(self, buffer: int = FEED_BUFFER) -> None:
        self._buffer = buffer
        self._channels: list[trio.MemorySendChannel[T]] = []
        self._closed = False
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many events were not handed over, because a listener was too far behind."""
        return self._dropped

    def listen(self) -> Listener[T]:
        """Return a listener for the events from now on."""
        sender, receiver = trio.open_memory_channel[T](self._buffer)
        if self._closed:
            sender.close()
        else:
            self._channels.append(sender)
        return Listener(receiver)

    def publish(self, event: T) -> None:
        """Hand an event over; never blocks."""
        for channel in tuple(self._channels):
            try:
                channel.send_nowait(event)
            except trio.WouldBlock:
                self._dropped += 1
            except trio.BrokenResourceError:
                self._channels.remove(channel)
                channel.close()

    def close(self) -> None:
        """End all listeners once they have had what is waiting for them."""
        self._closed = True
        for channel in self._channels:
            channel.close()
        self._channels.clear()
