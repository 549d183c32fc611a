"""Encoding of messages by msgpack, with limits: one value at a time, or many.

Theory of operation. A decoded message may take 72 times its bytes in memory: a byte 0x90 is an
empty list. Worse, the decoder trusts the length before a list and reserves as many places before it
has decoded one of them. So 4 kB of nested headers cost 27 ms, and 16 MiB of them more memory than a
machine has. A message is therefore checked before the decoder builds anything:

- **Lengths.** ``Unpacker.skip`` walks through the bytes and builds nothing, for a third of the cost
  of building a list of floats. A message that it accepts has as many values as it claims.
- **Depth.** msgpack refuses values nested deeper than its stack. The check puts headers of lists of
  one value in front of the message. They use up all of the stack except ``max_depth``.
- **Number.** A value has at least one byte, so only a message of more bytes than ``max_elements``
  needs counting; a regular expression counts at the speed of C.
- **Time.** Keys with equal hashes make a dict quadratic. Hashes of text and bytes are secret, and
  few numbers have equal ones. But an attacker can make any number of timestamps with equal hashes,
  and they compare slowly: 64 kB of them as the keys of one map took 0.5 s. So a map may have at
  most eight keys that are timestamps of more than 34 bits of seconds. The garbage collector would
  also run again and again while many lists are built, none of which is garbage. It is paused in
  the meantime: that takes 60 ms per MiB instead of 350.

A message of at most ``max_depth`` bytes, and at most ``max_elements``, is within all these bounds,
whatever its content.

**Large leaves bypass the check.** A *leaf* is a text, bytes or an array. It has no structure to
check, and a search through 400 kB of floats takes 260 us where copying them takes 9. So a message
that is one leaf is read as such, and written as such unless it is a text. From any other message of
more than twice ``LEAF`` bytes, a bounded search takes out leaves of ``LEAF`` bytes and more, and
the check covers the rest, in which a few bytes mark the place of each leaf. An array is copied once
when packed, and so are bytes that are a whole message. A leaf that is a whole message, or was taken
out, is copied once when unpacked. Arrays are a msgpack extension: see ``arrays``. An array costs at
least a microsecond to build, so a message has ``MAX_ARRAYS`` at most.
"""

import gc
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import Any, Final, TypeAlias

import msgpack

from sphtp.core.arrays import (
    EXTENSION,
    MOST_HEAD,
    array_parts,
    is_array,
    read_array_untrusted,
    write_array,
)
from sphtp.errors import MessageTooLargeError, RemoteError, SettingsError, StateError

MAX_ELEMENTS: Final = 2**21
"""The most values of a message: 16 MiB of floats are 1.9 million."""

MAX_DEPTH: Final = 128
"""The deepest nesting of lists and maps: Python's own ``repr`` gives up at a thousand."""

READ_BYTES: Final = 2 * 1024 * 1024
"""Bytes of messages after which no more are decoded at once: 72 times as much memory is 150 MB."""

MAX_ARRAYS: Final = 4096
"""The most arrays of a message: they take 10 ms to build."""

LARGE: Final = 1024
"""The size of a message, in bytes, from which an extra copy costs more than unpacking."""

LEAF: Final = 8192
"""The size of a leaf, in bytes, from which taking it out costs less than searching through it."""

# One packer for all, since making one costs ten times as much as packing a small message. It calls
# no Python code while it packs, so that the threads of a program may share it.
pack_unbounded: Final = msgpack.Packer(autoreset=True).pack

MALFORMED: Final = (ValueError, TypeError, msgpack.UnpackException, RemoteError)
"""The errors that ``unpack`` raises: an unhashable key is a TypeError."""


_ARRAY: Final = Struct(">BI")
_ARRAY_32: Final = 0xDD

# Bytes of a message from which on a pause of the garbage collector is worth the calls for it.
_MANY: Final = 64 * 1024

# Bytes of a message up to which it is cheaper to count the bytes that may begin a list or a map
# than to walk through the message.
_FEW: Final = 2048
_PLACES: Final = 1 << 14  # of 8 bytes each; lists of that many are reserved in 20 us
_NESTING: Final = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
_ONE: Final = b"\x91"

