"""The token bucket: the rate is held over time, bursts are bounded, nobody waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.token_bucket import HOLD, Pacer

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
