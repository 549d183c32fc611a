"""Congestion control, pacing and path MTU as one; and what leaves whatever they say."""

import pytest

from sphtp.core.channel.loss_detection import LossDetector, RoundTrip
from sphtp.core.channel.path import (
    LOSSY_PACKETS,
    LOSSY_SHARE,
    PROBE_PACKETS,
    SILENCE,
    Path,
    ResendAllowance,
)
from sphtp.core.channel.sent_packets import SentBatch
from sphtp.core.channel.settings import ChannelSettings, Delivery
from sphtp.core.token_bucket import BURST
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.cases import each
from tests.core.channel.batches import acked, single
from tests.core.channel.talk import follow


class Sender:
    """A governor and the recovery that it relies on, as a transport drives them."""

    def __init__(self, largest: int = 9000, **changes: str) -> None:
        self.recovery = LossDetector(0.01, 0.1)
        self.path = Path(ChannelSettings(**changes), self.recovery, largest)  # type: ignore[arg-type]
        self.count = 0

    def send(self, now: float, size: int, *, probe: bool = False) -> SentBatch:
        packet = single(self.count, now, size)
        packet.probe = probe
        self.count += 1
        self.path.sent(now, packet)
        self.recovery.sent(packet)
        return packet

    def ack(self, now: float, *packets: SentBatch) -> None:
        subsets = acked(packets)
        lost = self.recovery.acked(now, subsets, 0.0)
        self.path.acked(now, subsets, self.recovery.round_trip.latest)
        if lost:
            self.path.lost(now, lost)


def test_the_window_is_what_may_be_in_flight() -> None:
    sender = Sender()
    while sender.path.has_window:
        sender.send(0.0, 1200)
    in_flight = sender.recovery.bytes_in_flight
    assert sender.path.window <= in_flight < sender.path.window + 1200


def test_a_lost_datagram_narrows_the_window_and_a_lost_probe_does_not() -> None:
    for is_probe, narrows in ((True, False), (False, True)):
        sender = Sender(congestion="newreno")
        first = sender.send(0.0, 1400, probe=is_probe)
        others = [sender.send(0.0, 1200) for _ in range(4)]
        before = sender.path.window
        sender.ack(0.1, others[2])
        assert first.lost
        assert (sender.path.window < before) == narrows


def test_a_loss_that_was_none_is_taken_back() -> None:
    sender = Sender(congestion="newreno")
    packets = [sender.send(0.0, 1200) for _ in range(5)]
    before = sender.path.window
    sender.ack(0.1, packets[4])
    assert sender.path.window < before
    sender.ack(0.11, packets[0])
    sender.ack(0.11, packets[1])
    assert sender.path.window >= before


def test_sizes_grow_as_probes_arrive() -> None:
    sender = Sender(largest=1500)
    path = sender.path
    assert path.mtu.size == path.datagram_size
    size = path.mtu.poll_probe(0.0)
    assert size == 1400
    sender.ack(0.1, sender.send(0.0, size, probe=True))
    assert path.datagram_size != 1400, "not yet"
    assert path.resize() == path.datagram_size == 1400


@pytest.mark.parametrize("size", [650, 750, 1000, 1300])
def test_messages_of_which_a_packet_takes_one_are_worth_larger_packets(size: int) -> None:
    """Those of 1000 bytes stayed one to a packet of 1400 for ever: it was not full enough."""
    pair = Pair(1, Faults(delay=0.001))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(size)] * 2000)
    assert left.port.statistics().datagram_size > 8000


def test_both_sides_limits_are_kept_to_from_the_start() -> None:
    path = Sender(largest=500).path
    assert path.mtu.size == 500
    assert path.mtu.poll_probe(0.0) is None