# The first byte of bytes, and of an extension, with a length of one byte. The next two codes have
# lengths of two and of four bytes.
_BIN: Final = 0xC4
_EXT: Final = 0xC7
_HEADS: Final = (Struct(">BB"), Struct(">BH"), Struct(">BI"))
_TIMESTAMP: Final = 0xFF

_PLACE: Final = 4
_PLACE_HEAD: Final = bytes((0xD6, EXTENSION))
_LOOKED_AT: Final = 512
"""Bytes of a message for each value that the search for leaves looks at. The search takes a tenth
of the time of decoding; a large leaf that it does not reach stays in the message."""

# The head of a timestamp of twelve bytes, extension -1. Shorter timestamps have too few bits for
# many equal hashes. A message of MAX_DEPTH bytes has at most eight of these as keys.
_TIMESTAMP_96: Final = b"\xc7\x0c\xff"
_MOST_TIMESTAMPS: Final = 8


class Packing:
    """An encoding by msgpack with limits for the number of values and the depth of their nesting.

    Both sides need the same limits. Raises ``SettingsError`` for a limit that is out of range.
    """

    __slots__ = ("_filler", "_unchecked", "max_depth", "max_elements")

    def __init__(self, max_elements: int = MAX_ELEMENTS, max_depth: int = MAX_DEPTH) -> None:
        if not 1 <= max_elements < 2**32:
            raise SettingsError(f"max_elements is {max_elements}; allowed is 1 to {2**32 - 1}")
        if not 1 <= max_depth <= MAX_DEPTH:
            raise SettingsError(f"max_depth is {max_depth}; allowed is 1 to {MAX_DEPTH}")
        self.max_elements = max_elements
        """The most values of a message. A list and each of its members count as one value each, as
        do a map and each of its keys and values."""
        self.max_depth = max_depth
        """The deepest nesting of lists and maps in a message."""
        self._filler = _ONE * max(0, _stack() - max_depth)
        # Bytes up to which a message is within the limits, whatever its content.
        self._unchecked = min(max_depth, max_elements)

    def describe(self) -> list[str]:
        """Return a line on the limits for the schema; an empty list for the default limits."""
        if (self.max_elements, self.max_depth) == (MAX_ELEMENTS, MAX_DEPTH):
            return []
        return [f"(bounds): at most {self.max_elements} values, {self.max_depth} deep"]

    def pack(self, value: Any, prefix: bytes = b"") -> bytes:
        """Return a value as msgpack, behind ``prefix``.

        Raises:
            TypeError, OverflowError: msgpack cannot encode the value, or the value is a dict whose
                first key is a tuple.
            MessageTooLargeError: the peer would refuse the message, because it has too many values,
                too many arrays, too many far timestamps in a map, or too deep a nesting; or one
                value in it has 4 GiB or more.
        """
        payload: bytes
        kind = type(value)
        if kind is bytes and len(value) <= LARGE:
            # The most frequent message, and a leaf, which needs no check.
            payload = pack_unbounded(value)
            return prefix + payload if prefix else payload
        if kind in _BUFFERS and ((size := _BUFFERS[kind]) is None or size(value) > LARGE):
            return b"".join((prefix, *_leaf(value)))
        if isinstance(value, dict):
            # msgpack has no tuples: receivers unpack one as a list, which is no key in Python, and
            # drop the message. The keys of a dict are nearly always of one kind, so the first one
            # shows the mistake. To look at all keys, and at those of inner dicts, would take as
            # long as packing.
            for key in value:
                if isinstance(key, tuple):
                    raise TypeError("msgpack cannot carry a tuple as a key of a dict")
                break
        try:
            payload = pack_unbounded(value)
        except (TypeError, BufferError):
            return self._pack_around(value, prefix)
        except ValueError as error:
            raise _refused(error) from error
        if len(payload) > self._unchecked:
            self._check_own(_take_out(payload)[0])
        return prefix + payload

    def pack_many(self, values: Iterable[Any]) -> list[bytes]:
        """Return each value as msgpack; raises as ``pack``."""
        values = tuple(values)
        if set(map(type, values)) == {bytes} and max(map(len, values)) <= LARGE:
            # Without a check of each value: 155 ns instead of 230 for 64 bytes.
            return list(map(pack_unbounded, values))
        return list(map(self.pack, values))

    def pack_parts(self, value: Any, prefix: bytes = b"") -> "Parts":
        """Return a value as msgpack behind ``prefix``, in parts.

        If the value is large bytes or an array, it is the body. Only an array that is not
        contiguous, and the first array of its class in the process, are copied. Raises as ``pack``.
        """
        kind = type(value)
        if kind in _BUFFERS and ((size := _BUFFERS[kind]) is None or size(value) > LARGE):
            head, body = _leaf(value)
            return Parts(prefix + head, body)
        return Parts(self.pack(value, prefix))

    def _pack_around(self, value: Any, prefix: bytes) -> bytes:
        """Pack a value that contains buffers, arrays or NumPy's numbers; copy each leaf once.

        msgpack packs a nil in the place of each leaf, and reports the place.
        """
        leaves: list[tuple[int, bytes, Any]] = []

        def replace(inner: Any) -> Any:
            number = _number(inner)
            if number is None:
                with packer.getbuffer() as packed:
                    leaves.append((len(packed), *_leaf(inner)))
            return number

        packer = msgpack.Packer(default=replace, autoreset=False, buf_size=LEAF)
        try:
            packer.pack(value)
        except BufferError as error:
            raise TypeError(str(error)) from None
        except ValueError as error:
            raise _refused(error) from error
        rest = packer.bytes()
        if len(rest) > self._unchecked:
            self._check_own(rest)
        if len(leaves) > MAX_ARRAYS and sum(is_array(body) for *_, body in leaves) > MAX_ARRAYS:
            raise MessageTooLargeError(f"a message of more than {MAX_ARRAYS} arrays")
        pieces, start = [prefix], 0
        for place, head, body in leaves:
            pieces += rest[start:place], head, body
            start = place + 1
        return b"".join((*pieces, rest[start:]))

    def unpack(self, payload: bytes, start: int = 0) -> Any:
        """Return the value that the bytes from ``start`` on encode.

        Raises an error of ``MALFORMED`` if they encode no value, or one beyond the limits.
        """
        size = len(payload)
        if size - start <= self._unchecked:
            if start:
                payload = payload[start:]
            return msgpack.unpackb(payload, strict_map_key=False, ext_hook=_extension)
        if payload[start] in _LONG and _end(payload, start) == size:
            return _read_leaf(payload, start, size)
        rest, leaves = _take_out(payload, start)
        self._check_structure(rest)
        if len(rest) > self.max_elements and count_elements(rest, self.max_elements) is None:
            raise ValueError(f"more than {self.max_elements} values")
        return _build(rest, _extensions(payload, leaves))

    def unpack_shared_untrusted(
        self, payload: memoryview, start: int = 0, *, is_copied: bool = True
    ) -> Any:
        """Return the value from ``start`` on in memory that its sender may change meanwhile.

        An array or bytes of more than 255 bytes are copied once. The head before them is copied
        first, and only the copy is read. If not ``is_copied``, such an array is a view of the
        memory, which stays mapped as long as the array lives; the caller has to keep the sender
        from reusing that part of the memory. Any other value is copied as a whole and then
        unpacked. Raises an error of ``MALFORMED``.
        """
        size = len(payload)
        head = bytes(payload[start : start + _MOST_BEFORE])
        if head and head[0] in _LONG and start + _end(head, 0) == size:
            width, more = _LONG[head[0]]
            body = 1 + width + more
            if not more and head[0] not in _LONG_TEXT:
                return bytes(payload[start + body :])
            if more and head[body - 1] == EXTENSION:
                return read_array_untrusted(
                    payload, start + body, size, head=head[body:], is_copied=is_copied
                )
        return self.unpack(bytes(payload[start:]))

    def unpack_parts(self, parts: "Parts", start: int) -> Any:
        """Return the value that ``pack_parts`` has packed behind ``start`` bytes."""
        return self.unpack(parts.head, start) if parts.body is None else _copy(parts.body)

    def unpack_many(self, payloads: Sequence[bytes]) -> list[Any] | None:
        """Return the values of payloads; None if the caller has to unpack them one by one.

        Many small payloads, unpacked as one list, cost a tenth of the time. If they do not form a
        valid list, some are malformed, and the caller has to find them. A malicious peer may encode
        values that cross the borders of its payloads. The result is other values, which the peer
        could have sent anyway; checking the borders would double the cost.
        """
        number = len(payloads)
        size = sum(map(len, payloads))
        if number == 1 or size > LARGE * number or size > self.max_elements:
            return None
        payload = b"".join((_ARRAY.pack(_ARRAY_32, number), *payloads))
        try:
            # Inside the list, the values are one level deeper than alone.
            _skip(self._filler[1:], payload)
            values: list[Any] = _build(payload, _extensions(payload, {}))
        except MALFORMED:
            return None
        return values

    def _check_structure(self, payload: bytes) -> None:
        if len(payload) <= _FEW:
            most = _nesting(payload)
            if most <= self.max_depth and most * len(payload) <= _PLACES:
                return
        _skip(self._filler, payload)

    def _check_own(self, payload: bytes) -> None:
        """Raise ``MessageTooLargeError`` for a message of this side that a peer would refuse.

        The lengths in the message are right, because it has just been packed.
        """
        if len(payload) > _FEW or _nesting(payload) > self.max_depth:
            try:
                _skip(self._filler, payload)
            except msgpack.StackError:
                raise MessageTooLargeError(
                    f"a message nested deeper than max_depth, {self.max_depth}"
                ) from None
        if _TIMESTAMP_96 in payload:
            _check_keys(payload)
        most = self.max_elements
        if len(payload) > most and count_elements(payload, most) is None:
            raise MessageTooLargeError(f"a message of more values than max_elements, {most}")


