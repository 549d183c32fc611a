"""Messages in a stream of bytes: each behind its length."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

PREFIX: Final = Struct("<I")


def framed(messages: Iterable[bytes]) -> bytes:
    """Return messages as a piece of the stream."""
    return b"".join([part for message in messages for part in (_length(message), message)])


def _length(message: bytes) -> bytes:
    return PREFIX.pack(len(message))


class Unframer:
    """A splitter of a stream into messages, which copies each byte about twice."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = PREFIX.size

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the messages that are complete with this piece."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held < self._wanted:
            return []
        buffer = b"".join(self._pieces)
        messages: list[bytes] = []
        start, self._wanted = 0, PREFIX.size
        while start + PREFIX.size <= len(buffer):
            body = start + PREFIX.size
            end = body + PREFIX.unpack_from(buffer, start)[0]
            if end > len(buffer):
                self._wanted = end - start
                break
            messages.append(buffer[body:end])
            start = end
        self._pieces = [buffer[start:]]
        self._held = len(buffer) - start
        return messages
