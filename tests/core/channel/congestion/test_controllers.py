"""What holds for every controller."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.congestion.controller import Controller, make_controller
from sphtp.core.channel.congestion.delivery_rate import Ack, Lost
from sphtp.core.channel.congestion.new_reno import initial_window
from sphtp.core.channel.settings import parse_congestion
from sphtp.errors import SettingsError
from tests.cases import each
from tests.profiles import few

DATAGRAM = 1200
LIMIT = 1_000_000
ROUND_TRIP = 0.05
LOSS_BASED = ("newreno", "cubic")
ADAPTIVE = (*LOSS_BASED, "tolerant")
ALL = (*ADAPTIVE, "fixed:2e6")


def make(name: str) -> Controller:
    return make_controller(*parse_congestion(name), DATAGRAM, LIMIT)


def ack(
    now: float,
    size: int = DATAGRAM,
    *,
    limited: bool = True,
    rate: float | None = None,
    round_trip: float = ROUND_TRIP,
) -> Ack:
    return Ack(
        size=size,
        sent_at=now - round_trip,
        round_trip=round_trip,
        smoothed=round_trip,
        minimum=ROUND_TRIP,
        in_flight=size,
        limited=limited,
        delivered_rate=rate,
        busy_since=now - round_trip,
    )


def ack_rounds(
    controller: Controller, rounds: int, *, start: float = 1.0, limited: bool = True
) -> float:
    """Ack a whole window, round after round, of a path that carries what it is given."""
    now = start
    for _ in range(rounds):
        now += ROUND_TRIP
        size = controller.window
        controller.acked(now, ack(now, size, limited=limited, rate=size / ROUND_TRIP))
    return now


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["acked", "acked", "lost", "spurious", "persistent", "resize"]),
        st.floats(0.0, 2.0),
        st.integers(1, 300_000),
        st.booleans(),
    ),
    max_size=60,
)


def tell(
    controller: Controller, event: str, now: float, pause: float, size: int, flag: bool
) -> None:
    sent_at = now - (0.5 if flag else 0.01)
    rate = size / (pause + 0.001)
    actions = {
        "acked": lambda: controller.acked(
            now, Ack(size, sent_at, pause or None, pause, pause, size, flag, rate, sent_at)
        ),
        "lost": lambda: controller.lost(now, Lost(size, sent_at, size)),
        "spurious": lambda: controller.spurious(now, size),
        "persistent": lambda: controller.persistent(now),
    }
    actions[event]()


@pytest.mark.parametrize("name", ALL)
@few
@given(events=EVENTS)
def test_window_and_rate_stay_in_their_bounds(
    name: str, events: list[tuple[str, float, int, bool]]
) -> None:
    controller = make(name)
    now, datagram = 0.0, DATAGRAM
    for event, pause, size, flag in events:
        now += pause
        if event == "resize":
            datagram = 256 + size % 65_000
            controller.resize(datagram)
        else:
            tell(controller, event, now, pause, size, flag)
        assert 2 * datagram <= controller.window <= LIMIT
        assert isinstance(controller.window, int)
        assert controller.pacing_rate is None or 0 < controller.pacing_rate < float("inf")


@pytest.mark.parametrize("name", ADAPTIVE)
def test_it_starts_as_rfc_9002_says(name: str) -> None:
    controller = make(name)
    assert controller.window == 10 * DATAGRAM == initial_window(DATAGRAM)
    assert controller.pacing_rate is None
    assert initial_window(1472) == 14_720
    assert initial_window(9000) == 18_000


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_window_grows_only_when_it_is_used(name: str) -> None:
    idle, busy = make(name), make(name)
    ack_rounds(idle, 4, limited=False)
    ack_rounds(busy, 4, limited=True)
    assert idle.window == initial_window(DATAGRAM)
    assert busy.window >= 8 * initial_window(DATAGRAM)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_rate_lets_a_window_leave_within_a_round_trip(name: str) -> None:
    controller = make(name)
    ack_rounds(controller, 3)
    assert controller.pacing_rate is not None
    assert controller.pacing_rate * ROUND_TRIP >= controller.window


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_window_stops_at_the_limit(name: str) -> None:
    controller = make(name)
    ack_rounds(controller, 20)
    assert controller.window == LIMIT


@pytest.mark.parametrize("name", ALL)
def test_losses_of_one_round_trip_count_once(name: str) -> None:
    controller = make(name)
    now = ack_rounds(controller, 5)
    controller.lost(now, Lost(DATAGRAM, now - 0.04, 0))
    once = controller.window
    for step in range(1, 5):
        controller.lost(now + step * 0.01, Lost(DATAGRAM, now - 0.04 + step * 0.01, 0))
    assert controller.window == once


@pytest.mark.parametrize("name", LOSS_BASED)
def test_the_next_round_trip_counts_again(name: str) -> None:
    controller = make(name)
    now = ack_rounds(controller, 5)
    before = controller.window
    controller.lost(now, Lost(DATAGRAM, now - 0.04, 0))
    once = controller.window
    controller.lost(now + 0.06, Lost(DATAGRAM, now + 0.01, 0))
    assert before > once > controller.window


@pytest.mark.parametrize("name", LOSS_BASED)
def test_what_left_before_the_loss_does_not_grow_the_window(name: str) -> None:
    controller = make(name)
    now = ack_rounds(controller, 5)
    controller.lost(now, Lost(DATAGRAM, now - 0.04, 0))
    shrunk = controller.window
    controller.acked(now + 0.01, ack(now + 0.01, shrunk))
    assert controller.window == shrunk


@pytest.mark.parametrize("name", ALL)
def test_a_mistake_is_undone(name: str) -> None:
    controller = make(name)
    now = ack_rounds(controller, 5)
    before = controller.window
    controller.lost(now, Lost(2 * DATAGRAM, now - 0.04, 0))
    controller.lost(now, Lost(DATAGRAM, now - 0.03, 0))
    controller.spurious(now + 0.01, 3 * DATAGRAM)
    assert controller.window == before


@pytest.mark.parametrize("name", LOSS_BASED)
def test_half_a_mistake_is_not_undone(name: str) -> None:
    controller = make(name)
    now = ack_rounds(controller, 5)
    controller.lost(now, Lost(3 * DATAGRAM, now - 0.04, 0))
    shrunk = controller.window
    controller.spurious(now + 0.01, 2 * DATAGRAM)
    assert controller.window == shrunk
    controller.spurious(now + 0.02, DATAGRAM)
    assert controller.window > shrunk


@pytest.mark.parametrize("name", ADAPTIVE)
def test_persistent_congestion_starts_from_the_bottom(name: str) -> None:
    controller = make(name)
    now = ack_rounds(controller, 5)
    controller.persistent(now)
    assert controller.window == 2 * DATAGRAM
    ack_rounds(controller, 3, start=now + 0.1)
    assert controller.window > 2 * DATAGRAM


@pytest.mark.parametrize("told_first", ["losses", "persistent congestion"])
@pytest.mark.parametrize("name", LOSS_BASED)
def test_after_it_slow_start_goes_up_to_the_threshold(name: str, told_first: str) -> None:
    once, controller = make(name), make(name)
    for one in (once, controller):
        now = ack_rounds(one, 5)
    once.lost(now, Lost(DATAGRAM, now - 0.04, 0))
    threshold = once.window
    if told_first == "losses":
        controller.lost(now, Lost(DATAGRAM, now - 0.04, 0))
    controller.persistent(now)
    # Probes that left since are lost as well.
    controller.lost(now + 3.0, Lost(DATAGRAM, now + 2.0, 0))
    now = ack_rounds(controller, 5, start=now + 3.1)
    assert controller.window == 2**6 * DATAGRAM < threshold
    ack_rounds(controller, 10, start=now)
    assert threshold <= controller.window < 2 * threshold


@pytest.mark.parametrize("name", ALL)
def test_a_larger_datagram_raises_the_floor(name: str) -> None:
    controller = make(name)
    controller.resize(65_507)
    assert controller.window >= 2 * 65_507
    controller.persistent(1.0)
    assert controller.window >= 2 * 65_507


@pytest.mark.parametrize("name", ADAPTIVE)
def test_another_size_of_datagrams_changes_the_initial_window_and_no_other(name: str) -> None:
    controller = make(name)
    controller.resize(1400)
    assert controller.window == initial_window(1400) > initial_window(DATAGRAM)
    ack_rounds(controller, 4)
    grown = controller.window
    assert grown > initial_window(1452)
    controller.resize(1452)
    assert controller.window == grown


@each("name", ["", "reno", "fixed", "fixed:", "cubic:1", "NewReno"])
def test_an_unknown_name_is_told_what_is_allowed(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make(name)
    if name != "fixed:":
        assert all(known in str(caught.value) for known in (*ADAPTIVE, "fixed:RATE"))


@each("rate", ["0", "-1", "nan", "inf", "fast"])
def test_a_rate_must_be_a_positive_number(rate: str) -> None:
    with pytest.raises(SettingsError, match="positive number"):
        make(f"fixed:{rate}")


@pytest.mark.parametrize("name", ALL)
def test_a_limit_under_two_datagrams_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="two datagrams"):
        make_controller(*parse_congestion(name), 1200, 2399)
    assert make_controller(*parse_congestion(name), 1200, 2400).window == 2400
