"""Token buckets: the rate is held over time, bursts are bounded, nobody waits for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.token_bucket import HOLD, MOST_KEYS, Pacer, TokenBucket, TokenBuckets

DATAGRAM = 1200
BURST = 10 * DATAGRAM


def drain(pacer: Pacer, now: float, rate: float | None) -> int:
    """Send what may leave at once; return how many packets."""
    packets = 0
    while pacer.ready_at(now, DATAGRAM, rate) <= now and packets < 100_000:
        pacer.sent(now, DATAGRAM, rate)
        packets += 1
    return packets


def test_a_burst_and_then_the_rate() -> None:
    pacer = Pacer(BURST)
    rate = 1_200_000.0
    assert drain(pacer, 0.0, rate) == 10
    assert pacer.ready_at(0.0, DATAGRAM, rate) == 0.001
    assert drain(pacer, 0.005, rate) == 5


def test_a_pause_saves_up_no_more_than_the_burst() -> None:
    pacer = Pacer(BURST)
    drain(pacer, 0.0, 1_200_000.0)
    assert drain(pacer, 100.0, 1_200_000.0) == 10


def test_at_a_high_rate_the_bucket_holds_two_milliseconds() -> None:
    pacer = Pacer(BURST)
    rate = 120_000_000.0
    drain(pacer, 0.0, rate)
    assert pacer.budget(1.0, rate) == int(rate * HOLD)
    assert drain(pacer, 1.0, rate) == 200


def test_who_waits_waits_for_a_batch() -> None:
    pacer = Pacer(BURST)
    rate = 12_000_000.0
    drain(pacer, 0.0, rate)
    ready = pacer.ready_at(0.0, DATAGRAM, rate)
    assert ready == 0.001
    assert drain(pacer, ready, rate) == 10


def test_without_a_rate_nothing_waits() -> None:
    pacer = Pacer(BURST)
    for _ in range(1000):
        assert pacer.ready_at(0.0, DATAGRAM, None) == 0.0
        pacer.sent(0.0, DATAGRAM, None)
    assert pacer.budget(0.0, None) > 2**40
    assert pacer.budget(0.0, 1000.0) == BURST


def test_a_packet_out_of_turn_is_paid_for_later() -> None:
    pacer = Pacer(BURST)
    rate = 1_200_000.0
    drain(pacer, 0.0, rate)
    pacer.sent(0.0, 5 * DATAGRAM, rate)
    assert pacer.budget(0.0, rate) == 0
    assert drain(pacer, 0.005, rate) == 0
    assert drain(pacer, 0.010, rate) == 5


def test_a_packet_larger_than_the_bucket_leaves_in_time() -> None:
    pacer = Pacer(BURST)
    ready = pacer.ready_at(0.0, 65_507, 1_000_000.0)
    assert 0.0 < ready < 0.06
    assert pacer.ready_at(ready, 65_507, 1_000_000.0) <= ready


@given(
    rate=st.floats(1e3, 1e10),
    start=st.floats(0.0, 1e6),
    sizes=st.lists(st.integers(1, 65_507), min_size=1, max_size=200),
)
def test_the_rate_holds_and_the_given_time_is_enough(
    rate: float, start: float, sizes: list[int]
) -> None:
    pacer = Pacer(BURST)
    now, sent = start, 0
    for size in sizes:
        for _ in range(4):
            ready = pacer.ready_at(now, size, rate)
            if ready <= now:
                break
            now = ready
        else:
            raise AssertionError("it never becomes ready")
        pacer.sent(now, size, rate)
        sent += size
    room = max(BURST, rate * HOLD, *sizes)
    # A clock that counts from long ago rounds; the pacer may be off by that much.
    rounding = rate * len(sizes) * 1e-9 + 2 * len(sizes)
    assert sent <= room + (now - start) * rate + rounding


# Events


@given(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.floats(-3, 3), st.integers(1, 30)), min_size=1, max_size=100),
)
def test_never_more_than_a_burst_and_what_flowed_in(
    rate: float, waits: list[tuple[float, int]]
) -> None:
    bucket, now, taken = TokenBucket(rate), 100.0, 0
    # Time counts from the first question.
    start = latest = now + waits[0][0]
    for wait, wanted in waits:
        # Clocks may step back; that gives nothing, now or when they have caught up.
        now = max(now + wait, 0.0)
        latest = max(latest, now)
        got = bucket.take_up_to(now, wanted)
        taken += got
        assert 0 <= got <= wanted
        assert taken <= max(rate, 1.0) + (latest - start) * rate + 1e-6


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0, 500.0])
def test_asked_all_the_time_it_gives_its_rate(rate: float) -> None:
    bucket = TokenBucket(rate)
    step = 1 / rate / 7
    taken = sum(bucket.take(number * step) for number in range(7 * 1000))
    assert taken == pytest.approx(1000 + max(rate, 1.0), abs=2)


def test_a_second_is_saved_and_no_more_or_what_the_burst_says() -> None:
    for bucket, most in ((TokenBucket(10), 10), (TokenBucket(10, 3), 3)):
        taken = [bucket.take_up_to(0.0, wanted) for wanted in (7, 50, 1)]
        assert taken == [min(7, most), max(most - 7, 0), 0]
        assert not bucket.take(0.0)
        assert bucket.take(1e6)
        assert bucket.take_up_to(1e6, 50) == most - 1


def test_each_key_has_its_own_and_the_keys_are_bounded() -> None:
    buckets = TokenBuckets[int](2)
    assert [buckets.take(0.0, key) for key in (1, 1, 1, 2)] == [True, True, False, True]
    assert all(buckets.take(0.0, key) for key in range(2, MOST_KEYS + 2))
    assert buckets.take(0.0, 1), "it was seen longest ago"
    assert buckets.take(0.0, MOST_KEYS + 1)
    assert not buckets.take(0.0, MOST_KEYS + 1)
