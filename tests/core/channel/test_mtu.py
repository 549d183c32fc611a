"""The search for the largest datagram, and the way back from a black hole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.mtu import (
    BASE,
    BLACK_HOLE_LOSSES,
    LIKELY,
    RAISE_AFTER,
    RETRY_AFTER,
    TRIES,
    WORTHWHILE,
    PathMtu,
    Search,
)
from sphtp.errors import SettingsError


def search(mtu: PathMtu, takes: int, now: float = 0.0) -> list[int]:
    """Answer probes as a path does that takes so many bytes; return the sizes probed."""
    probed: list[int] = []
    while (size := mtu.poll_probe(now)) is not None:
        assert len(probed) < 200, "the search has no end"
        probed.append(size)
        answer = mtu.probe_acked if size <= takes else mtu.probe_lost
        answer(now, size)
    return probed


def found(takes: int, ceiling: int = LIKELY[-1]) -> PathMtu:
    mtu = PathMtu(ceiling=ceiling)
    search(mtu, takes)
    return mtu


def lose_large(mtu: PathMtu, batches: int, now: float = 10.0) -> None:
    for _ in range(batches):
        mtu.packets_lost(now, mtu.size)
        mtu.packets_acked(200)


def test_on_loopback_it_climbs_the_ladder() -> None:
    mtu = PathMtu()
    assert mtu.size == BASE == 1200
    assert search(mtu, 65_507) == list(LIKELY)
    assert mtu.size == 65_507
    assert mtu.state is Search.RESTING


def test_on_ethernet_it_finds_1472_and_looks_between() -> None:
    mtu = PathMtu()
    probed = search(mtu, 1472)
    assert probed == [1400, 1452, 1472] + [
        size for size in (4096, 2784, 2128, 1800, 1636, 1554) for _ in range(TRIES)
    ]
    assert mtu.size == 1472


def test_between_likely_sizes_it_comes_close_enough() -> None:
    assert found(2000).size == pytest.approx(2000, rel=WORTHWHILE)
    assert found(1230).size == 1200


def test_the_ceiling_is_tried_and_not_passed() -> None:
    mtu = PathMtu(ceiling=1500)
    assert search(mtu, 9000) == [1400, 1452, 1472, 1500]
    assert mtu.size == 1500
    assert PathMtu(ceiling=BASE).poll_probe(0.0) is None


def test_a_ceiling_under_the_base_is_refused() -> None:
    with pytest.raises(SettingsError, match="1000"):
        PathMtu(ceiling=1000)


@given(takes=st.integers(BASE, 65_507), ceiling=st.integers(BASE, 65_507))
def test_it_ends_near_what_the_path_takes(takes: int, ceiling: int) -> None:
    mtu = PathMtu(ceiling=ceiling)
    probed = search(mtu, takes)
    best = min(takes, ceiling)
    assert best / (1 + WORTHWHILE) - 1 <= mtu.size <= best
    assert all(BASE < size <= ceiling for size in probed)
    assert len(probed) <= len(LIKELY) + 1 + 16 * TRIES


def test_one_probe_at_a_time() -> None:
    mtu = PathMtu()
    assert mtu.poll_timeout() == 0.0
    assert mtu.poll_probe(0.0) == 1400
    assert mtu.poll_probe(0.0) is None
    assert mtu.poll_timeout() is None
    mtu.probe_acked(0.5, 1400)
    assert mtu.poll_timeout() == 0.5
    assert mtu.poll_probe(0.5) == 1452


def test_one_lost_probe_may_be_chance() -> None:
    mtu = PathMtu()
    for _ in range(TRIES - 1):
        assert mtu.poll_probe(0.0) == 1400
        mtu.probe_lost(0.0, 1400)
    assert mtu.poll_probe(0.0) == 1400
    mtu.probe_acked(0.0, 1400)
    assert mtu.size == 1400


def test_a_refused_probe_is_not_tried_again() -> None:
    mtu = PathMtu()
    mtu.poll_probe(0.0)
    mtu.refused(0.0, 1400)
    assert mtu.poll_probe(0.0) == 1300
    assert mtu.size == BASE


def test_a_late_probe_counts() -> None:
    mtu = PathMtu()
    mtu.poll_probe(0.0)
    mtu.probe_lost(0.1, 1400)
    mtu.probe_acked(0.2, 1400)
    assert mtu.size == 1400
    assert mtu.poll_probe(0.2) == 1452


def test_a_late_probe_beside_another_counts() -> None:
    mtu = PathMtu()
    for _ in range(TRIES):
        mtu.poll_probe(0.0)
        mtu.probe_lost(0.1, 1400)
    assert mtu.poll_probe(0.1) == 1300
    mtu.probe_acked(0.2, 1400)
    assert mtu.size == 1400
    mtu.probe_acked(0.2, 1300)
    assert mtu.size == 1400
    assert mtu.poll_probe(0.2) == 1452


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    mtu = found(1472)
    for answer in (mtu.probe_acked, mtu.probe_lost, mtu.refused):
        answer(1.0, 4096)
    assert (mtu.size, mtu.state) == (1472, Search.RESTING)
    mtu = PathMtu()
    mtu.probe_acked(0.0, 1200)
    mtu.probe_acked(0.0, 70_000)
    assert mtu.size == BASE


def test_it_looks_again_after_ten_minutes() -> None:
    mtu = found(1472)
    due = mtu.poll_timeout()
    assert due == RAISE_AFTER
    assert mtu.poll_probe(due - 1.0) is None
    search(mtu, 8972, due)
    assert mtu.size == 8972
    assert mtu.poll_timeout() == due + RAISE_AFTER


def test_a_black_hole_is_left_at_once_and_searched_anew() -> None:
    mtu = found(8972)
    lose_large(mtu, BLACK_HOLE_LOSSES - 1)
    assert mtu.size == 8972
    lose_large(mtu, 1)
    assert mtu.size == BASE
    assert mtu.poll_timeout() == 10.0 + RETRY_AFTER
    search(mtu, 1452, 10.0 + RETRY_AFTER)
    assert mtu.size == 1452


def test_a_silent_path_is_no_black_hole() -> None:
    mtu = found(8972)
    for step in range(100):
        mtu.packets_lost(float(step), 8972)
    assert mtu.size == 8972


def test_losses_between_arrivals_are_chance() -> None:
    mtu = found(8972)
    for step in range(100):
        mtu.packets_lost(float(step), 8972)
        mtu.packets_acked(200)
        if step % 2:
            mtu.packets_acked(8972)
    assert mtu.size == 8972


def test_losses_of_small_packets_say_nothing() -> None:
    mtu = found(8972)
    for step in range(100):
        mtu.packets_lost(float(step), BASE)
        mtu.packets_acked(200)
    assert mtu.size == 8972
    assert mtu.tail_size == 8972


def test_while_large_ones_vanish_the_tail_is_probed_with_small_ones() -> None:
    mtu = found(8972)
    assert mtu.tail_size == 8972
    mtu.packets_lost(1.0, 8972)
    assert mtu.tail_size == BASE
    mtu.packets_acked(8972)
    assert mtu.tail_size == 8972


def test_packets_of_the_old_size_lost_after_the_fall_are_old_news() -> None:
    mtu = found(8972)
    lose_large(mtu, BLACK_HOLE_LOSSES)
    due = mtu.poll_timeout()
    for _ in range(BLACK_HOLE_LOSSES):
        mtu.packets_lost(30.0, 8972)
        mtu.packets_acked(200)
    assert mtu.poll_timeout() == due


def test_a_size_that_the_socket_refuses_is_left_at_once() -> None:
    mtu = found(8972)
    mtu.refused(5.0, 8972)
    assert mtu.size == BASE


def test_a_black_hole_during_the_search_ends_it() -> None:
    mtu = PathMtu()
    mtu.poll_probe(0.0)
    mtu.probe_acked(0.0, 1400)
    assert mtu.poll_probe(0.0) == 1452
    lose_large(mtu, BLACK_HOLE_LOSSES)
    assert (mtu.size, mtu.state) == (BASE, Search.RESTING)
    mtu.probe_acked(11.0, 1452)
    assert mtu.size == BASE


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["poll", "acked", "lost", "refused", "some_acked", "some_lost"]),
            st.floats(0.0, 700.0),
            st.sampled_from([1, BASE, 1400, 1472, 4096, 65_507, 70_000]),
            st.booleans(),
        ),
        max_size=80,
    )
)
def test_whatever_happens_the_size_stays_in_its_bounds(
    events: list[tuple[str, float, int, bool]],
) -> None:
    mtu = PathMtu(ceiling=9000)
    now, probe = 0.0, 1400
    for event, pause, size, is_probe in events:
        now += pause
        if event == "poll":
            probe = mtu.poll_probe(now) or probe
        tell(mtu, event, now, probe if is_probe else size)
        assert BASE <= mtu.size <= 9000
        assert mtu.tail_size <= mtu.size


def tell(mtu: PathMtu, event: str, now: float, size: int) -> None:
    actions = {
        "poll": lambda: None,
        "acked": lambda: mtu.probe_acked(now, size),
        "lost": lambda: mtu.probe_lost(now, size),
        "refused": lambda: mtu.refused(now, size),
        "some_acked": lambda: mtu.packets_acked(size),
        "some_lost": lambda: mtu.packets_lost(now, size),
    }
    actions[event]()
