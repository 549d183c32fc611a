"""One row of calls, made on three streams: what is written is read, and is as long as measured."""

import math
import struct
from collections.abc import Callable
from enum import Enum, Flag
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.messages import BitStream, MeasureStream, ReadStream, WriteStream
from sphtp.errors import SettingsError, WireError
from tests.cases import each
from tests.core.messages.kinds import Colour, Gear, Point, Shot, singles, texts

Call = tuple[str, Any, tuple[Any, ...]]


def call(name: str, values: st.SearchStrategy[Any], *bounds: Any) -> st.SearchStrategy[Call]:
    return values.map(lambda value: (name, value, bounds))


@st.composite
def integers(draw: st.DrawFn) -> Call:
    low, value, high = sorted(draw(st.tuples(*[st.integers(-(2**80), 2**80)] * 3)))
    return "integer", value, (low, high)


calls = st.one_of(
    st.integers(0, 90).flatmap(lambda n: call("bits", st.integers(0, 2**n - 1), n)),
    integers(),
    call("boolean", st.booleans()),
    call("float32", singles),
    call("float64", st.floats(allow_nan=False)),
    call("compressed", st.integers(0, 4).map(lambda step: step / 2), 0.0, 2.0, 0.5),
    call("data", st.binary(max_size=300), 300),
    call("text", texts(30), 30),
    call("enum", st.sampled_from(Gear), Gear),
)
programs = st.lists(calls, max_size=30)


def run(stream: BitStream, program: list[Call], *, blank: bool = False) -> list[Any]:
    return [
        getattr(stream, name)(None if blank else value, *bounds) for name, value, bounds in program
    ]


@given(programs, st.integers(0))
def test_what_is_written_is_read_and_measured_and_no_part_of_it(
    program: list[Call], cut: int
) -> None:
    values = [value for _, value, _ in program]
    writing, measuring = WriteStream(), MeasureStream()
    assert run(writing, program) == values
    assert run(measuring, program) == values
    data = writing.finish()
    assert measuring.position == writing.position
    assert len(data) == math.ceil(writing.position / 8)
    reading = ReadStream(data)
    assert run(reading, program, blank=True) == values
    assert reading.position == writing.position
    reading.finish()
    if data:
        with pytest.raises(WireError):
            run(ReadStream(data[: cut % len(data)]), program, blank=True)


def test_bits_are_packed_lowest_first() -> None:
    stream = WriteStream()
    stream.boolean(True)
    stream.integer(-3, -5, 5)
    stream.bits(0x1FF, 9)
    stream.data(b"\x01\x80", 3)
    assert stream.position == 1 + 4 + 9 + 2 + 16
    assert stream.finish() == bytes([0b11100101, 0b10111111, 0b00000001, 0b10000000])


def test_floats_have_their_ieee_bytes() -> None:
    stream = WriteStream()
    stream.float32(-1.5)
    stream.float64(math.pi)
    assert stream.finish() == struct.pack("<fd", -1.5, math.pi)


@pytest.mark.parametrize(("name", "form"), [("float32", "<f"), ("float64", "<d")])
def test_there_is_one_way_to_write_what_is_not_a_number(name: str, form: str) -> None:
    stream = WriteStream()
    getattr(stream, name)(-math.nan)
    assert stream.finish() == struct.pack(form, math.nan)
    assert math.isnan(getattr(ReadStream(struct.pack(form, math.nan)), name)(0.0))
    with pytest.raises(WireError):
        getattr(ReadStream(struct.pack(form, -math.nan)), name)(0.0)


WRONG: dict[str, Callable[[BitStream], object]] = {
    "too low": lambda stream: stream.integer(-1, 0, 9),
    "too high": lambda stream: stream.integer(10, 0, 9),
    "too many bits": lambda stream: stream.bits(4, 2),
    "no integer": lambda stream: stream.integer(1.0, 0, 9),  # type: ignore[arg-type]
    "text for an integer": lambda stream: stream.integer("1", 0, 9),  # type: ignore[arg-type]
    "no float": lambda stream: stream.float64("1"),  # type: ignore[arg-type]
    "None for a float": lambda stream: stream.float32(None),  # type: ignore[arg-type]
    "over single precision": lambda stream: stream.float32(1e300),
    "over a double": lambda stream: stream.float64(10**400),
    "out of range": lambda stream: stream.compressed(1.5, 0.0, 1.0, 0.1),
    "not a number": lambda stream: stream.compressed(math.nan, 0.0, 1.0, 0.1),
    "text to compress": lambda stream: stream.compressed("1", 0.0, 1.0, 0.1),  # type: ignore[arg-type]
    "too many bytes": lambda stream: stream.data(b"1234", 3),
    "text for bytes": lambda stream: stream.data("1", 3),  # type: ignore[arg-type]
    "too long a text": lambda stream: stream.text("äö", 3),
    "bytes for text": lambda stream: stream.text(b"1", 3),  # type: ignore[arg-type]
    "half a surrogate pair": lambda stream: stream.text("\ud800", 9),
    "no member": lambda stream: stream.enum("r", Colour),  # type: ignore[type-var]
    "another's member": lambda stream: stream.enum(Gear.FIRST, Colour),
    "too many items": lambda stream: stream.sequence([1] * 4, 3, lambda one: stream.bits(one, 1)),
    "no list": lambda stream: stream.sequence(None, 3, lambda one: stream.bits(one, 1)),  # type: ignore[arg-type]
    "a wrong item": lambda stream: stream.sequence([2], 3, lambda one: stream.bits(one, 1)),
    "items of no bit": lambda stream: stream.sequence([0], 3, lambda one: stream.bits(one, 0)),
    "a wrong option": lambda stream: stream.optional(2, lambda one: stream.bits(one, 1)),
    "another message": lambda stream: stream.message(Point(0, 0), Shot),  # type: ignore[type-var]
}


