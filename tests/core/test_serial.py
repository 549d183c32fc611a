"""Sequences that wrap, and the buffer that forgets: against integers and a dict as models."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.sent_packets import SequenceBuffer
from sphtp.core.serial import HALF, SPAN, SerialNumber, unwrap, wrap
from tests.cases import each
from tests.profiles import brisk

STARTS = (0, 32767, 65535, 2**32 - 1)
starts = st.sampled_from(STARTS)
starting_anywhere = pytest.mark.parametrize("start", STARTS)


@starting_anywhere
def test_wrap_keeps_the_low_sixteen_bits(start: int) -> None:
    assert [wrap(start + step) for step in range(3)] == [
        int.from_bytes((start + step).to_bytes(8, "little")[:2], "little") for step in range(3)
    ]


@each(
    ("short", "reference", "full"),
    [
        (0, 0, 0),
        (65535, 0, -1),
        (0, 65535, 65536),
        (65535, 65536, 65535),
        (32768, 0, -32768),
        (32767, 0, 32767),
        (0, 32768, 0),
        (0, 2**32 - 1, 2**32),
        (65535, 2**32, 2**32 - 1),
    ],
)
def test_unwrap_picks_the_nearest(short: int, reference: int, full: int) -> None:
    assert unwrap(short, reference) == full


@starting_anywhere
def test_unwrap_restores_up_to_half_a_span_away(start: int) -> None:
    for distance in (-HALF, 1 - HALF, -1, 0, 1, HALF - 1):
        assert unwrap(wrap(start + distance), start) == start + distance


@starting_anywhere
def test_unwrap_errs_by_a_whole_span_beyond_that(start: int) -> None:
    assert unwrap(wrap(start + HALF), start) == start + HALF - SPAN
    assert unwrap(wrap(start - HALF - 1), start) == start - HALF - 1 + SPAN


@brisk
@given(starts, st.integers(-3 * SPAN, 3 * SPAN), st.integers(-HALF, HALF - 1))
def test_unwrap_inverts_wrap(start: int, shift: int, distance: int) -> None:
    reference = start + shift
    assert unwrap(wrap(reference + distance), reference) == reference + distance


widths = st.integers(1, 64)


@brisk
@given(widths, st.integers(-(2**70), 2**70), st.data())
def test_numbers_of_any_width_against_the_nearest_of_all(
    bits: int, reference: int, data: st.DataObject
) -> None:
    serial, span = SerialNumber(bits), 1 << bits
    distance = data.draw(st.integers(-span // 2, (span - 1) // 2))
    number = reference + distance
    short = serial.wrap(number)
    assert 0 <= short < span
    assert (number - short) % span == 0
    assert serial.unwrap(short, reference) == number
    assert serial.ahead(number, reference) == distance
    assert serial.ahead(short, serial.wrap(reference)) == distance


@brisk
@given(widths, st.integers(0, 2**64), st.integers(0, 2**64))
def test_one_of_two_is_ahead_of_the_other(bits: int, one: int, other: int) -> None:
    serial = SerialNumber(bits)
    there, back = serial.ahead(one, other), serial.ahead(other, one)
    assert there == -back or there == back == -serial.half


@brisk
@given(starts, st.lists(st.integers(1, HALF - 1), max_size=40))
def test_a_receiver_follows_a_sender_across_many_wraps(start: int, gaps: list[int]) -> None:
    sent = followed = start
    for gap in gaps:
        sent += gap
        followed = unwrap(wrap(sent), followed)
        assert followed == sent


@starting_anywhere
def test_a_new_buffer_is_empty(start: int) -> None:
    buffer: SequenceBuffer[str] = SequenceBuffer(8, start)
    assert buffer.highest == start - 1
    assert all(start + step not in buffer for step in range(16))
    assert buffer.find(start) is None
    assert buffer.remove(start) is None


@starting_anywhere
def test_an_entry_is_found_under_its_own_number_only(start: int) -> None:
    buffer = SequenceBuffer[str](8, start)
    buffer.insert(start, "kept")
    assert start in buffer
    assert buffer.find(start) == "kept"
    assert start + 8 not in buffer
    assert buffer.find(start + 8) is None
    assert buffer.remove(start + 8) is None
    assert buffer.find(start) == "kept"


@starting_anywhere
def test_removing_takes_an_entry_out_once(start: int) -> None:
    buffer = SequenceBuffer[str](8, start)
    buffer.insert(start, "kept")
    assert buffer.remove(start) == "kept"
    assert buffer.remove(start) is None
    assert start not in buffer
    assert buffer.highest == start


@starting_anywhere
def test_walking_over_a_gap_clears_what_was_there(start: int) -> None:
    """Without the walk, entry 2 would come back when the numbers come round to its place."""
    buffer = SequenceBuffer[int](8, start)
    for step in range(8):
        buffer.insert(start + step, step)
    buffer.insert(start + 11, 11)
    found = [buffer.find(start + step) for step in range(12)]
    assert found == [None, None, None, None, 4, 5, 6, 7, None, None, None, 11]


@starting_anywhere
def test_a_leap_over_the_whole_buffer_forgets_everything(start: int) -> None:
    for leap in (8, 9, 15, 16, 100_000, 2**40):
        buffer = SequenceBuffer[int](8, start)
        for step in range(8):
            buffer.insert(start + step, step)
        buffer.insert(start + 7 + leap, -1)
        assert [step for step in range(8) if start + step in buffer] == []
        assert buffer.find(start + 7 + leap) == -1


@starting_anywhere
def test_what_is_stored_comes_in_order_and_without_what_left_the_span(start: int) -> None:
    buffer = SequenceBuffer[str](8, start)
    for step in (5, 2, 7, 0):
        buffer.insert(start + step, f"{step}")
    buffer.remove(start + 5)
    assert buffer.items() == [(start, "0"), (start + 2, "2"), (start + 7, "7")]
    buffer.insert(start + 9, "9")
    assert buffer.items() == [(start + 2, "2"), (start + 7, "7"), (start + 9, "9")]


@starting_anywhere
def test_a_late_entry_leaves_the_highest_alone(start: int) -> None:
    buffer = SequenceBuffer[str](8, start)
    buffer.insert(start + 5, "early")
    buffer.insert(start + 2, "late")
    assert buffer.highest == start + 5
    assert (buffer.find(start + 2), buffer.find(start + 5)) == ("late", "early")


class DictBuffer:
    """The model: a dict that drops what fell out of the window when the highest moves."""

    def __init__(self, size: int, start: int) -> None:
        self.size, self.highest = size, start - 1
        self.entries: dict[int, int] = {}

    def insert(self, sequence: int, entry: int) -> None:
        self.highest = max(self.highest, sequence)
        self.entries[sequence] = entry
        oldest = self.highest - self.size + 1
        self.entries = {key: value for key, value in self.entries.items() if key >= oldest}

    def remove(self, sequence: int) -> int | None:
        return self.entries.pop(sequence, None)


def insert(buffer: SequenceBuffer[int], model: DictBuffer, sequence: int, entry: int) -> None:
    buffer.insert(sequence, entry)
    model.insert(sequence, entry)


def remove(buffer: SequenceBuffer[int], model: DictBuffer, sequence: int, _: int) -> None:
    assert buffer.remove(sequence) == model.remove(sequence)


def insert_run(buffer: SequenceBuffer[int], model: DictBuffer, sequence: int, entry: int) -> None:
    number = entry * 7 % 50 + 1
    buffer.insert_run(sequence, number, entry)
    for step in range(number):
        model.insert(sequence + step, entry)


def go_on(buffer: SequenceBuffer[int], model: DictBuffer, _: int, entry: int) -> None:
    """As trains do: behind all that is there."""
    insert_run(buffer, model, model.highest + 1, entry)


def remove_run(buffer: SequenceBuffer[int], model: DictBuffer, sequence: int, entry: int) -> None:
    number = entry * 5 % 40
    buffer.remove_run(sequence, number)
    for step in range(number):
        model.remove(sequence + step)


# Offsets from the oldest number in the window: most of them hit it, some go beyond.
steps = st.lists(
    st.tuples(st.sampled_from([insert, insert, remove]), st.integers(0, 40)), max_size=60
)


@brisk
@given(starts, st.sampled_from([1, 2, 7, 16]), steps)
def test_the_buffer_is_a_dict_with_a_window(
    start: int, size: int, steps: list[tuple[Callable[..., None], int]]
) -> None:
    buffer, model = SequenceBuffer[int](size, start), DictBuffer(size, start)
    for entry, (act, offset) in enumerate(steps):
        sequence = max(start, model.highest - size + 1) + offset
        act(buffer, model, sequence, entry)
        assert buffer.highest == model.highest
        window = range(max(0, start - size, model.highest - 2 * size), model.highest + size)
        assert {key: buffer.find(key) for key in window if key in buffer} == model.entries


runs = st.lists(
    st.tuples(
        st.sampled_from([go_on, go_on, go_on, insert_run, insert, remove, remove_run, remove_run]),
        st.integers(0, 80),
    ),
    max_size=60,
)


@brisk
@given(starts, st.integers(0, 40), st.sampled_from([1, 2, 7, 16, 64, 100, 4096]), runs)
def test_runs_are_their_sequences_one_by_one(
    start: int, before: int, size: int, steps: list[tuple[Callable[..., None], int]]
) -> None:
    """From a start a little before each wrap, in buffers that are full, growing, or large."""
    start = max(start - before, 0)
    buffer, model = SequenceBuffer[int](size, start), DictBuffer(size, start)
    for entry, (act, offset) in enumerate(steps):
        sequence = max(start, model.highest - size + 1, model.highest - 60) + offset
        act(buffer, model, sequence, entry)
        assert buffer.highest == model.highest
        window = range(max(0, start - size, model.highest - size + 1), model.highest + 200)
        assert {key: buffer.find(key) for key in window if key in buffer} == model.entries
