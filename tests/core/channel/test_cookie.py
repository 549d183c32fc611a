"""Cookies: good for what they were made for, for one lifetime or two, and kept by nobody."""

from math import nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.noise import COOKIE_SIZE
from sphtp.core.channel.responder import CookieJar
from sphtp.errors import SettingsError
from tests.cases import each
from tests.reach import reach

LIFETIME = 60.0
parts = st.lists(st.binary(max_size=8), max_size=4)


def jar(seed: int = 1, lifetime: float = LIFETIME) -> CookieJar:
    return CookieJar(Random(seed), lifetime)


def test_a_cookie_is_good_for_what_it_was_made_for():
    cookies = jar()
    cookie = cookies.make(0.0, b"127.0.0.1", b"7001")
    assert len(cookie) == COOKIE_SIZE
    assert cookies.is_good(0.0, cookie, b"127.0.0.1", b"7001")
    assert not cookies.is_good(0.0, cookie, b"127.0.0.1", b"7002")
    assert not cookies.is_good(0.0, cookie, b"127.0.0.2", b"7001")


@given(parts, parts)
def test_other_parts_make_another_cookie(one: list[bytes], other: list[bytes]):
    """Also when they read alike end to end."""
    cookies = jar()
    assert (cookies.make(0.0, *one) == cookies.make(0.0, *other)) == (one == other)


def test_where_a_part_ends_counts():
    cookies = jar()
    whole = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), ()]
    made = [cookies.make(0.0, *what) for what in whole]
    assert len(set(made)) == len(whole)


@given(
    st.floats(0.0, 1e9),
    st.floats(0.0, 4 * LIFETIME),
)
def test_a_cookie_is_good_in_this_lifetime_and_the_next(now: float, later: float):
    cookies = jar()
    cookie = cookies.make(now, b"x")
    age = (now + later) // LIFETIME - now // LIFETIME
    assert cookies.is_good(now + later, cookie, b"x") == (age <= 1)


@each(
    ("at", "good"),
    [(0.0, True), (59.9, True), (60.0, True), (119.9, True), (120.0, False), (1e9, False)],
)
def test_the_bounds_of_a_lifetime(at: float, good: bool):
    cookies = jar()
    cookie = cookies.make(0.0, b"x")
    assert cookies.is_good(at, cookie, b"x") == good


def test_many_looks_do_not_make_a_cookie_live_longer():
    cookies = jar()
    cookie = cookies.make(30.0, b"x")
    answers = [cookies.is_good(30.0 + step, cookie, b"x") for step in range(120)]
    assert answers == [True] * 90 + [False] * 30


def test_a_clock_that_steps_back_brings_no_old_secret_back():
    cookies = jar()
    old = cookies.make(0.0, b"x")
    assert not cookies.is_good(600.0, old, b"x")
    assert not cookies.is_good(0.0, old, b"x")
    new = cookies.make(0.0, b"x")
    assert cookies.is_good(0.0, new, b"x")
    assert cookies.is_good(659.0, new, b"x")
    assert cookies.is_good(719.0, new, b"x")
    assert not cookies.is_good(720.0, new, b"x")


@given(st.binary(max_size=2 * COOKIE_SIZE))
def test_what_is_no_cookie_is_not_good(cookie: bytes):
    assert not jar().is_good(0.0, cookie, b"x")


def test_every_bit_counts():
    cookies = jar()
    cookie = cookies.make(0.0, b"x")
    for bit in range(8 * COOKIE_SIZE):
        altered = (int.from_bytes(cookie, "big") ^ 1 << bit).to_bytes(COOKIE_SIZE, "big")
        assert not cookies.is_good(0.0, altered, b"x")
    assert not any(cookies.is_good(0.0, cookie[:size], b"x") for size in range(COOKIE_SIZE))
    assert not cookies.is_good(0.0, cookie + b"\0", b"x")


def test_another_jar_has_other_cookies_and_the_same_seed_the_same():
    assert jar(1).make(0.0, b"x") == jar(1).make(0.0, b"x")
    assert not jar(2).is_good(0.0, jar(1).make(0.0, b"x"), b"x")


class Counted(Random):
    """Entropy that counts what is drawn from it."""

    drawn = 0

    def getrandbits(self, count: int, /) -> int:
        self.drawn += 1
        return super().getrandbits(count)


def test_nothing_grows_with_the_callers():
    """Two secrets, and two new ones for each time they are both too old."""
    entropy = Counted(1)
    cookies = CookieJar(entropy, LIFETIME)
    for caller in range(3000):
        what = caller.to_bytes(4, "big")
        assert cookies.is_good(1.0, cookies.make(1.0, what), what)
    assert entropy.drawn == 2
    cookies.make(1e12, b"after a long sleep")
    assert entropy.drawn == 4
    assert sum(isinstance(it, bytes) and len(it) == 32 for it in reach(cookies)) == 2


@pytest.mark.parametrize("lifetime", [0.0, -1.0, nan])
def test_a_lifetime_is_positive(lifetime: float):
    with pytest.raises(SettingsError, match="lifetime"):
        jar(lifetime=lifetime)