@each("wrong", WRONG.values())
def test_a_value_that_does_not_fit_is_refused(wrong) -> None:
    for stream in (WriteStream(), MeasureStream()):
        with pytest.raises(WireError):
            wrong(stream)


READS: dict[str, tuple[bytes, Callable[[BitStream], object]]] = {
    "past the end": (b"\xff", lambda stream: stream.bits(0, 9)),
    "an integer out of range": (b"\x0b", lambda stream: stream.integer(0, 0, 10)),
    "a step out of range": (b"\x03", lambda stream: stream.compressed(0.0, 0.0, 1.0, 0.5)),
    "a length out of range": (b"\x03ab", lambda stream: stream.data(b"", 2)),
    "fewer bytes than said": (b"\x0aabc", lambda stream: stream.data(b"", 127)),
    "no UTF-8": (b"\x01\xff", lambda stream: stream.text("", 255)),
    "UTF-8 of a surrogate": (b"\x03\xed\xa0\x80", lambda stream: stream.text("", 255)),
    "UTF-8 longer than needed": (b"\x02\xc1\x81", lambda stream: stream.text("", 255)),
    "no such member": (b"\x03", lambda stream: stream.enum(Colour.RED, Colour)),
    "fewer items than said": (
        b"\xff\xff\xff\xff\x01",
        lambda stream: stream.sequence([], 2**32 - 1, lambda one: stream.bits(one, 1)),
    ),
    "items of no bit": (
        b"\x07\x00",
        lambda stream: stream.sequence([], 7, lambda one: stream.bits(one, 0)),
    ),
}


@each(("data", "read"), READS.values())
def test_bits_that_nobody_writes_are_refused(data: bytes, read) -> None:
    with pytest.raises(WireError):
        read(ReadStream(data))


def not_asked(one: int) -> int:
    raise AssertionError(one)


def test_more_items_than_bits_are_refused_before_the_first_is_read() -> None:
    with pytest.raises(WireError, match="255 items in 16 bits"):
        ReadStream(b"\xff\0\0").sequence([], 255, not_asked)


def test_a_view_of_larger_items_is_passed_as_its_bytes() -> None:
    view = memoryview(struct.pack("<2I", 1, 2**32 - 1)).cast("I")
    writing, measuring = WriteStream(), MeasureStream()
    program = [("data", view, (8,)), ("integer", 5, (0, 255))]
    run(writing, program)
    run(measuring, program)
    assert measuring.position == writing.position
    read = run(ReadStream(writing.finish()), program, blank=True)
    assert read == [bytes(view), 5]


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


def test_a_value_without_truth_is_no_boolean() -> None:
    with pytest.raises(WireError, match="boolean wanted, Undecided given: neither"):
        run(WriteStream(), [("boolean", Undecided(), ())])


@pytest.mark.parametrize("data", [b"\x08", b"\x80", b"\x07\x00"])
def test_padding_is_zero_and_shorter_than_a_byte(data: bytes) -> None:
    stream = ReadStream(data)
    assert stream.bits(0, 3) == data[0] & 7
    with pytest.raises(WireError):
        stream.finish()


class Empty(Enum):
    pass


class Flags(Flag):
    A = 1
    B = 2


def test_enumerations_without_single_members_are_refused() -> None:
    for kind in (Empty, Flags):
        with pytest.raises(SettingsError):
            ReadStream(b"\0").enum(Colour.RED, kind)


def test_a_long_sequence_takes_time_in_proportion() -> None:
    # Work that grows with the square of the length would take minutes.
    values = [True, False, True] * 25_000
    writing = WriteStream()
    writing.sequence(values, 2**20, writing.boolean)
    reading = ReadStream(writing.finish())
    assert reading.sequence([], 2**20, reading.boolean) == values
