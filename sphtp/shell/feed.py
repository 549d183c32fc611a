"""Event feeds, which pass each event to all listeners, and whose publisher never waits."""

from types import TracebackType
from typing import Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import trio

T = TypeVar("T")

FEED_BUFFER = 1024
"""The most events that wait for a listener."""


class _SendingEnd(Generic[T]):
    """The sending end of a listener's events, and the number of events that it missed."""

    __slots__ = ("channel", "missed")

    def __init__(self, channel: trio.MemorySendChannel[T]) -> None:
        self.channel = channel
        self.missed = 0


class Listener(Generic[T]):
    """An async iterator over the events since it was made, up to the end of their publisher.

    The end of a ``with`` block closes it, and so does dropping its last reference.
    """

    def __init__(self, receiver: trio.MemoryReceiveChannel[T], sending: "_SendingEnd[T]") -> None:
        self._receiver = receiver
        self._sending = sending

    @property
    def missed(self) -> int:
        """The number of events that this listener missed because too many waited for it."""
        return self._sending.missed

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
        """Stop receiving events. Closing twice is fine."""
        self._receiver.close()


class Feed(Generic[T]):
    """A feed that passes each event to all listeners.

    A listener for which ``buffer`` events wait misses the next ones.
    """

    def __init__(self, buffer: int = FEED_BUFFER) -> None:
        self._buffer = buffer
        # The sending ends, by listener. The references to listeners are weak, so that dropping the
        # last reference to a listener closes it.
        self._senders: WeakKeyDictionary[Listener[T], _SendingEnd[T]] = WeakKeyDictionary()
        self._closed = False
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """The number of events that were dropped, because a listener was too far behind."""
        return self._dropped

    def listen(self) -> Listener[T]:
        """Return a listener for the events from now on."""
        sender, receiver = trio.open_memory_channel[T](self._buffer)
        sending = _SendingEnd(sender)
        listener = Listener(receiver, sending)
        if self._closed:
            sender.close()
        else:
            self._senders[listener] = sending
        return listener

    def publish(self, event: T) -> None:
        """Pass an event to all listeners that have room for it; never blocks."""
        if not self._senders:
            return
        for sending in tuple(self._senders.values()):
            try:
                sending.channel.send_nowait(event)
            except trio.WouldBlock:
                sending.missed += 1
                self._dropped += 1
            except trio.BrokenResourceError:
                pass  # the listener is closed

    def close(self) -> None:
        """End each listener after the events that wait for it."""
        self._closed = True
        for sending in tuple(self._senders.values()):
            sending.channel.close()
        self._senders.clear()
