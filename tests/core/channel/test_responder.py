"""What strangers can make a sealed endpoint keep: nothing, and then little, and not for long."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from sphtp.core.channel.noise import NO_COOKIE, Confirm, Greet, encode_confirm, encode_greet
from sphtp.core.channel.security import RANGES, HandshakeLimits
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.errors import SettingsError
from tests.attack.channel.mallory import Knocking, answers
from tests.cases import each
from tests.core.channel.sealed import LEFT, SealedPair, check_forgotten, identity

RIGHT_KEY = identity("right").public
LIMITS = HandshakeLimits(half_open=8, handshake_timeout=2.0)


def addresses(number: int) -> Iterator[tuple[str, int]]:
    for caller in range(number):
        yield f"10.{caller >> 16}.{caller >> 8 & 255}.{caller & 255}", 1 + caller % 60_000


def test_nothing_is_kept_of_addresses_that_bring_no_cookie():
    pair = SealedPair()
    for number, address in enumerate(addresses(3000)):
        cookie = NO_COOKIE if number % 2 else number.to_bytes(16, "little")
        greet = encode_greet(Greet(1 + number, number, 2, cookie, bytes(200)))
        pair.right.handle_datagrams_untrusted(0.0, Datagrams.of(address, greet))
        while pair.right.poll_transmit(0.0) is not None:
            pass
        assert pair.right.half_open == 0
    assert pair.right.handshake_counters.cookies_sent == 3000
    assert pair.right.handshake_counters.handshakes == 0
    check_forgotten(pair.right)


@pytest.mark.parametrize("key", [RIGHT_KEY, None], ids=["IK", "XX"])
def test_half_open_handshakes_are_limited_and_time_out(key: bytes | None):
    pair = SealedPair(limits=LIMITS)
    for number, address in enumerate(addresses(30)):
        Knocking(pair, pair.right, address, 5 + number, 6, key=key, name=str(number)).enter()
        assert pair.right.half_open <= 8
    assert pair.right.half_open == 8
    assert (
        pair.right.handshake_counters.handshakes,
        pair.right.handshake_counters.handshakes_over_limit,
    ) == (8, 22)
    pair.run(LIMITS.handshake_timeout + 0.1)
    assert pair.right.half_open == 0
    later = Knocking(pair, pair.right, ("10.9.9.9", 9), 5, 6, key=key)
    assert len(later.enter()) == 1
    pair.run(20)
    check_forgotten(pair.right)


@pytest.mark.parametrize("key", [RIGHT_KEY, None], ids=["IK", "XX"])
def test_one_that_knocks_for_ever_is_kept_for_four_times_as_long_at_most(key: bytes | None):
    pair = SealedPair(limits=LIMITS)
    knocking = Knocking(pair, pair.right, LEFT, 5, 6, key=key)
    (cookie,) = knocking.greet()
    ends: list[float] = []
    while pair.now < 20:
        was_kept = bool(pair.right.half_open)
        knocking.greet(cookie[13:])
        if not was_kept:
            ends.append(pair.now)
        pair.run(0.25)
    lives = [later - sooner for sooner, later in pairwise(ends)]
    assert lives
    assert max(lives) <= 4 * LIMITS.handshake_timeout + 0.5
    assert pair.right.half_open <= 1


def test_half_open_handshakes_do_not_shut_out_those_that_are_in():
    """A GREET that comes again is answered, however full it is."""
    pair = SealedPair(limits=LIMITS)
    inside = Knocking(pair, pair.right, LEFT, 4, 4)
    (welcome,) = inside.enter()
    for number, address in enumerate(addresses(30)):
        Knocking(pair, pair.right, address, 5 + number, 6).enter()
    assert inside.enter() == [welcome]
    assert len(inside.confirm(welcome)) == 1


def test_handshakes_are_limited_by_the_second():
    pair = SealedPair(limits=HandshakeLimits(handshakes_per_second=10, half_open=1000))
    for number, address in enumerate(addresses(40)):
        Knocking(pair, pair.right, address, 5 + number, 6).enter()
    counters = pair.right.handshake_counters
    assert (counters.handshakes, counters.handshakes_over_rate) == (10, 30)
    pair.run(1)
    Knocking(pair, pair.right, ("10.9.9.9", 9), 5, 6).enter()
    assert counters.handshakes == 11


def test_a_cookie_is_good_at_its_address_for_its_attempt_and_for_a_while():
    def cookie_of(knocking: Knocking) -> bytes:
        (datagram,) = knocking.greet()
        return datagram[13:]

    pair = SealedPair(limits=HandshakeLimits(cookie_lifetime=10))
    first = Knocking(pair, pair.right, LEFT, 5, 6)
    cookie = cookie_of(first)
    for at, opener, token in ((("10.9.9.9", 9), 5, 6), (LEFT, 7, 6), (LEFT, 5, 7)):
        other = Knocking(pair, pair.right, at, opener, token)
        (again,) = other.greet(cookie)
        assert len(again) == 29
    pair.run(21)
    (again,) = first.greet(cookie)
    assert len(again) == 29
    assert pair.right.half_open == 0
    (welcome,) = first.greet(cookie_of(first))
    assert len(welcome) > 29


def test_an_old_greet_that_comes_again_shakes_no_channel_and_is_forgotten():
    """With its cookie, still good: nothing is handed to the program, and all of it goes."""
    for key in (RIGHT_KEY, None):
        pair = SealedPair()
        knocking = Knocking(pair, pair.right, LEFT, 5, 6, key=key)
        (cookie,) = knocking.greet()
        knocking.greet(cookie[13:])
        pair.run(20)
        check_forgotten(pair.right)
        knocking.greet(cookie[13:])
        pair.run(20)
        check_forgotten(pair.right)
        assert not pair.right.has_incoming


@pytest.mark.parametrize("key", [RIGHT_KEY, None], ids=["IK", "XX"])
def test_what_comes_after_the_end_is_answered_by_a_reset_or_not_at_all(key: bytes | None):
    settings = ChannelSettings(connect_timeout=1)
    pair = SealedPair(settings=settings)
    dialled = pair.left.dial(0.0, [("10.9.9.9", 9)])
    pair.run(3)
    assert dialled.closed is not None
    check_forgotten(pair.left)
    assert answers(pair, pair.left, ("10.9.9.9", 9), bytes([0x15]) + bytes(28)) == []


@each("name", RANGES)
def test_a_setting_out_of_range_is_named(name: str):
    low, high = RANGES[name]
    for value in (low - 1, high + 1):
        with pytest.raises(SettingsError, match=name):
            HandshakeLimits(**{name: value})  # type: ignore[arg-type]


def test_confirms_cost_no_more_than_greets():
    """True or not: whoever was asked for its name can say something else as often as it likes."""
    pair = SealedPair(limits=HandshakeLimits(handshakes_per_second=10))
    knocking = Knocking(pair, pair.right, LEFT, 5, 6)
    (welcome,) = knocking.enter()
    counters = pair.right.handshake_counters
    for number in range(40):
        knocking.send(encode_confirm(Confirm(5, 6, bytes([number]) * 200)))
    assert (counters.forged, counters.handshakes_over_rate) == (9, 31)
    assert knocking.confirm(welcome) == []
    pair.run(1)
    assert len(knocking.confirm_again()) == 1
