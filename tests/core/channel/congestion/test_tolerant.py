"""The phases of the loss-tolerant controller, and its model of the path."""

from dataclasses import replace

import pytest

from sphtp.core.channel.congestion.delivery_rate import Ack, Lost
from sphtp.core.channel.congestion.tolerant import (
    GRAIN,
    MARGIN,
    PACING_GAIN,
    STALE_AFTER,
    WINDOW_GAIN,
    LossTolerant,
    PathModel,
    TolerantPhase,
)
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from tests.core.channel.congestion.bottleneck import Flow, Path, World

DATAGRAM = 1200
RATE = 2_500_000.0
ROUND_TRIP = 0.05


def watch(world: World, controller: LossTolerant, until: float) -> list[TolerantPhase]:
    phases = [controller.state]
    while world.now < until:
        world.run(world.now + 0.005)
        if controller.state is not phases[-1]:
            phases.append(controller.state)
    return phases


def bulk() -> tuple[World, LossTolerant]:
    world = World(Path(), 1)
    controller = LossTolerant(DATAGRAM, 8_000_000)
    Flow(world, controller)
    return world, controller


def rate_of(controller: LossTolerant) -> float:
    """What it takes the path to carry."""
    assert controller.pacing_rate is not None
    return controller.pacing_rate / (MARGIN * PACING_GAIN[controller.state])


def cruising(round_trip: float) -> float:
    """The window of a cruising controller on a path of this length, but for acks that are held."""
    return WINDOW_GAIN[TolerantPhase.CRUISE] * RATE * (round_trip + GRAIN)


def test_it_finds_the_rate_and_cycles() -> None:
    world, controller = bulk()
    phases = watch(world, controller, 4.0)
    assert phases[:6] == [
        TolerantPhase.STARTUP,
        TolerantPhase.DRAIN,
        TolerantPhase.CRUISE,
        TolerantPhase.UP,
        TolerantPhase.DOWN,
        TolerantPhase.CRUISE,
    ]
    assert rate_of(controller) == pytest.approx(RATE, rel=0.06)
    assert controller.window == pytest.approx(cruising(ROUND_TRIP), rel=0.15)


def test_it_looks_for_the_round_trip_when_that_was_not_seen_for_long() -> None:
    world, controller = bulk()
    watch(world, controller, 2.0)
    world.path.round_trip = 0.08
    phases = watch(world, controller, 2.0 + STALE_AFTER + 1.0)
    assert TolerantPhase.PROBE_RTT in phases
    assert controller.window == pytest.approx(cruising(0.08), rel=0.1)


def test_a_slower_path_is_noticed() -> None:
    world, controller = bulk()
    watch(world, controller, 2.0)
    world.path.rate = RATE / 4
    watch(world, controller, 6.0)
    assert rate_of(controller) == pytest.approx(RATE / 4, rel=0.2)


def test_a_faster_path_is_noticed() -> None:
    world, controller = bulk()
    watch(world, controller, 2.0)
    world.path.rate = RATE * 2
    watch(world, controller, 10.0)
    assert rate_of(controller) == pytest.approx(RATE * 2, rel=0.1)


def test_nothing_getting_through_starts_it_anew() -> None:
    world, controller = bulk()
    watch(world, controller, 2.0)
    controller.persistent(world.now)
    assert controller.state is TolerantPhase.STARTUP
    assert controller.window == 2 * DATAGRAM
    watch(world, controller, 5.0)
    assert rate_of(controller) == pytest.approx(RATE, rel=0.06)


@pytest.mark.parametrize(("share", "is_bound"), [(0.1, False), (0.5, True)])
def test_only_many_losses_bound_what_is_in_flight(share: float, is_bound: bool) -> None:
    world, controller = bulk()
    watch(world, controller, 2.0)
    before = controller.window
    # A round ends, and one with losses follows.
    controller.acked(2.06, ack(2.06, DATAGRAM, RATE))
    controller.lost(2.1, Lost(int(share * before), 2.1, 0))
    controller.acked(2.16, ack(2.16, int((1 - share) * before), RATE))
    assert (controller.window < 0.9 * before) is is_bound
    assert controller.window >= RATE * ROUND_TRIP * 0.85


