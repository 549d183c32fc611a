"""What may happen to bytes on their way to somebody who has to survive them."""

from collections.abc import Callable, Sequence
from typing import Final

from tests.fuzz.choices import Choices

EDGES: Final = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    2**64 - 1,
)
"""Numbers at which fields end, or change their meaning."""

WIDTHS: Final = (1, 2, 4, 8)

FARTHEST: Final = 64
"""Changes are made near the front, where the fields are, as often as anywhere."""

MOST: Final = 65_507
"""Bytes of the largest datagram that there is."""


def mutate(choices: Choices, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Change some bytes in one to four ways; ``others`` are what parts may come from."""
    for _ in range(1 + choices.below(4)):
        data = choices.pick(WAYS)(choices, data, others)
    return data[:MOST]


def _flip(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = _place(choices, data)
    return data[:at] + bytes([data[at] ^ 1 << choices.below(8)]) + data[at + 1 :]


def _put_byte(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(choices, data)
    return data[:at] + bytes([choices.below(256)]) + data[at + 1 :]


def _put_edge(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    at, width = _place(choices, data), choices.pick(WIDTHS)
    number = choices.pick(EDGES) & (1 << 8 * width) - 1
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def _add(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    """Count a field up or down a little: the next number is likelier to be taken than any."""
    at, width = _place(choices, data), choices.pick(WIDTHS)
    number = int.from_bytes(data[at : at + width], "little") + choices.below(64) - 32
    number &= (1 << 8 * width) - 1
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def _cut(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _place(choices, data)]


def _drop(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(choices, data)
    return data[:at] + data[at + 1 + choices.below(16) :]


def _insert(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(choices, data)
    return data[:at] + choices.some_bytes(16) + data[at:]


def _append(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    return data + choices.some_bytes(32)


def _repeat(choices: Choices, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(choices, data)
    return data[:at] + data[at : at + 1 + choices.below(32)] * choices.below(16) + data[at:]


def _splice(choices: Choices, data: bytes, others: Sequence[bytes]) -> bytes:
    if not others:
        return data
    other = choices.pick(others)
    return data[: _place(choices, data)] + other[_place(choices, other) :]


def _place(choices: Choices, data: bytes) -> int:
    size = max(1, len(data))
    return choices.below(min(FARTHEST, size) if choices.below(4) else size)


Way = Callable[[Choices, bytes, Sequence[bytes]], bytes]

WAYS: Final[Sequence[Way]] = (
    _flip,
    _put_byte,
    _put_edge,
    _add,
    _cut,
    _drop,
    _insert,
    _append,
    _repeat,
    _splice,
)
