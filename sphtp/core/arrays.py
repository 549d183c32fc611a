"""Encoding and decoding of NumPy's arrays.

Theory of operation. An array travels as a msgpack extension: a head that describes the array, then
its items as they lie in memory, in C order. NumPy's own formats are unsafe for bytes from a peer:
a pickle may execute code, and the head of the file format is Python source.

| bytes | field | meaning |
|---|---|---|
| 1 | order | ``<`` or ``>``; ``|`` where an item is one byte |
| 1 | kind | ``b`` boolean, ``i`` integer, ``u`` unsigned, ``f`` float, ``c`` complex |
| 1 | itemsize | bytes of an item |
| 1 | ndim | dimensions, 0 to 32 |
| 4 each | shape | little-endian |
| the rest | items | exactly as many as the shape requires |

The first three bytes are those of NumPy's own type strings (``<f8``), with the number as a byte.
Arrays of other items cannot be sent: objects, records, texts, times and ``longdouble``. The meaning
of a ``longdouble``'s 16 bytes depends on the processor. An array has only one possible head, so
that arrays with the same type, shape and items have equal bytes.

A received array is copied once, out of the message, so that a program may write to it, and it keeps
no other memory alive. With ``array_views`` it may be a view instead: see ``read_array_untrusted``.
NumPy is loaded when the first array arrives, and not before.
"""

import sys
from functools import lru_cache
from math import prod
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sphtp.errors import RemoteError

if TYPE_CHECKING:
    import numpy

    Array: TypeAlias = numpy.ndarray[Any, Any]

EXTENSION: Final = 78
"""The code of the msgpack extension: the letter ``N``."""

MAX_DIMENSIONS: Final = 32
"""The most dimensions of an array: NumPy 1 has no more; NumPy 2 has 64."""

MAX_LENGTH: Final = 2**32 - 1
"""The largest length of a dimension: that of four bytes in the head."""

_HEAD: Final = 4
_LENGTH: Final = 4
_LENGTHS: Final = [Struct(f"<{number}I") for number in range(MAX_DIMENSIONS + 1)]

MOST_HEAD: Final = _HEAD + _LENGTH * MAX_DIMENSIONS
"""The most bytes before the items."""

_WIDTHS: Final = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
_KINDS: Final = {
    f"{order}{kind}".encode() + bytes((width,)): f"{order}{kind}{width}"
    for kind, widths in _WIDTHS.items()
    for width in widths
    for order in ("|" if width == 1 else "<>")
}
"""The first three bytes of a head, and NumPy's type string for them."""

_HEADS: Final = {name: head for head, name in _KINDS.items()}


def is_array(value: Any) -> bool:
    """Return True if the value is a NumPy array. This does not load NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_view(value: Any) -> bool:
    """Return True if the value is an array that does not own its memory."""
    return is_array(value) and not value.flags.owndata


def array_parts(array: "Array") -> tuple[bytes, Any]:
    """Return the head of an array and its items, which are copied only if not in C order.

    Raises:
        TypeError: the items have a type that cannot be sent, or the array is of a subclass other
            than ``memmap``, which may have further data.
        OverflowError: the array has too many dimensions, or one that is too long.
    """
    numpy = sys.modules["numpy"]
    # A mask, or the labels of records, would be lost silently.
    if type(array) is not numpy.ndarray and not isinstance(array, numpy.memmap):
        name = type(array).__name__
        raise TypeError(f"a {name} is more than an array; send numpy.asarray of it, or its parts")
    head = _head(array.dtype, array.shape)
    if not array.flags.c_contiguous:
        array = numpy.ascontiguousarray(array)
    return head, array


# A simulation sends arrays of the same few shapes at every step.
@lru_cache(maxsize=256)
def _head(dtype: "numpy.dtype[Any]", shape: tuple[int, ...]) -> bytes:
    kind = _HEADS.get(dtype.str)
    if kind is None:
        raise TypeError(
            f"an array with items of type {dtype} cannot be sent, only booleans, integers, floats "
            "of up to 8 bytes and complex numbers of up to 16 bytes"
        )
    if len(shape) > MAX_DIMENSIONS:
        raise OverflowError(f"{len(shape)} dimensions; allowed are {MAX_DIMENSIONS}")
    if shape and max(shape) > MAX_LENGTH:
        raise OverflowError(f"a dimension of {max(shape)}; allowed is {MAX_LENGTH}")
    return kind + bytes((len(shape),)) + _LENGTHS[len(shape)].pack(*shape)


def write_array(array: "Array", view: memoryview, start: int) -> int:
    """Copy the items of an array into memory, in C order; return the offset of their end."""
    numpy = sys.modules["numpy"]
    numpy.ndarray(array.shape, array.dtype, view, start)[...] = array
    return start + array.nbytes


def read_array_untrusted(
    data: Any, start: int, end: int, *, head: bytes | None = None, is_copied: bool = True
) -> "Array":
    """Return the array that the bytes between ``start`` and ``end`` encode.

    Args:
        head: a copy of the first bytes, if another process may change ``data`` meanwhile.
        is_copied: True for a new array. Otherwise the array is a view of the memory of ``data``,
            and keeps that memory alive.

    Raises:
        RemoteError: the bytes are not an array, or NumPy is not installed.
    """
    if end - start < _HEAD:
        raise RemoteError(f"an array in {end - start} bytes")
    header, at = (data, start) if head is None else (head, 0)
    name = _KINDS.get(bytes(header[at : at + 3]))
    if name is None:
        raise RemoteError("an array of unknown items")
    ndim = header[at + 3]
    items = start + _HEAD + _LENGTH * ndim
    if ndim > MAX_DIMENSIONS or items > end:
        raise RemoteError(f"an array of {ndim} dimensions in {end - start} bytes")
    shape = _LENGTHS[ndim].unpack_from(header, at + _HEAD)
    dtype, ndarray = _numpy(name)
    # Python's integers do not overflow, even with 32 dimensions of 2^32 - 1.
    if prod(shape) * dtype.itemsize != end - items:
        raise RemoteError(f"an array of shape {shape} in {end - items} bytes of items")
    try:
        array: Array = ndarray(shape, dtype, data, items)
    except ValueError as error:
        # An empty array with dimensions whose product is too large for NumPy.
        raise RemoteError(f"an array of shape {shape}: {error}") from None
    return array.copy() if is_copied else array


@lru_cache(maxsize=len(_KINDS))
def _numpy(name: str) -> tuple["numpy.dtype[Any]", "type[Array]"]:
    """Return NumPy's type of items with this name, and the array class.

    Raises ``RemoteError`` if NumPy is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise RemoteError("an array, and NumPy is not installed") from None
    return numpy.dtype(name), numpy.ndarray
