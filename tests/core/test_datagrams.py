"""Datagrams as one piece of memory."""

import pytest

from sphtp.core.datagrams import Datagrams
from tests.cases import each


@each(
    ("data", "size", "datagrams"),
    [
        (b"", 1, [b""]),
        (b"abc", 3, [b"abc"]),
        (b"abcdef", 3, [b"abc", b"def"]),
        (b"abcdefg", 3, [b"abc", b"def", b"g"]),
        (b"ab", 1, [b"a", b"b"]),
        (b"ab", 3, [b"ab"]),
    ],
)
def test_a_row_is_its_datagrams(data: bytes, size: int, datagrams: list[bytes]) -> None:
    row = Datagrams(("127.0.0.1", 1), data, size)
    assert list(row.datagrams) == datagrams
    assert row.number == len(datagrams)
    assert row.is_whole == (not data or len(datagrams[-1]) == size)


@pytest.mark.parametrize("datagram", [b"", b"x", bytes(1000)])
def test_a_datagram_is_a_row_of_one(datagram: bytes) -> None:
    row = Datagrams.of(("127.0.0.1", 1), datagram)
    assert (row.number, row.datagrams) == (1, [datagram])