class Parts:
    """A payload in two parts: ``head``, and a ``body`` that is not copied yet, or None.

    The body is bytes, a view or an array.
    """

    __slots__ = ("__weakref__", "body", "head", "size", "step")

    def __init__(self, head: bytes, body: Any = None) -> None:
        self.head = head
        self.body = body
        self.size = len(head)
        if body is not None:
            self.size += len(body) if type(body) is bytes else body.nbytes
        self.step: int | None = None
        """The step of a contribution, whose peers can all read one copy of it; None for others."""

    def __len__(self) -> int:
        return self.size

    def join(self) -> bytes:
        """Return the payload in one piece."""
        return self.head if self.body is None else b"".join((self.head, self.body))

    def detach(self) -> None:
        """Copy the body, which belongs to the caller, who may change it from now on."""
        if self.body is not None:
            self.body = _copy(self.body)

    def write(self, view: memoryview, start: int) -> None:
        """Copy the payload into ``view``, from the offset ``start`` on."""
        head, body = self.head, self.body
        begin = start + len(head)
        view[start:begin] = head
        if body is None:
            return
        if is_array(body):
            write_array(body, view, begin)
        else:
            view[begin : start + self.size] = _octets(body)


def _refused(error: ValueError) -> TypeError | MessageTooLargeError:
    """Return the error for a value that msgpack refuses with a ``ValueError``."""
    if isinstance(error, UnicodeError):
        return TypeError(f"msgpack cannot carry a text with a surrogate: {error}")
    # It is nested too deeply, or contains itself; or a text, a list or a map is too large.
    return MessageTooLargeError(f"a message that msgpack cannot carry: {error}")


