"""The search for the largest datagram, and the way back from a black hole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.path_mtu import (
    BASE,
    BLACK_HOLE_LOSSES,
    FLOOR,
    LIKELY,
    RAISE_AFTER,
    RETRY_AFTER,
    TRIES,
    WORTHWHILE,
    MtuSearchState,
    PathMtu,
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
        mtu.packets_lost(now, [mtu.size], now)
        mtu.packets_acked([200])


def test_on_loopback_it_climbs_the_ladder() -> None:
    mtu = PathMtu()
    assert mtu.size == BASE == 1200
    assert search(mtu, 65_507) == list(LIKELY)
    assert mtu.size == 65_507
    assert mtu.state is MtuSearchState.RESTING


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
    assert (mtu.size, mtu.state) == (1472, MtuSearchState.RESTING)
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
        mtu.packets_lost(float(step), [8972], float(step))
    assert mtu.size == 8972


def test_losses_between_arrivals_are_chance() -> None:
    mtu = found(8972)
    for step in range(100):
        mtu.packets_lost(float(step), [8972], float(step))
        mtu.packets_acked([200])
        if step % 2:
            mtu.packets_acked([8972])
    assert mtu.size == 8972


def test_losses_of_small_packets_say_nothing() -> None:
    mtu = found(8972)
    for step in range(100):
        mtu.packets_lost(float(step), [BASE], float(step))
        mtu.packets_acked([200])
    assert mtu.size == 8972
    assert mtu.tail_size == 8972


def test_while_large_ones_vanish_the_tail_is_probed_with_small_ones() -> None:
    mtu = found(8972)
    assert mtu.tail_size == 8972
    mtu.packets_lost(1.0, [8972], 1.0)
    assert mtu.tail_size == BASE
    mtu.packets_acked([8972])
    assert mtu.tail_size == 8972


def test_packets_of_the_old_size_lost_after_the_fall_are_old_news() -> None:
    mtu = found(8972)
    lose_large(mtu, BLACK_HOLE_LOSSES)
    due = mtu.poll_timeout()
    for _ in range(BLACK_HOLE_LOSSES):
        mtu.packets_lost(30.0, [8972], 30.0)
        mtu.packets_acked([200])
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
    assert (mtu.size, mtu.state) == (BASE, MtuSearchState.RESTING)
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
        assert FLOOR <= mtu.size <= 9000
        assert mtu.tail_size <= mtu.size


def tell(mtu: PathMtu, event: str, now: float, size: int) -> None:
    actions = {
        "poll": lambda: None,
        "acked": lambda: mtu.probe_acked(now, size),
        "lost": lambda: mtu.probe_lost(now, size),
        "refused": lambda: mtu.refused(now, size),
        "some_acked": lambda: mtu.packets_acked([size]),
        "some_lost": lambda: mtu.packets_lost(now, [size], now),
    }
    actions[event]()


# After so many the chance that it was chance is under ``CHANCE``.
ROUNDS = 10


def lose(mtu: PathMtu, size: int, rounds: int, small_lost: int = 0, after: float = 10.0) -> float:
    """Let packets of a size vanish, round trip after round trip, while a small one arrives.

    Return the time at the end.
    """
    now = after
    for _ in range(rounds):
        now += 1
        mtu.packets_lost(now, [size, *[20] * small_lost], now)
        mtu.packets_acked([20])
    return now


def test_a_base_that_vanishes_is_left_for_the_floor_and_what_is_between_is_found() -> None:
    mtu = PathMtu()
    lose(mtu, BASE, ROUNDS)
    assert mtu.size == FLOOR == 548
    probed = search(mtu, 1100, 20.0)
    assert probed[0] == (FLOOR + BASE) // 2
    assert 1100 / (1 + WORTHWHILE) - 1 <= mtu.size <= 1100
    assert mtu.poll_timeout() == 20.0 + RAISE_AFTER
    assert search(mtu, 65_507, 20.0 + RAISE_AFTER) == [BASE, *LIKELY]


def test_as_many_losses_of_small_packets_say_that_it_is_chance() -> None:
    mtu = PathMtu()
    now = lose(mtu, BASE, 25, small_lost=1)
    assert mtu.size == BASE, "0.5 ** 25 is more than one in a billion"
    lose(mtu, BASE, 10, small_lost=1, after=now)
    assert mtu.size == FLOOR
    mtu = PathMtu()
    lose(mtu, BASE, 150, small_lost=9)
    assert mtu.size == BASE, "and so is 0.9 ** 150"


def test_one_large_packet_that_arrives_proves_the_path() -> None:
    mtu = PathMtu()
    now = 0.0
    for _ in range(50):
        now = lose(mtu, BASE, ROUNDS - 1, after=now)
        mtu.packets_acked([20, BASE])
    assert mtu.size == BASE
    now = lose(mtu, BASE, 3, after=now)
    mtu.packets_acked([1000])
    lose(mtu, BASE, ROUNDS - 3, after=now)
    assert mtu.size == FLOOR, "smaller ones say nothing of those that vanish"


def test_losses_count_once_in_a_round_trip() -> None:
    """A full queue has room for a small packet where it has none for a large one."""
    mtu = PathMtu()
    for _ in range(100):
        mtu.packets_lost(2.0, [BASE], 1.0)
        mtu.packets_acked([20])
    assert mtu.size == BASE


def test_a_floor_that_vanishes_ends_the_search() -> None:
    mtu = PathMtu()
    now = lose(mtu, BASE, ROUNDS)
    lose(mtu, 540, ROUNDS, after=now)
    assert mtu.state is MtuSearchState.TOO_SMALL
    assert mtu.vanishing == 540
    assert mtu.poll_probe(1e6) is None
    mtu = PathMtu()
    now = lose(mtu, BASE, ROUNDS)
    lose(mtu, 250, 50, after=now)
    assert mtu.state is not MtuSearchState.TOO_SMALL, "who says nothing larger can live with that"


def test_the_envelope_is_part_of_the_floor() -> None:
    mtu = PathMtu(BASE - 29, envelope=29)
    lose(mtu, BASE - 29, ROUNDS)
    assert mtu.size == FLOOR - 29


@pytest.mark.parametrize("base", [256, 400, FLOOR])
def test_a_base_under_the_floor_is_the_floor(base: int) -> None:
    mtu = PathMtu(base)
    lose(mtu, base, ROUNDS)
    assert mtu.size == base
    assert (mtu.state is MtuSearchState.TOO_SMALL) == (base > 256)


def test_what_the_socket_refuses_leads_down_at_once() -> None:
    mtu = PathMtu()
    mtu.refused(1.0, BASE)
    assert mtu.size == FLOOR
    mtu.refused(1.0, 1000)
    assert mtu.size == FLOOR
    mtu.refused(1.0, FLOOR)
    assert mtu.state is MtuSearchState.TOO_SMALL


def test_another_path_begins_at_the_base_again() -> None:
    mtu = PathMtu()
    lose(mtu, BASE, ROUNDS)
    mtu.path_changed(30.0)
    assert mtu.size == BASE


def test_where_nothing_is_answered_small_packets_are_asked_for() -> None:
    mtu = PathMtu()
    mtu.unanswered(5, FLOOR)
    assert mtu.tail_size == BASE, "what is small already need not be smaller"
    mtu.unanswered(1, BASE)
    assert mtu.tail_size == BASE, "one may be lost by chance"
    mtu.unanswered(2, BASE)
    assert mtu.tail_size == FLOOR
    mtu.packets_acked([20])
    assert mtu.tail_size == BASE
