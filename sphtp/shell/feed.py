"""Events for whoever wants them, without ever waiting for anybody."""

from types import TracebackType
from typing import Generic, Self, TypeVar
from weakref import WeakSet

import trio

T = TypeVar("T")

FEED_BUFFER = 1024
"""Events that are kept for a listener that is busy with something else."""


class Listener(Generic[T]):
    """An async iterator over the events since it was made; it ends when their source does.

    In a ``with`` block it is closed at the block's end; otherwise when nobody refers to it any
    more.
    """

    def __init__(self, buffer: int) -> None:
        self._sender, self._receiver = trio.open_memory_channel[T](buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._receiver.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Want no more events. Closing twice is fine."""
        self._receiver.close()

    def _offer(self, event: T) -> bool:
        """Tell whether there was room; a closed listener needs none."""
        try:
            self._sender.send_nowait(event)
        except trio.WouldBlock:
            return False
        except trio.BrokenResourceError:
            pass
        return True

    def _end(self) -> None:
        self._sender.close()


class Feed(Generic[T]):
    """Hands each event to all listeners. One that is ``buffer`` events behind misses the next."""

    def __init__(self, buffer: int = FEED_BUFFER) -> None:
        self._buffer = buffer
        # Held weakly: whoever drops a listener without closing it wants no more events either.
        self._listeners: WeakSet[Listener[T]] = WeakSet()
        self._closed = False
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many events were not handed over, because a listener was too far behind."""
        return self._dropped

    def listen(self) -> Listener[T]:
        """Return a listener for the events from now on."""
        listener = Listener[T](self._buffer)
        if self._closed:
            listener._end()  # noqa: SLF001 - the two halves of one thing
        else:
            self._listeners.add(listener)
        return listener

    def publish(self, event: T) -> None:
        """Hand an event over; never blocks."""
        for listener in tuple(self._listeners):
            if not listener._offer(event):  # noqa: SLF001
                self._dropped += 1

    def close(self) -> None:
        """End all listeners once they have had what is waiting for them."""
        self._closed = True
        for listener in tuple(self._listeners):
            listener._end()  # noqa: SLF001
        self._listeners.clear()
