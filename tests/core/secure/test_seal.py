"""Sealed rows: opened once, in any order, over any number of keys; and nothing else is."""

from dataclasses import dataclass
from random import Random

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.secure import seal
from sphtp.core.secure.seal import Sealer, Unsealer
from tests.reach import reach

KEY = bytes(range(32))
FRONT = b"front"
OVERHEAD = len(FRONT) + 8 + 16


@dataclass
class Count:
    forged: int = 0
    replayed: int = 0


def make(first: int = 0) -> tuple[Sealer, Unsealer, Count]:
    count = Count()
    return Sealer(KEY, FRONT, first), Unsealer(KEY, len(FRONT), count, first), count


@pytest.fixture
def short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "EPOCH_BITS", 3)


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 3000), st.integers(0, 2**40))
def test_a_row_is_opened_as_it_was_sealed(data: bytes, size: int, first: int):
    sealer, unsealer, count = make(first)
    sealed, sealed_size = sealer.seal(data, size)
    assert sealed_size == size + OVERHEAD
    assert len(sealed) == len(data) + OVERHEAD * -(-len(data) // size)
    assert b"".join(unsealer.open(sealed, sealed_size)) == data
    assert unsealer.open(sealed, sealed_size) == []
    assert (count.forged, count.replayed) == (0, -(-len(data) // size))


@given(st.integers(0, 8 * (OVERHEAD + 10) - 1))
def test_every_bit_is_authenticated(bit: int):
    sealer, unsealer, count = make()
    sealed, size = sealer.seal(b"0123456789", 10)
    altered = (int.from_bytes(sealed, "little") ^ 1 << bit).to_bytes(size, "little")
    assert unsealer.open(altered, size) == []
    assert count.forged + count.replayed == 1
    assert unsealer.newest == -1
    assert unsealer.open(sealed, size) == [b"0123456789"]


def test_every_shorter_one_and_a_longer_one_is_forged():
    sealer, unsealer, count = make()
    sealed, size = sealer.seal(b"0123456789", 10)
    for length in range(1, size):
        assert unsealer.open(sealed[:length], length) == []
    assert unsealer.open(sealed + b"\0", size + 1) == []
    assert count.forged == size
    assert unsealer.open(b"", 1) == []


def test_the_other_direction_and_another_session_are_forged():
    sealer, _, _ = make()
    unsealer = Unsealer(bytes(32), len(FRONT), count := Count())
    assert unsealer.open(*sealer.seal(b"x", 1)) == []
    assert count.forged == 1


@pytest.mark.usefixtures("short_epochs")
def test_a_key_serves_no_more_than_an_epoch():
    """Rows that would straddle a boundary begin behind it."""
    sealer, unsealer, count = make()
    random, counters = Random(1), list[int]()
    for _ in range(200):
        number = random.randrange(1, 9)
        sealed, size = sealer.seal(bytes(number), 1)
        row = [sealed[at : at + size] for at in range(0, len(sealed), size)]
        told = [int.from_bytes(it[5:13], "little") for it in row]
        assert told == list(range(told[0], told[0] + number))
        assert len({counter >> 3 for counter in told}) == 1
        counters += told
        assert unsealer.open(sealed, size) == [b"\0"] * number
    assert counters == sorted(set(counters))
    assert len({counter >> 3 for counter in counters}) > 80
    assert (count.forged, count.replayed) == (0, 0)


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize("late", range(1, 9))
def test_what_is_overtaken_by_a_new_key_is_still_opened(late: int):
    sealer, unsealer, count = make()
    sent = [sealer.seal(b"%03d" % number, 3)[0] for number in range(64)]
    order = [
        at for start in range(0, 64, late + 1) for at in reversed(range(start, start + late + 1))
    ]
    opened = [unsealer.open(sent[at], 3 + OVERHEAD) for at in order if at < 64]
    assert opened == [[b"%03d" % at] for at in order if at < 64]
    assert (count.forged, count.replayed) == (0, 0)


@pytest.mark.usefixtures("short_epochs")
def test_old_keys_are_forgotten():
    sealer, unsealer, count = make()
    sent = [sealer.seal(b"x", 1)[0] for _ in range(24)]
    for number in (0, 8, 9, 16):
        assert unsealer.open(sent[number], 1 + OVERHEAD) == [b"x"]
    assert unsealer.open(sent[7], 1 + OVERHEAD) == [], "of two epochs ago"
    assert unsealer.open(sent[10], 1 + OVERHEAD) == [b"x"], "of the last one"
    assert count.forged == 1
    assert KEY in reach(make()[1]), "of the epoch that there is"
    for side in (sealer, unsealer):
        assert KEY not in list(reach(side))


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize("missed", range(6))
def test_as_many_epochs_may_be_missed_as_it_is_told(missed: int):
    sealer, _, count = make()
    unsealer = Unsealer(KEY, len(FRONT), count, skip=3)
    sent = [sealer.seal(b"x", 1)[0] for _ in range(8 * 9)]
    came = 8 * (missed + 1)
    expected = [b"x"] if missed <= 3 else []
    assert unsealer.open(sent[came], 1 + OVERHEAD) == expected
    assert unsealer.open(sent[came + 8], 1 + OVERHEAD) == expected
    assert unsealer.open(sent[came + 1], 1 + OVERHEAD) == expected, "of the one before"


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize("skip", [0, 3])
def test_a_stranger_makes_nobody_derive_more_than_those_keys(
    skip: int, monkeypatch: pytest.MonkeyPatch
):
    count = make()[2]
    unsealer = Unsealer(KEY, len(FRONT), count, skip=skip)
    made: list[bytes] = []

    def counted(algorithm: SHA256, length: int, info: bytes) -> HKDFExpand:
        made.append(info)
        return HKDFExpand(algorithm, length, info)

    monkeypatch.setattr("sphtp.core.secure.seal.HKDFExpand", counted)
    for counter in (*range(64), 2**20, 2**63, 2**64 - 1):
        junk = FRONT + counter.to_bytes(8, "little") + bytes(20)
        assert unsealer.open(junk, len(junk)) == []
    assert len(made) == 1 + skip
    assert count.forged == 67
    assert unsealer.newest == -1
    first = Sealer(KEY, FRONT).seal(b"x", 1)[0]
    assert unsealer.open(first, len(first)) == [b"x"], "the key is the first one still"


def test_an_epoch_stays_far_below_what_the_cipher_bears():
    """RFC 9001, appendix B: datagrams times blocks, and the square of that against 2^128."""
    blocks = 2**seal.EPOCH_BITS * (65_535 // 16)
    assert blocks**2 < 2 ** (128 - 57)
