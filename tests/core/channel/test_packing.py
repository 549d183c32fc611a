"""A packet is filled to its last byte and never beyond."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.fragments import Parts
from sphtp.core.channel.frames import Fragment, Messages, Unreliable, encode_frames
from sphtp.core.channel.packing import Packing

ROOM = 100


def whole(size: int) -> Parts:
    return Parts(b"x" * size, ROOM, ROOM)


def test_consecutive_messages_share_a_frame() -> None:
    packing = Packing(ROOM)
    for message_id in (5, 6, 9, 10):
        assert packing.add((message_id, 0), whole(1))
    assert packing.frames == [Messages(5, [b"x"] * 2), Messages(9, [b"x"] * 2)]
    assert packing.pieces == [(5, 0), (6, 0), (9, 0), (10, 0)]


def test_ids_are_cut_to_sixteen_bits() -> None:
    packing = Packing(ROOM)
    for message_id in (65535, 65536):
        assert packing.add((message_id, 0), whole(1))
    assert packing.add((2**32 + 4, 1), Parts(b"abcd", 1, 2))
    assert packing.frames == [Messages(65535, [b"x", b"x"]), Fragment(4, 1, 2, b"cd")]


@pytest.mark.parametrize(("size", "fits"), [(94, True), (95, False)])
def test_a_message_fits_exactly_or_not(size: int, fits: bool) -> None:
    packing = Packing(ROOM)
    assert packing.add((0, 0), whole(size)) is fits
    assert len(encode_frames(packing.frames)) == (ROOM if fits else 0)


@pytest.mark.parametrize(("size", "fits"), [(91, True), (92, False)])
def test_a_fragment_fits_exactly_or_not(size: int, fits: bool) -> None:
    packing = Packing(ROOM)
    assert packing.add((0, 0), Parts(b"x" * (size + 1), 1, size)) is fits
    assert len(encode_frames(packing.frames)) == (ROOM if fits else 0)


@pytest.mark.parametrize(("size", "fits"), [(96, True), (97, False)])
def test_an_unreliable_message_fits_exactly_or_not(size: int, fits: bool) -> None:
    packing, waiting = Packing(ROOM), deque([b"x" * size])
    packing.add_unreliable(waiting)
    assert len(encode_frames(packing.frames)) == (ROOM if fits else 0)
    assert len(waiting) == (0 if fits else 1)


def test_a_frame_holds_255_messages() -> None:
    packing, waiting = Packing(2000), deque([b""] * 300)
    packing.add_unreliable(waiting)
    assert len(waiting) == 45
    for message_id in range(300):
        assert packing.add((message_id, 0), whole(0))
    assert [len(frame.payloads) for frame in packing.frames if isinstance(frame, Messages)] == [
        255,
        45,
    ]
    encode_frames(packing.frames)


sizes = st.lists(st.integers(0, 60), max_size=20)


@given(st.integers(0, 120), sizes, sizes, st.integers(1, 3))
def test_what_was_added_is_in_the_frames(
    room: int, unreliable: list[int], reliable: list[int], step: int
) -> None:
    packing = Packing(room)
    waiting = deque(bytes(size) for size in unreliable)
    packing.add_unreliable(waiting)
    added = [
        (number * step, 0)
        for number, size in enumerate(reliable)
        if packing.add((number * step, 0), whole(size))
    ]
    assert packing.pieces == added
    assert len(encode_frames(packing.frames)) <= room
    held = [
        (frame.first_id + n, 0)
        for frame in packing.frames
        if isinstance(frame, Messages)
        for n in range(len(frame.payloads))
    ]
    assert held == added
    carried = sum(len(frame.payloads) for frame in packing.frames if isinstance(frame, Unreliable))
    assert carried + len(waiting) == len(unreliable)