def ack(now: float, size: int, rate: float | None, *, limited: bool = True) -> Ack:
    return Ack(size, now - ROUND_TRIP, ROUND_TRIP, ROUND_TRIP, ROUND_TRIP, 0, limited, rate)


def test_the_model_forgets_rates_after_two_cycles() -> None:
    model = PathModel()
    model.acked(1.0, ack(1.0, DATAGRAM, 5e6))
    model.age_rate()
    model.acked(2.0, ack(2.0, DATAGRAM, 2e6))
    assert model.rate == 5e6
    model.age_rate()
    assert model.rate == 2e6
    assert model.holds(1.0) == pytest.approx(2e6 * (ROUND_TRIP + GRAIN))


def test_held_acks_widen_what_may_be_in_flight() -> None:
    model = PathModel()
    model.acked(1.0, ack(1.0, 16 * DATAGRAM, 1e6))
    assert model.held(1.0) == 16 * DATAGRAM
    late = ack(2.0, DATAGRAM, 1e6)._replace(sent_at=2.0 - ROUND_TRIP - 0.04)
    model.acked(2.0, late)
    assert model.held(1.0) == pytest.approx(40_000)


def test_who_has_little_to_send_learns_only_of_higher_rates() -> None:
    model = PathModel()
    model.acked(1.0, ack(1.0, DATAGRAM, 2e6))
    model.age_rate()
    model.age_rate()
    model.acked(2.0, ack(2.0, DATAGRAM, 1e6, limited=False))
    assert model.rate == 2e6
    model.acked(3.0, ack(3.0, DATAGRAM, 3e6, limited=False))
    assert model.rate == 3e6


def test_the_share_of_losses_is_of_a_whole_round() -> None:
    model = PathModel()
    model.acked(1.0, ack(1.0, DATAGRAM, None))
    model.lost(3 * DATAGRAM)
    model.spurious(2 * DATAGRAM)
    assert not model.acked(1.01, ack(1.01, 2 * DATAGRAM, None))
    assert model.acked(1.1, ack(1.1, DATAGRAM, None))
    assert model.loss_share == 0.25


def test_a_round_trip_that_rose_in_a_pause_is_taken_as_it_is() -> None:
    """It was taken for a queue, to be emptied to half of two packets: 1.5 MB took 56 s, not 1.5."""
    took = {name: seconds_after_a_pause(name) for name in ("tolerant", "cubic")}
    assert took["tolerant"] < 1.5 * took["cubic"], took


def seconds_after_a_pause(name: str) -> float:
    line = Faults(delay=0.01, rate=10e6, mtu=1472)
    pair = Pair(1, line, ChannelSettings(congestion=name))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1000)] * 100)
    pair.run(1)
    pair.network.set_default(replace(line, delay=0.05))
    pair.run(30)
    start = pair.now
    pair.transfer(left, right, [bytes(1000)] * 400, 200)
    return pair.now - start


def test_pings_of_a_pause_do_not_change_what_the_path_carries() -> None:
    pair = Pair(1, Faults(rate=10e6, mtu=1472), ChannelSettings(congestion="tolerant"))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1000)] * 300)
    window = left.port.statistics().window
    pair.run(20)
    assert left.port.statistics().window > window / 2


def test_both_directions_of_a_slow_short_line_are_used() -> None:
    """What it holds is less than a packet: there is no waiting for so little to be in flight."""
    settings = ChannelSettings(congestion="tolerant", send_buffer_bytes=100_000)
    pair = Pair(1, Faults(delay=0.0005, rate=1e6, mtu=1472), settings)
    ends = pair.open()
    received = [0, 0]

    def work() -> None:
        for number, (sender, receiver) in enumerate((ends, ends[::-1])):
            received[number] += sum(map(len, pair.receive(receiver)))
            while sender.port.room_for([10_000]):
                sender.port.send_many([bytes(10_000)])
            pair.touch(sender)

    work()
    pair.run(3, work)
    received[:] = 0, 0
    pair.run(6, work)
    shares = [size * 8 / 6 / 1e6 for size in received]
    assert min(shares) > 0.6, shares
