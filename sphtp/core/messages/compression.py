"""Compression of single messages, and bounded decompression."""

import zlib
from dataclasses import dataclass

from sphtp.errors import SettingsError, WireError, untrusted

# Raw deflate, without a checksum: datagrams have their own.
_RAW = -zlib.MAX_WBITS

ROOM = 4 << 20
"""Bytes to which a batch may inflate in all, unless a single message is larger."""


@dataclass(frozen=True, slots=True)
class Compression:
    """The sizes at which messages are deflated, and the limit of inflated ones.

    Peers must agree that there is compression, and on ``max_size``; it is part of the description
    that they compare.
    """

    threshold: int = 512
    """Messages of fewer bytes are not deflated, unless the caller asks for it."""

    max_size: int = 1 << 20
    """The most bytes of an inflated message; a larger one is sent as it is."""

    level: int = 1
    """The level of zlib: 1 (fast) to 9 (small)."""

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise SettingsError(f"threshold is {self.threshold}, and must be at least 0")
        if self.max_size < 1:
            raise SettingsError(f"max_size is {self.max_size}, and must be at least 1")
        if not 1 <= self.level <= 9:
            raise SettingsError(f"level is {self.level}, and must be 1 to 9")

    @property
    def most_at_once(self) -> int:
        """The most messages to inflate before they are delivered."""
        return max(1, ROOM // self.max_size)

    def deflate(self, data: bytes, compress: bool | None) -> bytes | None:
        """Return the bytes deflated; None if they are to be sent as they are.

        Args:
            data: the message.
            compress: True tries whatever the size, False never; None tries from ``threshold`` on.
        """
        wanted = len(data) >= self.threshold if compress is None else compress
        if not wanted or len(data) > self.max_size:
            return None
        deflating = zlib.compressobj(self.level, zlib.DEFLATED, _RAW)
        deflated = deflating.compress(data) + deflating.flush()
        return deflated if len(deflated) + 1 < len(data) else None

    @untrusted
    def inflate_untrusted(self, data: bytes) -> bytes:
        """Undo ``deflate``, without ever inflating more than ``max_size`` bytes and one.

        Raises:
            RemoteError: the bytes are not deflated, or inflate to too many bytes.
        """
        inflating = zlib.decompressobj(_RAW)
        try:
            inflated = inflating.decompress(data, self.max_size + 1)
        except zlib.error as error:
            raise WireError(f"not deflated: {error}") from error
        if len(inflated) > self.max_size:
            raise WireError(f"inflates to more than {self.max_size} bytes")
        if not inflating.eof or inflating.unused_data or inflating.unconsumed_tail:
            raise WireError("deflated data that ends too early, or too late")
        return inflated

    def describe(self) -> str:
        """Return a line with the settings that must be equal on both sides."""
        return f"(compression): deflate, at most {self.max_size} bytes"
