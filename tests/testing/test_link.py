"""One direction: shares, bursts, times and order. Seeded, so that every figure is exact."""

from itertools import groupby, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.testing import Faults, Link

MANY = 20_000
SPACING = 0.001


def play(faults: Faults, count: int = MANY, seed: int = 1) -> tuple[Link, list[tuple[float, int]]]:
    """Offer numbered datagrams at an even pace; return the arrivals in order of time."""
    link = Link(faults, Random(seed))
    arrivals = [
        (when, int.from_bytes(datagram, "big"))
        for number in range(count)
        for when, datagram in link.offer(number * SPACING, number.to_bytes(4, "big"))
    ]
    return link, sorted(arrivals)


def inversions(numbers: list[int]) -> int:
    """Count the places where a later datagram comes right before an earlier one."""
    return sum(first > second for first, second in pairwise(numbers))


def test_without_faults_everything_arrives_after_the_delay() -> None:
    link, arrivals = play(Faults(delay=0.25), 100)
    assert [number for _, number in arrivals] == list(range(100))
    assert [when for when, _ in arrivals] == pytest.approx([n * SPACING + 0.25 for n in range(100)])
    statistics = link.statistics(10)
    assert (statistics.offered, statistics.carried, statistics.carried_bytes) == (100, 100, 400)
    assert link.dropped == 0


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.99])
def test_loss_takes_its_share_independently(share: float) -> None:
    link, arrivals = play(Faults(loss=share))
    lost = link.statistics(0).lost
    deviation = (MANY * share * (1 - share)) ** 0.5
    assert abs(lost - MANY * share) < 4 * deviation
    assert len(arrivals) == MANY - lost
    # Pairs of losses in a row are as many as chance makes them: no bursts.
    arrived = {number for _, number in arrivals}
    pairs = sum(n not in arrived and n + 1 not in arrived for n in range(MANY - 1))
    assert abs(pairs - MANY * share**2) < 8 * (MANY * share**2) ** 0.5 + 1


def test_everything_and_nothing_are_shares_too() -> None:
    assert play(Faults(loss=1.0), 1000)[1] == []
    assert len(play(Faults(loss=0.0), 1000)[1]) == 1000


@pytest.mark.parametrize(("burst", "length"), [(0.01, 5.0), (0.002, 30.0), (0.02, 1.0)])
def test_bursts_have_their_frequency_and_their_mean_length(burst: float, length: float) -> None:
    link, arrivals = play(Faults(burst=burst, burst_length=length), 50_000)
    arrived = {number for _, number in arrivals}
    runs = [
        sum(1 for _ in run)
        for is_lost, run in groupby(range(50_000), key=lambda number: number not in arrived)
        if is_lost
    ]
    statistics = link.statistics(0)
    assert statistics.lost == sum(runs)
    # One burst may begin right behind another, which then look like one.
    assert statistics.bursts * (1 - 2 * burst) - 10 < len(runs) <= statistics.bursts
    assert statistics.lost / statistics.bursts == pytest.approx(length, rel=0.2)
    expected = length / (length + (1 - burst) / burst)
    assert statistics.lost / 50_000 == pytest.approx(expected, rel=0.2)
    if length > 1:
        # Geometric lengths spread as widely as their mean.
        assert max(runs) > 2.5 * length


def test_a_burst_ends_with_the_fault() -> None:
    link = Link(Faults(burst=1.0, burst_length=1e9), Random(1))
    assert link.offer(0, b"lost") == []
    link.faults = Faults(delay=0)
    assert link.offer(0, b"kept") == [(0, b"kept")]


def test_duplicates_have_a_fate_of_their_own_each() -> None:
    link, arrivals = play(Faults(duplicate=0.2, loss=0.1, jitter=0.001))
    statistics = link.statistics(0)
    assert statistics.duplicated == pytest.approx(MANY * 0.2, rel=0.1)
    assert statistics.lost == pytest.approx(MANY * 1.2 * 0.1, rel=0.1)
    numbers = [number for _, number in arrivals]
    twice = len(numbers) - len(set(numbers))
    assert twice == pytest.approx(MANY * 0.2 * 0.9**2, rel=0.1)
    assert len({when for when, _ in arrivals}) == len(arrivals)


