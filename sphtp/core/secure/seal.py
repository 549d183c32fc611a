"""Sealing of datagrams: AES-256-GCM, with a counter as the nonce and regular key updates.

A sealed datagram is ``front, counter u64, ciphertext, tag``. Front and counter are in the clear,
and authenticated. The front has the id by which the receiver finds the key.

Key update (as RFC 9001, section 6, but by the counter): the upper bits of the counter are the
number of the epoch, so that no bit on the wire announces a new one. The key of an epoch is derived
from that of the epoch before. The sender then erases the old key (``Sealer._next_epoch``), and the
receiver erases it an epoch later (``Unsealer._advance``). So a key that is stolen later does not
open datagrams captured earlier.

An epoch ends after at most 2^20 datagrams, which hold 2^32 cipher blocks at most. The limit of
AES-GCM is where the square of that number comes near 2^128 (RFC 9001, section 6.6 and appendix B).
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

Buffer = bytes | memoryview

EPOCH_BITS: Final = 20
"""The number of lower bits of a counter, which count the datagrams of one key."""

COUNTER: Final = Struct("<Q")
TAG_SIZE: Final = 16
NEXT_KEY: Final = b"SphTP next key"

# The nonce of Noise's AESGCM: 32 zero bits, then the counter.
_NONCE: Final = Struct(">4xQ")


class Sealer:
    """The encryption of one direction, with ``key``, 32 bytes, and counters from ``first`` on.

    Every datagram begins with ``front`` in the clear.
    """

    __slots__ = ("_cipher", "_counter", "_epoch_end", "_front", "_head", "_key")

    def __init__(self, key: bytes, front: bytes, first: int = 0) -> None:
        self._front = front
        self._head = Struct(f"<{len(front)}sQ")
        self._key = _Key(key, first >> EPOCH_BITS)
        self._cipher = self._key.cipher
        self._counter = first
        self._epoch_end = (self._key.epoch + 1) << EPOCH_BITS

    @property
    def present(self) -> tuple[bytes, int]:
        """The key of the present epoch and the counter of the next datagram, for ``Unsealer``."""
        if self._counter == self._epoch_end:
            self._next_epoch()
        return self._key.secret, self._counter

    def seal(self, data: bytes, size: int) -> tuple[bytes, int]:
        """Seal datagrams of ``size`` bytes, one behind the other; the last one may be shorter.

        Return the sealed datagrams, one behind the other, and the size of each.
        """
        sealed_size = size + self._head.size + TAG_SIZE
        if len(data) <= size:
            return self._seal_one(data), sealed_size
        plain = memoryview(data)
        parts = [plain[start : start + size] for start in range(0, len(data), size)]
        return self.seal_row(parts), sealed_size

    def seal_row(self, datagrams: Sequence[Buffer]) -> bytes:
        """Seal datagrams; return the sealed ones, one behind the other."""
        pack, front, nonce = self._head.pack, self._front, _NONCE.pack
        if self._counter + len(datagrams) > self._epoch_end:
            self._next_epoch()
        encrypt, counter = self._cipher.encrypt, self._counter
        sealed = list[bytes]()
        for datagram in datagrams:
            clear = pack(front, counter)
            sealed += (clear, encrypt(nonce(counter), datagram, clear))
            counter += 1
        self._counter = counter
        return b"".join(sealed)

    def _seal_one(self, data: bytes) -> bytes:
        if self._counter == self._epoch_end:
            self._next_epoch()
        counter = self._counter
        self._counter = counter + 1
        clear = self._head.pack(self._front, counter)
        return clear + self._cipher.encrypt(_NONCE.pack(counter), data, clear)

    def _next_epoch(self) -> None:
        """Change to the next key, and skip the rest of the epoch: a row has only one key."""
        self._key = self._key.next()
        self._cipher = self._key.cipher
        self._counter = self._epoch_end
        self._epoch_end += 1 << EPOCH_BITS


class RejectionCounter(Protocol):
    """A counter of rejected datagrams.

    ``forged`` counts those that no present key opens. ``replayed`` counts those that were opened
    before, or that are too old to decide.
    """

    forged: int
    replayed: int


WINDOW: Final = 2048
"""The datagrams that the window covers. One as many or more behind the newest is rejected."""

_ALL: Final = (1 << WINDOW) - 1


class ReplayWindow:
    """The anti-replay window (RFC 6479): it accepts no number twice.

    The window is one integer, in which bit n stands for the number n before ``newest``.
    """

    __slots__ = ("_seen", "newest")

    def __init__(self, first: int = 0) -> None:
        self.newest = first - 1
        self._seen = 0

    def is_new(self, number: int) -> bool:
        """Return True if a number is not recorded, and not too old to be sure of that."""
        behind = self.newest - number
        return behind < 0 or (behind < WINDOW and not self._seen >> behind & 1)

    def mark(self, number: int) -> None:
        """Record a new number. Only those of authentic datagrams may be recorded."""
        ahead = number - self.newest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _ALL if ahead < WINDOW else 1
            self.newest = number
        else:
            self._seen |= 1 << -ahead


class Unsealer:
    """The decryption of one direction, with ``key``, 32 bytes, and counters from ``first`` on.

    ``front_size`` bytes precede the counter of a datagram. ``tally`` counts rejected datagrams. The
    unsealer can derive the next key even if it missed up to ``skip`` whole epochs in a row.
    """

    __slots__ = (
        "_coming",
        "_front_size",
        "_head",
        "_newest",
        "_older",
        "_skip",
        "_tally",
        "_window",
    )

    def __init__(
        self, key: bytes, front_size: int, tally: RejectionCounter, first: int = 0, *, skip: int = 0
    ) -> None:
        self._tally = tally
        self._front_size = front_size
        self._head = front_size + COUNTER.size
        self._newest = _Key(key, first >> EPOCH_BITS)
        # The key before the newest, for overtaken datagrams; and later keys, when derived.
        self._older: _Key | None = None
        self._coming: list[_Key] = []
        self._skip = skip
        self._window = ReplayWindow(first)

    @property
    def newest(self) -> int:
        """The highest counter of a datagram that was opened; ``first - 1`` before one was."""
        return self._window.newest

    def open(self, data: bytes, size: int) -> list[bytes]:
        """Open datagrams of ``size`` bytes, one behind the other; the last one may be shorter.

        Return the content of those that are authentic and new; count the others.
        """
        opened: list[bytes] = []
        view, window, head = memoryview(data), self._window, self._head
        for start in range(0, len(data), size):
            end = min(start + size, len(data))
            if end - start < head + TAG_SIZE:
                self._tally.forged += 1
                continue
            counter: int = COUNTER.unpack_from(data, start + self._front_size)[0]
            if not window.is_new(counter):
                self._tally.replayed += 1
                continue
            plain = self._decrypt(counter, view[start : start + head], view[start + head : end])
            if plain is None:
                self._tally.forged += 1
            else:
                window.mark(counter)
                opened.append(plain)
        return opened

    def _decrypt(self, counter: int, head: memoryview, sealed: memoryview) -> bytes | None:
        key = self._newest if counter >> EPOCH_BITS == self._newest.epoch else self._other(counter)
        if key is None:
            return None
        try:
            plain = key.cipher.decrypt(_NONCE.pack(counter), sealed, head)
        except InvalidTag:
            return None
        if key.epoch > self._newest.epoch:
            self._advance(key)
        return plain

    def _other(self, counter: int) -> "_Key | None":
        """Return the key for a counter of another epoch than the newest; None if out of reach."""
        ahead = (counter >> EPOCH_BITS) - self._newest.epoch
        if ahead < 0:
            return self._older if ahead == -1 else None
        if ahead > 1 + self._skip:
            return None
        while len(self._coming) < ahead:
            self._coming.append((self._coming or [self._newest])[-1].next())
        return self._coming[ahead - 1]

    def _advance(self, key: "_Key") -> None:
        keys = [self._newest, *self._coming]
        at = keys.index(key)
        self._older, self._newest, self._coming = keys[at - 1], key, keys[at + 1 :]


class _Key:
    """The key of one epoch."""

    __slots__ = ("cipher", "epoch", "secret")

    def __init__(self, key: bytes, epoch: int) -> None:
        self.secret = key
        self.epoch = epoch
        self.cipher = AESGCM(key)

    def next(self) -> "_Key":
        """Return the key of the next epoch (HKDF-Expand, RFC 5869)."""
        return _Key(
            HKDFExpand(SHA256(), len(self.secret), NEXT_KEY).derive(self.secret), self.epoch + 1
        )
