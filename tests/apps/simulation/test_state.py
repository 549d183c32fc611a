"""Bytes of spheres: what pack wrote comes back, anything else is a RemoteError and nothing more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.errors import LocalError, RemoteError
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.state import (
    BYTES_PER_SPHERE,
    Spheres,
    concat,
    pack,
    state_sha256,
    unpack_untrusted,
)

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def table(world):
    return initial_spheres(world())


@given(data=st.data(), step=st.integers(0, 2**64 - 1), chosen=st.sets(st.integers(0, 39)))
def test_what_was_packed_comes_back(table, data, step, chosen):
    some = table.take(np.array(sorted(chosen), dtype=np.intp))
    coordinates = st.lists(finite, min_size=3 * len(some), max_size=3 * len(some))
    x, v = (np.array(data.draw(coordinates)).reshape(len(some), 3) for _ in range(2))
    sent = some.moved(x, v)
    came_step, came = unpack_untrusted(pack(sent, step), table)
    assert came_step == step
    assert pack(came, step) == pack(sent, step)
    assert came.radius.tolist() == sent.radius.tolist()
    assert came.mass.tolist() == sent.mass.tolist()


def test_the_bytes_are_as_published(table):
    one = table.take(np.array([3])).moved(np.array([[1.0, 2.0, 4.0]]), np.array([[0.5, -1.0, 0.0]]))
    lines = (
        "02 01 00 00 00 00 00 00",
        "01 00 00 00",
        "03 00 00 00",
        "00 00 00 00 00 00 f0 3f 00 00 00 00 00 00 00 40 00 00 00 00 00 00 10 40",
        "00 00 00 00 00 00 e0 3f 00 00 00 00 00 00 f0 bf 00 00 00 00 00 00 00 00",
    )
    assert pack(one, 258) == b"".join(map(bytes.fromhex, lines))


def test_every_truncation_and_every_addition_is_refused(table):
    whole = pack(table.take(np.arange(3)), 7)
    assert len(whole) == 12 + 3 * BYTES_PER_SPHERE
    for end in range(len(whole)):
        with pytest.raises(RemoteError):
            unpack_untrusted(whole[:end], table)
    for more in (b"\0", whole):
        with pytest.raises(RemoteError):
            unpack_untrusted(whole + more, table)


def test_a_flipped_bit_is_refused_or_gives_other_sound_spheres(table):
    whole = pack(table.take(np.arange(3)), 7)
    refused = 0
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            step, spheres = unpack_untrusted(bytes(flipped), table)
        except RemoteError:
            refused += 1
        else:
            assert pack(spheres, step) == bytes(flipped)
            assert np.isfinite(spheres.x).all()
    # All bits of the count, and of each id all but a few.
    assert refused > 32 + 3 * 26


@given(st.binary(max_size=300))
def test_noise_raises_nothing_but_remote_errors(table, noise):
    try:
        step, spheres = unpack_untrusted(noise, table)
    except RemoteError:
        return
    assert pack(spheres, step) == noise


@pytest.mark.parametrize("ids", [[0, 0], [1, 0], [0, 40], [2**32 - 1]])
def test_ids_out_of_order_or_unknown_are_refused(table, ids):
    some = table.take(np.arange(len(ids)))
    strange = Spheres(np.array(ids, np.uint32), some.x, some.v, some.radius, some.mass)
    with pytest.raises(RemoteError, match="ids are not in order"):
        unpack_untrusted(pack(strange, 0), table)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(table, number):
    some = table.take(np.arange(2))
    wrong = some.x.copy()
    wrong[1, 2] = number
    for strange in (some.moved(wrong, some.v), some.moved(some.x, wrong)):
        with pytest.raises(RemoteError, match="not finite"):
            unpack_untrusted(pack(strange, 0), table)


def test_parts_join_in_order_of_ids(table):
    odd, even = table.take(np.arange(1, 40, 2)), table.take(np.arange(0, 40, 2))
    assert pack(concat([odd, even]), 0) == pack(table, 0)
    assert state_sha256(concat([odd, even])) == state_sha256(table)
    with pytest.raises(LocalError, match="sphere 4 is in two places"):
        concat([even, table.take(np.array([4]))])


def test_the_digest_sees_the_last_bit(table):
    other = table.v.copy()
    other[39, 2] = np.nextafter(other[39, 2], np.inf)
    assert state_sha256(table.moved(table.x, other)) != state_sha256(table)
    assert state_sha256(table.take(np.arange(39, -1, -1))) == state_sha256(table)
    assert len(state_sha256(table)) == 64