def _copy(part: Any) -> Any:
    if is_array(part):
        # The receiver gets a plain array, even of a subclass.
        return sys.modules["numpy"].array(part)
    return bytes(part)


def _octets(part: Any) -> Any:
    try:
        return memoryview(part).cast("B")
    except TypeError:
        # A view of items in another byte order, which only a copy converts to bytes.
        return bytes(part)


def _skip(filler: bytes, payload: bytes) -> None:
    """Walk through one value; raise ``MALFORMED`` if there is none."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(filler) + len(payload))
    unpacker.feed(filler)
    unpacker.feed(payload)
    unpacker.skip()


def _build(payload: bytes, extension: "Extension") -> Any:
    if len(payload) < _MANY or not gc.isenabled():
        return _unpack_structure(payload, extension)
    # Without arrays, msgpack is one call during which no other thread runs. With arrays, other
    # threads may make a little garbage meanwhile.
    gc.disable()
    try:
        return _unpack_structure(payload, extension)
    finally:
        gc.enable()


def _unpack_structure(payload: bytes, extension: "Extension") -> Any:
    pairs_hook = _map_of if _TIMESTAMP_96 in payload else None
    return msgpack.unpackb(
        payload, strict_map_key=False, ext_hook=extension, object_pairs_hook=pairs_hook
    )


def _check_keys(payload: bytes) -> None:
    try:
        # A key cannot be an array, so arrays need not be read.
        _unpack_structure(payload, _opaque)
    except ValueError as error:
        raise MessageTooLargeError(str(error)) from None


def _map_of(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    keys = [key for key, _ in pairs if type(key) is msgpack.Timestamp]
    if len(keys) > _MOST_TIMESTAMPS and sum(map(_is_far, keys)) > _MOST_TIMESTAMPS:
        raise ValueError(f"a map with more than {_MOST_TIMESTAMPS} keys that are far timestamps")
    return dict(pairs)


def _is_far(timestamp: Any) -> bool:
    """Return True if a timestamp needs 96 bits, because its seconds need more than 34."""
    return bool(timestamp.seconds >> 34)


def _nesting(payload: bytes) -> int:
    """Return the number of bytes that could begin a list or a map.

    This is an upper bound of the number of lists and maps.
    """
    return len(payload) - len(payload.translate(None, _NESTING))


# --- extensions and leaves ----------------------------------------------------------------------

# By the first byte of a leaf: the number of bytes of its length, and of further bytes before its
# content.
_LONG: Final = {
    0xC5: (2, 0), 0xC6: (4, 0),
    0xC8: (2, 1), 0xC9: (4, 1),
    0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
_LENGTHS: Final = {0xC4: (1, 0), 0xC7: (1, 1), 0xD9: (1, 0), **_LONG}

_MOST_BEFORE: Final = 1 + 4 + 1 + MOST_HEAD
"""The most bytes before the items in a message that is an array."""
_LONG_TEXT: Final = (0xDA, 0xDB)

# The number of bytes behind the first byte of any other value; of a list or a map, those before its
# first member.
_TAILS: Final = {
    **{0xA0 + n: n for n in range(32)},
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
    **{0xD4 + n: 1 + (1 << n) for n in range(5)},
}  # fmt: skip
_SIZES: Final = bytes(1 + _TAILS.get(first, 0) for first in range(256))


def _end(payload: bytes, start: int) -> int:
    """Return the offset of the end of a leaf with a length."""
    width, more = _LENGTHS[payload[start]]
    begin = start + 1 + width
    return begin + more + int.from_bytes(payload[start + 1 : begin], "big")


Extension: TypeAlias = Callable[[int, bytes], Any]
"""A function that makes a value from the code and the bytes of an extension."""


def _opaque(code: int, data: bytes) -> msgpack.ExtType:
    # The constructor would take three times as long, and check a code that is always valid here.
    return tuple.__new__(msgpack.ExtType, (code, data))


def _extension(code: int, data: bytes) -> Any:
    if code == EXTENSION:
        return read_array_untrusted(data, 0, len(data))
    return _opaque(code, data)


def _extensions(payload: bytes, leaves: dict[bytes, tuple[int, int]]) -> Extension:
    """Return a function that puts leaves back into their places, and limits the arrays."""
    if not leaves and len(payload) <= _FEW:
        return _extension
    room = MAX_ARRAYS

    def extension(code: int, data: bytes) -> Any:
        nonlocal room
        if code != EXTENSION:
            return _opaque(code, data)
        # Each place is valid once. A peer that writes a place itself makes a leaf's place invalid.
        leaf = leaves.pop(data, None)
        if leaf is None:
            value = read_array_untrusted(data, 0, len(data))
        else:
            value = _read_leaf(payload, *leaf)
        if is_array(value):
            room -= 1
            if room < 0:
                raise ValueError(f"more than {MAX_ARRAYS} arrays")
        return value

    return extension


# A function for the size of a buffer in bytes, by its type. Arrays are added when the first one is
# sent, without a function: msgpack itself cannot pack any of them.
_BUFFERS: Final[dict[type, Callable[[Any], int] | None]] = {
    bytes: len,
    bytearray: len,
    memoryview: attrgetter("nbytes"),
}


def _leaf(value: Any) -> tuple[bytes, Any]:
    """Return the head of a leaf, and its content: a view, or an array.

    Raises as ``array_parts`` for an array, ``TypeError`` for another value that is no contiguous
    buffer, and ``MessageTooLargeError`` for 4 GiB or more.
    """
    if is_array(value):
        head, items = array_parts(value)
        _BUFFERS.setdefault(type(value), None)
        size = len(head) + items.nbytes
        return _head(_EXT, size) + bytes((EXTENSION,)) + head, items
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(f"msgpack cannot carry a value of type {type(value).__name__}") from None
    if not view.c_contiguous:
        raise TypeError("a buffer that is not contiguous; send bytes of it")
    return _head(_BIN, view.nbytes), view


def _head(first: int, size: int) -> bytes:
    if size >= 2**32:
        raise MessageTooLargeError(f"{size} bytes in one value; msgpack carries less than {2**32}")
    wider = (size > 0xFF) + (size > 0xFFFF)
    return _HEADS[wider].pack(first + wider, size)


def _number(value: Any) -> Any:
    """Return a NumPy number as Python's; None for a value that is no scalar of NumPy.

    Raises ``TypeError`` for a scalar other than a boolean, an integer or a float.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return None
    number = value.item()
    if not isinstance(number, bool | int | float):
        raise TypeError(f"msgpack cannot carry a value of type numpy.{type(value).__name__}")
    return number