def test_what_is_lost_for_three_probe_timeouts_starts_from_the_bottom() -> None:
    for silence, is_persistent in ((2.0, True), (0.1, False)):
        sender = Sender(congestion="newreno")
        sender.ack(0.1, *[sender.send(0.0, 1200) for _ in range(5)])
        for number in range(10):
            sender.send(1.0 + silence * number / 10, 1200)
        sender.ack(1.1 + silence, sender.send(1.0 + silence, 1200))
        assert (sender.path.window == 2400) is is_persistent


def test_probes_say_nothing_about_a_path_that_was_never_measured() -> None:
    pair = Pair(1, Faults(delay=0.6), ChannelSettings(congestion="newreno", timeout=60))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1000)] * 200)
    figures = left.port.statistics()
    assert figures.lost == 0
    assert figures.window > 100_000, "slow start was never left"


def test_a_fixed_rate_is_kept_to() -> None:
    sender = Sender(congestion="fixed:12000")
    now = 0.0
    for _ in range(100):
        now = max(now, sender.path.ready_at(now))
        sender.send(now, 1200)
    assert abs(now - (100 - BURST) * 0.1) < 0.3
    assert sender.path.rate == 12_000


LATE = 0.01


@pytest.mark.parametrize(("round_trip", "is_kept"), [(0.01, False), (0.2, True)])
def test_on_a_long_path_a_late_sender_keeps_its_rate(round_trip: float, is_kept: bool) -> None:
    sender = Sender(congestion="fixed:1e7")
    sender.ack(round_trip, sender.send(0.0, 1200))
    now = round_trip
    while sender.path.budget(now, 1000, 1 << 30):
        sender.send(now, 1200)
    most = 1200 * sender.path.budget(now + LATE, 1000, 1 << 30)
    assert (most > 0.95 * LATE * 1e7) == is_kept


@pytest.mark.parametrize("congestion", ["newreno", "cubic"])
def test_small_messages_open_the_window_by_their_own_bytes_at_most(congestion: str) -> None:
    """A window that opened by a packet for each ack would be open long before it is needed.

    RFC 9002, section 7.8, would not have it grow at all. The search for the path's MTU needs a
    window of eight probes, though: 20 kB at a time would go in 2046 packets of 4 kB, not in 499.
    """
    pair = Pair(1, Faults(delay=0.05), ChannelSettings(congestion=congestion))
    left, right = pair.open()
    before = left.port.statistics()
    for _ in range(200):
        pair.transfer(left, right, [b"x"])
    after = left.port.statistics()
    assert after.window - before.window <= after.bytes_sent - before.bytes_sent < 10_000


def test_the_rate_never_falls_under_what_pings_take() -> None:
    """Or nothing but pings would ever leave on a path that loses nearly everything."""
    settings = ChannelSettings(congestion="tolerant", timeout=10_000, connect_timeout=3600)
    pair = Pair(1, settings=settings)
    left, right = pair.open()
    pair.network.set_faults(Faults(loss=0.9), LEFT, RIGHT)
    pair.network.set_faults(Faults(loss=0.9), RIGHT, LEFT)
    sent = [b"%d" % number + bytes(1000) for number in range(60)]
    assert pair.transfer(left, right, sent, 20_000) == sent


def test_what_is_sent_once_is_no_way_around_the_window() -> None:
    """On a path that loses much: 18 Mbit/s left for a line of 2, 96 % of them in vain."""
    seconds, size = 2, 1100
    pair = Pair(1, Faults(delay=0.02, rate=2e6, queue=1500, loss=0.1))
    left, _ = pair.open()
    before = left.port.statistics().bytes_sent
    for _ in range(100 * seconds):
        for _ in range(20):
            follow(left, bytes(size), pair.now, delivery=Delivery.UNRELIABLE)
        pair.touch(left)
        pair.run(0.01)
    most = LOSSY_PACKETS / 0.1 * seconds * 1200
    assert left.port.statistics().bytes_sent - before < 1.5 * most


