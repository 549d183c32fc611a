"""The message factory: all message types of a program, by number.

The number of a type precedes its message, in the fewest bits that the number of types needs
(``TypeHeader``). The bits of a ``BitMessage`` follow at once; a dataclass, encoded by msgpack,
begins with the next byte.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any, Protocol, Self

from sphtp.core.messages.annotations import record_of
from sphtp.core.messages.codec import (
    Compression,
    decode_each_untrusted,
    deflate,
    from_msgpack,
    inflate,
    to_msgpack,
)
from sphtp.core.messages.streams import (
    BitStream,
    MeasureStream,
    ReadStream,
    WriteStream,
    describe_bits,
    read_all,
)
from sphtp.core.packing import MAX_DEPTH, MAX_ELEMENTS, Packing
from sphtp.core.schema import Schema
from sphtp.errors import SettingsError, WireError, untrusted


class BitMessage:
    """A message packed into bits, after the ``Message`` of Fiedler's *Reliable Ordered Messages*.

    Derive a class that can be created without arguments. Its method ``serialize`` writes, reads and
    measures a message:

        class Shot(BitMessage):
            def __init__(self, angle: float = 0.0, power: int = 0) -> None:
                self.angle, self.power = angle, power

            def serialize(self, stream: BitStream) -> None:
                self.angle = stream.compressed(self.angle, -180.0, 180.0, 0.01)
                self.power = stream.integer(self.power, 0, 100)

    A dataclass with bounds in its annotations needs no such method:

        @dataclass
        class Shot(BitMessage):
            angle: Annotated[float, Compressed(-180.0, 180.0, 0.01)] = 0.0
            power: Annotated[int, Range(0, 100)] = 0
    """

    __slots__ = ()

    def serialize(self, stream: BitStream) -> None:
        """Pass each field through ``stream``, and store the result in the field.

        This default uses the annotations of a dataclass.
        """
        for name, shape in record_of(type(self)).shapes.items():
            try:
                setattr(self, name, shape.serialize(stream, getattr(self, name)))
            except WireError as error:
                raise WireError(f"{name}: {error}") from error

    def write(self) -> bytes:
        """Return the bits of the message as bytes, padded with zeros.

        Raises:
            WireError: a value has the wrong type, or is outside its bounds.
        """
        stream = WriteStream()
        self.serialize(stream)
        return stream.finish()

    def measure(self) -> int:
        """Return the number of bits that the message takes.

        Raises:
            WireError: a value has the wrong type, or is outside its bounds.
        """
        stream = MeasureStream()
        self.serialize(stream)
        return stream.position

    @classmethod
    @untrusted
    def read_untrusted(cls, data: bytes) -> Self:
        """Return the message whose ``write`` returns these bytes.

        Raises:
            RemoteError: the bytes are not a message of this class.
        """
        return read_all(cls, ReadStream(data))


class TypeHeader:
    """The header of a message: its type number, in the fewest bits that the types need.

    If messages may be deflated, a bit 0 before the number shows that this one is not.
    """

    __slots__ = ("_compressible", "_count")

    def __init__(self, count: int, compressible: bool) -> None:
        self._count = count
        self._compressible = compressible

    def serialize(self, stream: BitStream, number: int) -> int:
        """Pass a type number through a stream."""
        if self._compressible and stream.boolean(False):
            raise WireError("a deflated message inside a deflated one")
        return stream.integer(number, 0, self._count - 1)

    @property
    def width(self) -> int:
        """The number of bits of the header."""
        return (self._count - 1).bit_length() + self._compressible

    def front(self, number: int) -> int:
        """Return the header for a type number, as an integer of ``width`` bits."""
        return number << self._compressible

    def prefix(self, number: int) -> bytes:
        """Return the header for a type number, padded to whole bytes."""
        return self.front(number).to_bytes((self.width + 7) >> 3, "little")


class MessageType(Protocol):
    """A type of message, with its description and its encoding."""

    @property
    def text(self) -> str:
        """The description of the type, equal on all machines."""

    def write(self, message: Any) -> bytes:
        """Return header and message.

        Raises ``WireError`` if a value has the wrong type or is outside its bounds, and
        ``MessageTooLargeError`` if there are too many values, or if they are nested too deep.
        """

    def measure(self, message: Any) -> int:
        """Return the number of bits of header and message; raises as ``write``."""


class BitEntry:
    """A type whose messages are packed into bits, which follow those of the header."""

    __slots__ = ("_front", "_kind", "_width", "text")

    def __init__(self, kind: type[BitMessage], number: int, header: TypeHeader) -> None:
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
        """Return the number of bits of header and message."""
        stream = MeasureStream()
        message.serialize(stream)
        return self._width + stream.position

    def read(self, stream: ReadStream) -> BitMessage:
        """Return the message that follows the header; raise ``WireError`` if it is invalid."""
        return read_all(self._kind, stream)


class PackedEntry:
    """A dataclass encoded by msgpack: the header in whole bytes, then a list of the fields."""

    __slots__ = ("_packing", "_record", "prefix", "text", "unpack")

    def __init__(self, kind: type, number: int, header: TypeHeader, packing: Packing) -> None:
        self._packing = packing
        self.prefix = header.prefix(number)
        self._record = record_of(kind)
        self.unpack = self._record.unpack
        self.text = f"msgpack {self._record.text}"

    def write(self, message: Any) -> bytes:
        """Return header and message."""
        return to_msgpack(self._packing, self._record.pack(message), self.prefix)

    def measure(self, message: Any) -> int:
        """Return the number of bits of header and message."""
        return 8 * len(self.write(message))

    def read(self, data: bytes, start: int) -> Any:
        """Return the message that begins at ``start``; raise ``WireError`` if it is invalid."""
        return self.unpack(from_msgpack(self._packing, data, start))


def entry_for(
    kind: type, number: int, header: TypeHeader, packing: Packing
) -> BitEntry | PackedEntry:
    """Return the encoding of a type.

    Raises:
        SettingsError: the type cannot be encoded; the text names the type or the field, and the
            reason.
    """
    if issubclass(kind, BitMessage):
        return BitEntry(kind, number, header)
    if is_dataclass(kind):
        return PackedEntry(kind, number, header, packing)
    raise SettingsError(f"{kind.__name__} is neither a BitMessage nor a dataclass")


# The mark of a deflated message: the first bit is 1, where a header has 0.
_DEFLATED = b"\x01"


class MessageFactory:
    """The codec of a program's message types: it encodes messages, and creates them from bytes.

    A type number takes the fewest bits that the number of types needs, and decoding rejects a
    number of no type. Types are numbered in the order of their names, so that peers need not list
    them in the same order. After "message factory" in Reliable Ordered Messages.

    Args:
        types: dataclasses, and subclasses of ``BitMessage``, with different names.
        compression: the settings of compression; None for no compression.
        max_elements: the most values of a dataclass in msgpack; a list and each of its members
            count as one each, as do a dict and each of its keys and values. The fields of the
            dataclass are a list, too.
        max_depth: the deepest nesting of lists and dicts, with the list of fields; at most 128.

    Raises:
        SettingsError: there is no type, two types have the same name, a type cannot be encoded, or
            a limit is out of range; the error names the type or the limit, and the reason.
    """

    def __init__(
        self,
        types: Iterable[type],
        *,
        compression: Compression | None = None,
        max_elements: int = MAX_ELEMENTS,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        self.types = tuple(sorted(types, key=lambda kind: kind.__name__))
        """The types; the index of each is its number."""
        _check_names(self.types)
        self.compression = compression
        self._packing = Packing(max_elements, max_depth)
        self._header = TypeHeader(len(self.types), compression is not None)
        self._entries: dict[type, MessageType] = {}
        self._packed: dict[bytes, PackedEntry] = {}
        self._in_bits: dict[int, BitEntry] = {}
        for number, kind in enumerate(self.types):
            entry = self._entries[kind] = entry_for(kind, number, self._header, self._packing)
            if isinstance(entry, PackedEntry):
                self._packed[entry.prefix] = entry
            else:
                self._in_bits[number] = entry
        self._prefix_size = len(self._header.prefix(0))
        self.schema_hash = Schema(self.describe()).schema_hash
        """A hash of the lines of ``describe``, 64 bits; equal on all machines and Python versions.
        """

    def describe(self) -> list[str]:
        """Return sorted lines that must be equal on both sides.

        These are names, fields, types and bounds, changed limits of values and depth, and the limit
        of compression; ``difference`` compares two such lists.
        """
        lines = [f"{kind.__name__}: {entry.text}" for kind, entry in self._entries.items()]
        lines += self._packing.describe()
        return sorted([*lines, self.compression.describe()] if self.compression else lines)

    def measure(self, message: Any) -> int:
        """Return the number of bits of a message, with its type number, before compression.

        Raises:
            WireError: the type is not registered, or a field's value does not fit.
            MessageTooLargeError: the message has more values, or is nested deeper, than the peer
                accepts.
        """
        return self._entry(message).measure(message)

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the bytes of a message.

        Args:
            value: a message of one of the types, not of a subclass.
            compress: True to deflate messages below the threshold of ``compression``, too; False
                never to deflate; None to deflate from the threshold on. A message is deflated only
                if it gets smaller, and has at most ``max_size`` bytes.

        Raises:
            WireError: the type is not registered, a field's value does not fit, or ``compress`` is
                True without compression.
            MessageTooLargeError: the message has more values, or is nested deeper, than the peer
                accepts.
        """
        return deflate(self.compression, self._entry(value).write(value), _DEFLATED, compress)

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each message; raises as ``encode``."""
        if self.compression is None and not compress:
            return [self._entry(value).write(value) for value in values]
        return [self.encode(value, compress=compress) for value in values]

    @untrusted
    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message that these bytes encode.

        Raises:
            RemoteError: the type number is out of bounds, there are too few or too many bytes, they
                cannot be inflated, a field's value has the wrong type or does not fit, or the
                values are beyond the limits.
        """
        data = inflate(self.compression, data, _DEFLATED)
        packed = self._packed.get(data[: self._prefix_size])
        if packed is not None:
            return packed.read(data, self._prefix_size)
        stream = ReadStream(data)
        number = self._header.serialize(stream, 0)
        entry = self._in_bits.get(number)
        if entry is None:
            raise WireError(f"type number {number} with padding that is not zero")
        return entry.read(stream)

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages that these payloads encode, and drop invalid payloads."""
        size = self._prefix_size
        found = map(self._packed.get, (payload[:size] for payload in payloads))
        entries = [entry for entry in found if entry is not None]
        is_packed = len(entries) == len(payloads)
        rows = None
        if is_packed:
            rows = self._packing.unpack_many([payload[size:] for payload in payloads])
        if rows is None:
            return decode_each_untrusted(self, payloads)
        messages = []
        for entry, row in zip(entries, rows, strict=True):
            try:
                messages.append(entry.unpack(row))
            except WireError:
                continue
        return messages

    def _entry(self, message: Any) -> MessageType:
        entry = self._entries.get(type(message))
        if entry is None:
            raise WireError(f"{type(message).__name__} is not a registered type of message")
        return entry


def _check_names(types: Iterable[type]) -> None:
    names = Counter(kind.__name__ for kind in types)
    if not names:
        raise SettingsError("a message factory without types")
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise SettingsError(f"two types of message are called {twice[0]}")