def test_corruption_flips_one_bit_of_its_share() -> None:
    link = Link(Faults(corrupt=0.1), Random(1))
    original = bytes(range(100))
    changed = []
    for _ in range(5000):
        ((_, datagram),) = link.offer(0, original)
        bits = int.from_bytes(datagram, "big") ^ int.from_bytes(original, "big")
        assert bits.bit_count() <= 1
        if bits:
            changed.append(bits.bit_length())
    assert len(changed) == link.statistics(0).corrupted == pytest.approx(500, rel=0.15)
    # Every part of a datagram is hit.
    assert len({bit // 80 for bit in changed}) == 10
    assert Link(Faults(corrupt=1.0), Random(1)).offer(0, b"") == [(0.01, b"")]


def test_jitter_is_uniform_and_reorders() -> None:
    _, arrivals = play(Faults(delay=0.05, jitter=0.02))
    extra = [when - 0.05 - number * SPACING for when, number in arrivals]
    assert min(extra) >= -1e-9
    assert max(extra) <= 0.02 + 1e-9
    assert sum(extra) / len(extra) == pytest.approx(0.01, rel=0.05)
    assert inversions([number for _, number in arrivals]) > MANY / 4


def test_reorder_holds_its_share_back_and_later_ones_overtake() -> None:
    faults = Faults(reorder=0.05, reorder_delay=SPACING * 3.5, delay=0.02)
    link, arrivals = play(faults)
    held_back = link.statistics(0).held_back
    assert held_back == pytest.approx(MANY * 0.05, rel=0.1)
    late = {n for when, n in arrivals if when - n * SPACING > 0.021}
    assert len(late) == held_back
    places = {number: place for place, (_, number) in enumerate(arrivals)}
    overtaken = [n for n in late if n + 1 < MANY and places[n + 1] < places[n]]
    # Unless the next one, or the ones behind it, are held back as well.
    assert len(overtaken) > 0.85 * held_back
    assert inversions([number for _, number in arrivals]) > 0.85 * held_back
    assert inversions([number for _, number in play(Faults(delay=0.02))[1]]) == 0


def test_the_largest_datagram_passes_and_a_larger_one_does_not() -> None:
    link = Link(Faults(mtu=1200), Random(1))
    assert len(link.offer(0, bytes(1200))) == 1
    assert link.offer(0, bytes(1201)) == []
    assert link.statistics(0).too_large == 1


def test_a_partition_can_come_and_go() -> None:
    link = Link(Faults(), Random(1))
    for blocked in (False, True, False):
        link.faults = Faults(blocked=blocked)
        assert len(link.offer(0, b"x")) == (not blocked)
    assert link.statistics(0).blocked == link.dropped == 1


shares = st.floats(0, 1)
any_faults = st.builds(
    Faults,
    blocked=st.booleans(),
    mtu=st.integers(0, 200),
    duplicate=shares,
    loss=shares,
    burst=shares,
    burst_length=st.floats(1, 50),
    corrupt=shares,
    rate=st.floats(1, 1e9),
    queue=st.integers(0, 2000),
    delay=st.floats(0, 1),
    jitter=st.floats(0, 1),
    reorder=shares,
    reorder_delay=st.floats(0, 1),
)
offers = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=300)), max_size=60)


@given(st.integers(), st.lists(any_faults, min_size=1, max_size=3), offers)
def test_the_figures_add_up_whatever_happens(
    seed: int, in_turn: list[Faults], offered: list[tuple[float, bytes]]
) -> None:
    """Nothing vanishes uncounted, comes early or grows; and one seed gives one trace."""
    traces = []
    for _ in range(2):
        link, now, trace = Link(in_turn[0], Random(seed)), 0.0, []
        for number, (wait, datagram) in enumerate(offered):
            now += wait
            link.faults = in_turn[number % len(in_turn)]
            arrivals = link.offer(now, datagram)
            assert all(when >= now + link.faults.delay for when, _ in arrivals)
            assert all(len(arriving) == len(datagram) for _, arriving in arrivals)
            trace += arrivals
        counts = link.statistics(now)
        assert counts.offered == len(offered)
        assert counts.carried == len(trace) == link.carried
        assert counts.carried_bytes == sum(len(arriving) for _, arriving in trace)
        ends = counts.blocked + counts.too_large + counts.lost + counts.queue_dropped
        assert ends == link.dropped
        assert counts.offered + counts.duplicated == ends + counts.carried
        traces.append((trace, counts))
    assert traces[0] == traces[1]
