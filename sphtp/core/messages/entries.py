"""What the message factory holds for each type, and what stands before each message."""

from dataclasses import is_dataclass
from typing import Any, Protocol

from sphtp.core.messages.annotations import record_of
from sphtp.core.messages.bit_message import BitMessage
from sphtp.core.messages.codec import from_msgpack, to_msgpack
from sphtp.core.messages.describing import describe_bits
from sphtp.core.messages.stream import Stream
from sphtp.core.messages.streams import MeasureStream, ReadStream, WriteStream, read_all
from sphtp.core.packing import Packing
from sphtp.errors import SettingsError, WireError


class Header:
    """The type number, in the fewest bits that the number of types needs.

    Where messages may be deflated, a bit before it says that this one is not.
    """

    __slots__ = ("_compressible", "_count")

    def __init__(self, count: int, compressible: bool) -> None:
        self._count = count
        self._compressible = compressible

    def serialize(self, stream: Stream, number: int) -> int:
        """Pass a type number through a stream."""
        if self._compressible and stream.boolean(False):
            raise WireError("deflated, and yet not")
        return stream.integer(number, 0, self._count - 1)

    @property
    def width(self) -> int:
        """Bits of it."""
        return (self._count - 1).bit_length() + self._compressible

    def front(self, number: int) -> int:
        """Return the header alone, as a number of ``width`` bits."""
        return number << self._compressible

    def prefix(self, number: int) -> bytes:
        """Return the header alone, filled up to a byte."""
        return self.front(number).to_bytes((self.width + 7) >> 3, "little")


class Entry(Protocol):
    """One type of message."""

    @property
    def text(self) -> str:
        """Its description, equal on all machines."""

    def write(self, message: Any) -> bytes:
        """Return header and message; raises ``WireError``."""

    def measure(self, message: Any) -> int:
        """Return the bits of header and message; raises ``WireError``."""


class BitEntry:
    """A type packed into bits: its bits follow those of the header at once."""

    __slots__ = ("_front", "_kind", "_width", "text")

    def __init__(self, kind: type[BitMessage], number: int, header: Header) -> None:
        self._kind = kind
        self._front = header.front(number)
        self._width = header.width
        self.text = f"bits {describe_bits(kind)}"

    def write(self, message: BitMessage) -> bytes:
        """Return header and message."""
        stream = WriteStream(self._front, self._width)
        message.serialize(stream)
        return stream.finish()

    def measure(self, message: BitMessage) -> int:
        """Return the bits of header and message."""
        stream = MeasureStream()
        message.serialize(stream)
        return self._width + stream.position

    def read(self, stream: ReadStream) -> BitMessage:
        """Return the message that follows the header; raises ``WireError``."""
        return read_all(self._kind, stream)


class PackedEntry:
    """A dataclass carried by msgpack: header in whole bytes, then an array of the fields."""

    __slots__ = ("_packing", "_record", "prefix", "text", "unpack")

    def __init__(self, kind: type, number: int, header: Header, packing: Packing) -> None:
        self._packing = packing
        self.prefix = header.prefix(number)
        self._record = record_of(kind)
        self.unpack = self._record.unpack
        self.text = f"msgpack {self._record.text}"

    def write(self, message: Any) -> bytes:
        """Return header and message."""
        return to_msgpack(self._packing, self._record.pack(message), self.prefix)

    def measure(self, message: Any) -> int:
        """Return the bits of header and message."""
        return 8 * len(self.write(message))

    def read(self, data: bytes, start: int) -> Any:
        """Return the message that follows the header, up to ``start``; raises ``WireError``."""
        return self.unpack(from_msgpack(self._packing, data, start))


def entry_for(kind: type, number: int, header: Header, packing: Packing) -> BitEntry | PackedEntry:
    """Return the entry of a type.

    Raises:
        SettingsError: it is neither a ``BitMessage`` nor a dataclass, or its fields have no form.
    """
    if issubclass(kind, BitMessage):
        return BitEntry(kind, number, header)
    if is_dataclass(kind):
        return PackedEntry(kind, number, header, packing)
    raise SettingsError(f"{kind.__name__} is neither a BitMessage nor a dataclass")
