"""Seals of datagrams, at a source and at a receiver.

All receivers share the source's key, so that a datagram is sealed once for all of them. When a
receiver leaves, the others get a new key over their channels. A receiver keeps the previous key,
too, for datagrams that arrive late.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from sphtp.core.entropy import Secrets
from sphtp.core.secure.seal import Sealer, Unsealer
from sphtp.core.stream.membership import KEY_SIZE, StreamKey
from sphtp.core.stream.wire import FEEDBACK_HEADER, STREAM_HEADER, feedback_header, stream_header
from sphtp.errors import RemoteError

SEAL_OVERHEAD: Final = 8 + 16
"""Bytes of the counter and the tag of a sealed body."""

KEYS: Final = 256
"""Count of key numbers; after the last one, numbering starts again at 0."""
SKIPPED: Final = 15
"""The most epochs of a key in a row that a receiver may miss, because a source does not wait for
silent receivers.
"""
KEPT: Final = 2
"""Count of keys that a receiver keeps: the newest and the previous one."""


@dataclass(slots=True)
class SealCounters:
    """Counts of datagrams, and of frames of the history, that were rejected."""

    forged: int = 0
    replayed: int = 0
    unknown_key: int = 0
    """Datagrams sealed with a key that this side does not have yet, or no longer has."""


@dataclass(slots=True)
class SubscriptionCounters(SealCounters):
    """Counts of datagrams and frames that the sources and subscriptions of a node rejected."""

    foreign: int = 0
    """Datagrams from an address other than the source's. Another receiver has the source's key, and
    could forge them.
    """


class SourceSeal:
    """The seal of a source's datagrams."""

    def __init__(self, session: int, secrets: Secrets | None) -> None:
        self._session = session
        self._secrets = secrets
        self._number = 0
        self._front = stream_header(session, 0)
        self._sealer: Sealer | None = None
        if secrets is not None:
            self._sealer = Sealer(draw_key(secrets), self._front)

    @property
    def key(self) -> StreamKey | None:
        """The key that seals from the next datagram on; None in the clear."""
        if self._sealer is None:
            return None
        return StreamKey(self._number, *self._sealer.present)

    def renew(self) -> StreamKey | None:
        """Draw and return another key, which seals from now on; return None in the clear."""
        if self._secrets is None:
            return None
        self._number = (self._number + 1) % KEYS
        self._front = stream_header(self._session, self._number)
        self._sealer = Sealer(draw_key(self._secrets), self._front)
        return self.key

    def seal(self, bodies: Sequence[bytes]) -> list[tuple[bytes, int]]:
        """Return the datagrams of these bodies as rows, each with the size of its datagrams.

        Only the last datagram of a row may be shorter.
        """
        front, sealer = self._front, self._sealer
        if sealer is None:
            overhead = len(front)
            return [(front + front.join(row), len(row[0]) + overhead) for row in _rows(bodies)]
        overhead = len(front) + SEAL_OVERHEAD
        return [(sealer.seal_row(row), len(row[0]) + overhead) for row in _rows(bodies)]


class StreamUnsealer:
    """The unsealing of a source's datagrams at a receiver."""

    def __init__(self, key: StreamKey | None, counters: SealCounters) -> None:
        self._counters = counters
        self._unsealers: dict[int, Unsealer] = {}
        self._is_sealed = key is not None
        if key is not None:
            self.learn(key)

    def learn(self, key: StreamKey) -> None:
        """Add a new key, and drop all but the two newest."""
        if key.number in self._unsealers:
            return
        unsealer = Unsealer(key.key, STREAM_HEADER.size, self._counters, key.first, skip=SKIPPED)
        self._unsealers[key.number] = unsealer
        for number in list(self._unsealers)[:-KEPT]:
            del self._unsealers[number]

    def open(self, data: bytes, size: int) -> list[bytes]:
        """Return the bodies of datagrams of ``size`` bytes that came in one buffer.

        The last one may be shorter. Datagrams that cannot be opened are dropped and counted.
        """
        if not self._is_sealed:
            head = STREAM_HEADER.size
            return [data[at + head : at + size] for at in range(0, len(data), size)]
        unsealer = self._unsealers.get(data[STREAM_HEADER.size - 1])
        if unsealer is None:
            self._counters.unknown_key += -(-len(data) // size)
            return []
        return unsealer.open(data, size)


class FeedbackSeal:
    """The seal of one receiver's datagrams."""

    def __init__(self, session: int, receiver: int, key: bytes) -> None:
        self._front = feedback_header(session, receiver)
        self._sealer = Sealer(key, self._front) if key else None

    def seal(self, body: bytes) -> bytes:
        """Return the datagram of a body."""
        if self._sealer is None:
            return self._front + body
        return self._sealer.seal(body, len(body))[0]


class FeedbackUnsealer:
    """The unsealing of one receiver's datagrams at a source."""

    def __init__(self, key: bytes, counters: SealCounters) -> None:
        self._unsealer = Unsealer(key, FEEDBACK_HEADER.size, counters) if key else None

    def open(self, data: bytes, size: int) -> list[bytes]:
        """Return the bodies of datagrams of ``size`` bytes that came in one buffer.

        The last one may be shorter. Datagrams that cannot be opened are dropped and counted.
        """
        if self._unsealer is None:
            head = FEEDBACK_HEADER.size
            return [data[at + head : at + size] for at in range(0, len(data), size)]
        return self._unsealer.open(data, size)


class TcpSeal:
    """The seal of one TCP connection: it seals this side's frames, and opens the other side's.

    With empty keys, frames stay in the clear.
    """

    def __init__(self, sending: bytes, receiving: bytes, counters: SealCounters) -> None:
        self._sealer = Sealer(sending, b"") if sending else None
        self._unsealer = Unsealer(receiving, 0, counters) if receiving else None

    def seal(self, frame: bytes) -> bytes:
        """Return the sealed frame."""
        return frame if self._sealer is None else self._sealer.seal(frame, len(frame))[0]

    def open_untrusted(self, data: bytes) -> bytes:
        """Return the opened frame. Raises ``RemoteError`` if the other side has not sealed it."""
        if self._unsealer is None:
            return data
        opened = self._unsealer.open(data, len(data) or 1)
        if not opened:
            raise RemoteError("a frame that the other side has not sealed")
        return opened[0]


def _rows(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Group bodies into rows for one system call each: equal sizes, or a smaller last one."""
    sizes, start, end = list(map(len, bodies)), 0, len(bodies)
    while start < end:
        size, stop = sizes[start], start + 1
        while stop < end and sizes[stop] == size:
            stop += 1
        if stop < end and sizes[stop] < size:
            stop += 1
        yield bodies[start:stop]
        start = stop


def envelope(*, is_sealed: bool) -> int:
    """Return the number of bytes that header and seal add to the body of a datagram."""
    return STREAM_HEADER.size + (SEAL_OVERHEAD if is_sealed else 0)


def fetch_keys(receiver_key: bytes, salts: bytes) -> tuple[bytes, bytes]:
    """Return two keys for a TCP connection to a source's history: for requests, and for answers.

    ``salts`` are random bytes of both sides, so that each connection has other keys. Both keys are
    empty if ``receiver_key`` is.
    """
    if not receiver_key:
        return b"", b""
    request, answer = (
        HKDFExpand(SHA256(), KEY_SIZE, purpose + salts).derive(receiver_key)
        for purpose in (b"SphTP fetch request", b"SphTP fetch answer")
    )
    return request, answer


def draw_key(secrets: Secrets) -> bytes:
    """Draw a random key of 32 bytes."""
    return secrets.getrandbits(256).to_bytes(32, "little")