def _take_out(payload: bytes, start: int = 0) -> tuple[bytes, dict[bytes, tuple[int, int]]]:
    """Return a payload with places instead of its large leaves, and the leaves' offsets by place.

    A place is an extension that is too short to be an array. If values are many and small, the
    search stops, and the rest of the payload stays as it is.
    """
    leaves: dict[bytes, tuple[int, int]] = {}
    size = len(payload)
    if size - start <= 2 * LEAF:
        return payload[start:], leaves
    pieces = list[bytes]()
    kept, room = start, (size - start) // _LOOKED_AT
    while start < size and room > 0:
        first = payload[start]
        end = _end(payload, start) if first in _LENGTHS else start + _SIZES[first]
        if end - start < LEAF:
            room -= 1
            start = end
            continue
        if end > size:
            raise ValueError(f"a value of {end - start} bytes in {size - start}")
        place = len(leaves).to_bytes(_PLACE, "big")
        leaves[place] = (start, end)
        pieces += payload[kept:start], _PLACE_HEAD, place
        kept = start = end
    pieces.append(payload[kept:])
    return b"".join(pieces), leaves


def _read_leaf(payload: bytes, start: int, end: int) -> Any:
    """Return the long text, bytes or extension at an offset; raise ``MALFORMED`` if invalid."""
    kind = payload[start]
    width, more = _LONG[kind]
    body = start + 1 + width + more
    if kind in _LONG_TEXT:
        return str(memoryview(payload)[body:end], "utf-8")
    if not more:
        return bytes(memoryview(payload)[body:end])
    code = payload[body - 1]
    if code == EXTENSION:
        return read_array_untrusted(payload, body, end)
    if code == _TIMESTAMP:
        raise ValueError(f"a time of {end - body} bytes")
    return _opaque(code - 256 if code > 127 else code, bytes(memoryview(payload)[body:end]))


