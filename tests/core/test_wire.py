"""Fields come back as they went in, and a buffer never gives what it does not hold."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.wire import Reader, Writer
from sphtp.errors import WireError
from tests.profiles import few

WIDTHS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
every_width = pytest.mark.parametrize("name", WIDTHS)

numbers = st.sampled_from(sorted(WIDTHS)).flatmap(
    lambda name: st.tuples(st.just(name), st.integers(0, 2 ** WIDTHS[name] - 1))
)
raws = st.tuples(st.just("take"), st.binary(max_size=20))
records = st.lists(st.one_of(numbers, raws), max_size=12)
Record = list[tuple[str, int | bytes]]


def written(record: Record) -> bytes:
    writer = Writer()
    for name, value in record:
        assert getattr(writer, "raw" if name == "take" else name)(value) is writer
    return writer.finish()


def read(record: Record, data: bytes | memoryview) -> Record:
    """Take the record's fields off the data, and refuse anything that is left."""
    reader = Reader(data)
    values: Record = [
        (name, reader.take(len(value)) if isinstance(value, bytes) else getattr(reader, name)())
        for name, value in record
    ]
    reader.finish()
    return values


def expected(record: Record) -> bytes:
    return b"".join(
        value if isinstance(value, bytes) else value.to_bytes(WIDTHS[name] // 8, "little")
        for name, value in record
    )


@few
@given(records, st.binary(min_size=1, max_size=5))
def test_little_endian_without_padding_whole_and_neither_cut_nor_with_more_behind(
    record: Record, tail: bytes
) -> None:
    data = written(record)
    assert data == expected(record)
    assert read(record, data) == record
    assert read(record, memoryview(data)) == record
    for length in range(len(data)):
        with pytest.raises(WireError, match=r"\d+ bytes wanted, \d+ left"):
            read(record, data[:length])
    with pytest.raises(WireError, match=f"^{len(tail)} bytes too many$"):
        read(record, data + tail)


@given(st.binary(max_size=64), st.lists(st.integers(0, 20), max_size=8))
def test_taking_pieces_loses_and_invents_nothing(data: bytes, counts: list[int]) -> None:
    reader, taken = Reader(data), b""
    for count in counts:
        if count <= reader.remaining:
            taken += reader.take(count)
        assert reader.remaining == len(data) - len(taken)
    assert taken + reader.rest() == data
    assert reader.remaining == 0
    reader.finish()


@every_width
def test_a_refused_field_stays_where_it_was(name: str) -> None:
    short = bytes(WIDTHS[name] // 8 - 1)
    reader = Reader(short)
    with pytest.raises(WireError):
        getattr(reader, name)()
    assert reader.rest() == short


def test_what_was_taken_outlives_its_buffer() -> None:
    buffer = bytearray(b"first")
    taken = Reader(memoryview(buffer)).take(5)
    buffer[:] = b"other"
    assert taken == b"first"


@every_width
def test_the_largest_number_of_a_field_fits_and_no_larger(name: str) -> None:
    largest = 2 ** WIDTHS[name] - 1
    writer = Writer()
    write: Callable[[int], Writer] = getattr(writer, name)
    write(largest)
    for wrong in (largest + 1, -1):
        with pytest.raises(WireError, match=f"^{wrong} does not fit {WIDTHS[name]} bits$"):
            write(wrong)
    assert writer.finish() == b"\xff" * (WIDTHS[name] // 8)


@given(st.binary(max_size=300))
def test_a_prefix_counts_its_bytes(data: bytes) -> None:
    reader = Reader(Writer().prefixed(data, Writer.u16).finish())
    assert reader.take(reader.u16()) == data
    reader.finish()


def test_a_prefix_too_narrow_for_its_bytes_is_refused() -> None:
    assert Writer().prefixed(bytes(255), Writer.u8).finish() == b"\xff" + bytes(255)
    with pytest.raises(WireError, match="256 does not fit 8 bits"):
        Writer().prefixed(bytes(256), Writer.u8)
