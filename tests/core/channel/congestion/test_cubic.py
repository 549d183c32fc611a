"""CUBIC by the numbers of RFC 9438."""

import pytest

from sphtp.core.channel.congestion.cubic import RENO_GROWTH, Cubic
from sphtp.core.channel.congestion.delivery_rate import Ack, Lost

DATAGRAM = 1000
LIMIT = 10_000_000


def ack(now: float, size: int, *, round_trip: float = 0.1, limited: bool = True) -> Ack:
    return Ack(size, now - round_trip, round_trip, round_trip, round_trip, 0, limited, None)


def after_loss(datagrams: int) -> Cubic:
    """A controller that lost a packet at time 0, with a window of so many datagrams."""
    controller = Cubic(DATAGRAM, LIMIT)
    while controller.window < datagrams * DATAGRAM:
        missing = datagrams * DATAGRAM - controller.window
        controller.acked(-1.0, Ack(missing, -2.0, None, 0.1, 0.1, 0, True, None))
    controller.lost(0.0, Lost(DATAGRAM, -0.5, 0))
    return controller


def drive(controller: Cubic, until: float, *, start: float = 0.2, round_trip: float = 0.1) -> None:
    """Ack a full window each round trip, a datagram at a time."""
    now = start
    while now < until:
        per_round = controller.window // DATAGRAM
        for _ in range(per_round):
            now += round_trip / per_round
            controller.acked(now, ack(now, DATAGRAM, round_trip=round_trip))


def test_a_loss_takes_three_tenths() -> None:
    assert after_loss(100).window == 70_000


@pytest.mark.parametrize(
    ("seconds", "datagrams"),
    [(1.0, 86.68), (2.0, 95.64), (4.217, 100.0), (6.0, 102.27), (8.0, 121.65)],
)
def test_the_window_follows_the_curve(seconds: float, datagrams: float) -> None:
    """K = cbrt(30 / 0.4) = 4.217 s; W(t) = 0.4 (t - K)^3 + 100."""
    controller = after_loss(100)
    drive(controller, 0.2 + seconds)
    assert controller.window / DATAGRAM == pytest.approx(datagrams, rel=0.03)


def test_on_a_short_path_it_grows_as_reno_does() -> None:
    controller = after_loss(20)
    start = controller.window
    drive(controller, 0.3, start=0.2, round_trip=0.002)
    rounds = 50
    grown = (controller.window - start) / DATAGRAM
    assert grown >= RENO_GROWTH * rounds * 0.9
    assert grown <= rounds * 1.1


def test_a_window_that_shrinks_again_makes_room() -> None:
    """It stays at 85 % of where it was, and not where it was."""
    controller = after_loss(1000)
    controller.acked(0.2, ack(0.2, DATAGRAM))
    controller.lost(1.0, Lost(DATAGRAM, 0.9, 0))
    assert controller.window == pytest.approx(490_000, rel=0.01)
    # K = cbrt((595 - 490) / 0.4) = 6.4 s; towards 700 it would be at 698 by then.
    drive(controller, 2.0 + 6.4, start=2.0)
    assert controller.window == pytest.approx(595_000, rel=0.02)


def test_time_without_use_does_not_count() -> None:
    used, unused = after_loss(100), after_loss(100)
    drive(used, 1.0)
    drive(unused, 1.0)
    before = unused.window
    for step in range(500):
        now = 1.1 + step / 100
        unused.acked(now, ack(now, DATAGRAM, limited=False))
    assert unused.window == before
    unused.acked(6.11, ack(6.11, DATAGRAM))
    used.acked(6.11, ack(6.11, DATAGRAM))
    assert unused.window < used.window


def test_a_pause_does_not_count() -> None:
    paused, steady = after_loss(100), after_loss(100)
    drive(paused, 1.0)
    drive(steady, 1.0)
    paused.acked(60.1, ack(60.1, DATAGRAM)._replace(busy_since=60.0))
    steady.acked(60.1, ack(60.1, DATAGRAM))
    assert paused.window - 70_000 < steady.window - 70_000
    drive(paused, 61.0, start=60.1)
    assert paused.window < 100_000


@pytest.mark.parametrize("datagram", [2 * DATAGRAM, DATAGRAM // 2])
def test_the_curve_is_that_of_the_same_bytes_with_datagrams_of_another_size(datagram: int) -> None:
    controller = after_loss(100)
    controller.resize(datagram)
    check_curve(controller, datagram, start=0.2)


def test_an_undone_reaction_restores_the_peak_with_datagrams_of_another_size() -> None:
    controller = after_loss(100)
    controller.acked(0.2, ack(0.2, DATAGRAM))
    controller.lost(1.0, Lost(DATAGRAM, 0.9, 0))
    controller.resize(2 * DATAGRAM)
    controller.spurious(1.1, DATAGRAM)
    check_curve(controller, 2 * DATAGRAM, start=2.0)


def check_curve(controller: Cubic, datagram: int, *, start: float) -> None:
    """From 70,000 bytes, the curve has its plateau at 100,000 again."""
    plateau = (30 * DATAGRAM / datagram / 0.4) ** (1 / 3)
    for seconds in (plateau / 2, plateau):
        drive(controller, start + seconds, start=start, round_trip=0.3)
        ahead = seconds + 0.3 - plateau
        expected = 100_000 + 0.4 * ahead**3 * datagram
        assert controller.window == pytest.approx(expected, rel=0.05)
        start += seconds
        plateau -= seconds