@lru_cache(maxsize=1)
def _stack() -> int:
    """Return the capacity of msgpack's stack, a constant of its compiled code."""
    low, high = MAX_DEPTH, 1 << 16
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _skip(_ONE * middle, b"\xc0")
        except msgpack.StackError:
            high = middle
        else:
            low = middle
    return low


# --- counting -----------------------------------------------------------------------------------

_CHUNK: Final = 4096
"""The number of values that the pattern below matches at once."""


def _sized(more: int) -> bytes:
    """Return a pattern for a length byte, as many bytes as its value, and ``more`` bytes."""
    # Two levels of 16 alternatives take at most 32 comparisons; 256 in a row took 128 on average.
    groups = (
        b"(?=[\\x%02x-\\x%02x])(?:%s)"
        % (
            first,
            first + 15,
            b"|".join(b"\\x%02x.{%d}" % (n, n + more) for n in range(first, first + 16)),
        )
        for first in range(0, 256, 16)
    )
    return b"(?:" + b"|".join(groups) + b")"


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns for a chunk of values and for one value, compiled at the first use.

    Members of a list or map are values of their own. The patterns do not match text, bytes and
    extensions of more than 255 bytes. The most frequent values of large messages come first.
    """
    value = b"|".join(
        (
            rb"\xcb.{8}",
            rb"[\x00-\x9f\xc0\xc2\xc3\xe0-\xff]",
            rb"[\xcd\xd1\xdc\xde].{2}",
            rb"[\xcc\xd0].",
            rb"[\xca\xce\xd2\xdd\xdf].{4}",
            rb"[\xcf\xd3].{8}",
            *(b"\\x%02x.{%d}" % (0xA0 + n, n) for n in range(32)),
            rb"(?:[\xc4\xd9]|[\xc5\xda]\x00|[\xc6\xdb]\x00\x00\x00)" + _sized(0),
            rb"(?:\xc7|\xc8\x00|\xc9\x00\x00\x00)" + _sized(1),
            *(b"\\x%02x.{%d}" % (0xD4 + n, (1 << n) + 1) for n in range(5)),
        )
    )
    chunk = b"(?:%s){,%d}+" % (value, _CHUNK)
    return re.compile(chunk, re.DOTALL), re.compile(value, re.DOTALL)


def count_elements(payload: bytes, most: int) -> int | None:
    """Return the number of values in a well-formed payload; None if there are more than ``most``.

    A value takes 25 ns, a long text 500 ns, and counting stops after ``most``.
    """
    chunk, single = _patterns()
    number, start, end, pieces = 0, 0, len(payload), []
    while start < end and number <= most:
        stop = _end_of(chunk, payload, start)
        if stop == end or (payload[stop] in _LONG and not single.match(payload, stop)):
            # A match does not have the number of its values: they are counted below.
            pieces.append(payload[start:stop])
            if stop < end:
                number += 1
                stop = _end(payload, stop)
        else:
            number += _CHUNK
        start = stop
    rest, start = b"".join(pieces), 0
    while start < len(rest) and number <= most:
        stop = _end_of(chunk, rest, start)
        number += _CHUNK if stop < len(rest) else len(single.findall(rest, start))
        start = stop
    return number if number <= most else None


def _end_of(chunk: re.Pattern[bytes], payload: bytes, start: int) -> int:
    match = chunk.match(payload, start)
    if match is None or (match.end() == start < len(payload) and payload[start] not in _LONG):
        raise ValueError(f"no value at byte {start}")
    return match.end()


DEFAULT: Final = Packing()
pack, unpack, unpack_many = DEFAULT.pack, DEFAULT.unpack, DEFAULT.unpack_many
pack_parts, unpack_parts = DEFAULT.pack_parts, DEFAULT.unpack_parts
unpack_shared_untrusted = DEFAULT.unpack_shared_untrusted

NO_LIMIT: Final = 1 << 30
"""A number of messages that no call reaches."""


class PlainEncoding:
    """The encoding of messages that are plain msgpack values, without types."""

    most_at_once = NO_LIMIT

    def encode(self, value: Any, compress: bool | None) -> bytes:
        """Return a value as msgpack; raises as ``Packing.pack``.

        Raises ``StateError`` with ``compress``.
        """
        if compress:
            raise StateError("without `messages` nothing is compressed")
        return pack(value)

    def encode_many(self, values: Iterable[Any], compress: bool | None) -> list[bytes]:
        """Return each value as msgpack; raises as ``Packing.pack``.

        Raises ``StateError`` with ``compress``.
        """
        if compress:
            raise StateError("without `messages` nothing is compressed")
        return DEFAULT.pack_many(values)

    def encode_parts(self, value: Any, compress: bool | None) -> Parts:
        """Return a value as msgpack, in parts; raises as ``Packing.pack``.

        Raises ``StateError`` with ``compress``.
        """
        if compress:
            raise StateError("without `messages` nothing is compressed")
        return pack_parts(value)

    def decode_shared_untrusted(self, payload: memoryview, *, is_copied: bool) -> list[Any]:
        """Return a list of the value in shared memory; an empty list if it is malformed."""
        try:
            return [unpack_shared_untrusted(payload, is_copied=is_copied)]
        except MALFORMED:
            return []

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the values of payloads, without the malformed ones."""
        if len(payloads) == 1:
            try:
                return [unpack(payloads[0])]
            except MALFORMED:
                return []
        values = unpack_many(payloads)
        if values is not None:
            return values
        return [value for payload in payloads for value in _unpack_if_possible(payload)]


PLAIN: Final = PlainEncoding()


def _unpack_if_possible(payload: bytes) -> list[Any]:
    try:
        return [unpack(payload)]
    except MALFORMED:
        return []