@pytest.mark.parametrize("congestion", ["cubic", "newreno", "tolerant"])
def test_what_goes_again_is_not_kept_off_the_line_by_what_is_new(congestion: str) -> None:
    """Where every other packet passed it was the new one each time, and nothing could be read."""
    settings = ChannelSettings(congestion=congestion)
    pair = Pair(1, Faults(delay=0.02, rate=1e6, queue=1500), settings)
    left, right = pair.open()
    came = 0
    for _ in range(40):
        if room := left.port.room_for([1000] * 50):
            left.port.send_many([bytes(1000)] * room)
            pair.touch(left)
        pair.run(0.05)
        came += len(pair.receive(right))
        pair.touch(right)
    assert came > 100, "half of what the line takes in 2 s"


RESEND_TIME = 0.1


def trip(*samples: float) -> RoundTrip:
    measured = RoundTrip()
    for sample in samples:
        measured.sample(sample)
    return measured


CLEAR = trip(*[0.02] * 20)
QUEUED = trip(0.02, *[0.2] * 20)


@each(
    ("measured", "loss", "silent", "size", "number"),
    [
        (RoundTrip(), 0.0, 0.0, 1200, PROBE_PACKETS),
        (CLEAR, LOSSY_SHARE, 0.0, 1200, PROBE_PACKETS),
        (CLEAR, 0.5, 0.0, 1200, LOSSY_PACKETS),
        (CLEAR, 0.5, 0.0, 8972, 3),
        (CLEAR, 0.5, 0.0, 65_507, PROBE_PACKETS),
        (CLEAR, 0.5, 2 * SILENCE, 1200, PROBE_PACKETS),
        (QUEUED, 0.5, 0.0, 1200, 1),
        (QUEUED, 0.0, 0.0, 1200, 1),
    ],
)
def test_how_many_is_a_matter_of_evidence(
    measured: RoundTrip, loss: float, silent: float, size: int, number: int
) -> None:
    allowance = ResendAllowance(RESEND_TIME)
    allowance.acked_at = 10.0
    assert allowance.number(10.0 + silent, measured, loss, size) == number


@pytest.mark.parametrize("probe_timeout", [0.04, 0.5])
def test_so_many_leave_in_a_period(probe_timeout: float) -> None:
    """It is the seed's 0.1 s, or what an ack takes if that is longer."""
    allowance, now, left = ResendAllowance(RESEND_TIME), 0.0, 0
    period = max(RESEND_TIME, probe_timeout)
    while (now := max(now, allowance.ready_at(now, LOSSY_PACKETS, probe_timeout))) < 10 * period:
        allowance.used += 1
        left += 1
    assert left == pytest.approx(10 * LOSSY_PACKETS, abs=PROBE_PACKETS)


def test_what_leaves_anyway_counts_and_leaves_no_debt() -> None:
    allowance = ResendAllowance(RESEND_TIME)
    assert allowance.ready_at(1.0, PROBE_PACKETS, 0.04) == 1.0
    allowance.used += 1000
    assert allowance.ready_at(1.1, PROBE_PACKETS, 0.04) == pytest.approx(1.15)
    assert allowance.ready_at(1.15, PROBE_PACKETS, 0.04) == 1.15


def test_a_probe_has_not_to_wait() -> None:
    allowance = ResendAllowance(RESEND_TIME)
    allowance.used += 1000
    assert allowance.ready_at(0.01, PROBE_PACKETS, 0.04) > 0.01
    allowance.probe(PROBE_PACKETS)
    for _ in range(PROBE_PACKETS):
        assert allowance.ready_at(0.01, PROBE_PACKETS, 0.04) == 0.01
        allowance.used += 1
    assert allowance.ready_at(0.01, PROBE_PACKETS, 0.04) > 0.01


def test_round_trips_that_vary_show_no_queue() -> None:
    assert not RoundTrip().shows_queue
    assert not CLEAR.shows_queue
    assert not trip(*[0.02, 0.04, 0.03, 0.06, 0.03] * 10).shows_queue
    assert QUEUED.shows_queue
