"""Verdicts on packets against RFC 9002, and the round trip estimate against RFC 6298."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.loss_detection import LEAST_SPREAD, SMOOTHING, LossDetector, RoundTrip
from sphtp.core.channel.sent_packets import PacketSubset, SentBatch
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.batches import acked, batch_of, sequences, single
from tests.profiles import brisk

FALLBACK, ACK_DELAY = 0.1, 0.01


def send_side(count: int, gap: float = 0.0) -> tuple[LossDetector, list[SentBatch]]:
    recovery = LossDetector(ACK_DELAY, FALLBACK)
    packets = [single(number, number * gap) for number in range(count)]
    for sent in packets:
        recovery.sent(sent)
    return recovery, packets


def ack(
    recovery: LossDetector, now: float, *packets: SentBatch, delay: float | None = 0.0
) -> list[SentBatch]:
    lost = recovery.acked(now, acked(packets), delay)
    assert all(subset.number == subset.batch.number for subset in lost)
    return [subset.batch for subset in lost]


def test_three_packets_later_is_lost() -> None:
    recovery, packets = send_side(6)
    assert ack(recovery, 0.1, packets[2]) == []
    assert ack(recovery, 0.1, packets[3]) == [packets[0]]
    assert ack(recovery, 0.1, packets[5]) == [packets[1]]
    assert [bool(it.lost) for it in packets] == [True, True, False, False, False, False]
    assert recovery.bytes_in_flight == 100


def test_nine_eighths_of_a_round_trip_later_is_lost() -> None:
    recovery, packets = send_side(2, gap=0.01)
    assert ack(recovery, 0.11, packets[1]) == []
    assert recovery.round_trip.latest == pytest.approx(0.1)
    assert recovery.deadline() == pytest.approx(0.1125)
    assert recovery.handle_timeout(0.1124) == ([], [])
    deadline = recovery.deadline()
    assert deadline is not None
    assert recovery.handle_timeout(deadline) == ([PacketSubset(packets[0], 1)], [])
    assert recovery.deadline() is None


def test_on_the_shortest_way_time_has_a_grain() -> None:
    recovery, packets = send_side(2)
    ack(recovery, 0.00001, packets[1])
    assert recovery.deadline() == pytest.approx(0.001)


def test_what_has_no_content_is_asked_for_ever_more_rarely_and_not_given_up() -> None:
    recovery, packets = send_side(3)
    assert recovery.deadline() == pytest.approx(FALLBACK), "the seed's time"
    assert recovery.handle_timeout(0.0999) == ([], [])
    for number, when in enumerate((0.1, 0.3, 0.7, 1.5, 2.3, 3.1), 1):
        deadline = recovery.deadline()
        assert deadline is not None
        assert deadline == pytest.approx(when), "twice as long each, up to eightfold"
        assert recovery.handle_timeout(deadline) == ([], [PacketSubset(packets[0], 1)])
        assert recovery.probes == number
    assert not any(it.lost for it in packets)
    assert recovery.bytes_in_flight == 300


def test_content_is_repeated_at_the_seeds_pace_whatever_goes_unanswered() -> None:
    """Each packet once, the oldest first; the packet that repeats it is repeated in its turn."""
    recovery = LossDetector(ACK_DELAY, FALLBACK, leisure=0.25)
    measured = batch_of(1, 0)
    recovery.sent(measured)
    ack(recovery, 0.02, measured)
    assert recovery.probe_timeout == pytest.approx(0.02 + 4 * 0.01 + ACK_DELAY)
    unrepeated = [batch_of(1, sequence, 1.0) for sequence in range(1, 4)]
    for sent in unrepeated:
        recovery.sent(sent)
    following, due = 4, 1.0 + recovery.probe_timeout
    for _ in range(50):
        deadline = recovery.deadline()
        assert deadline is not None
        assert deadline == pytest.approx(due)
        _, probes = recovery.handle_timeout(deadline, 2)
        assert sequences(probes) == [it.sequence for it in unrepeated[:2]]
        del unrepeated[:2]
        for _ in probes:
            unrepeated.append(batch_of(1, following, deadline))
            recovery.sent(unrepeated[-1])
            following += 1
        # A ping asks as well, and puts nothing off.
        recovery.sent(single(following, deadline + 0.05))
        following, due = following + 1, deadline + FALLBACK


def test_an_idle_channel_pings_at_leisure_but_not_while_content_is_missing() -> None:
    recovery = LossDetector(ACK_DELAY, FALLBACK, leisure=5.0)
    measured, ping = batch_of(1, 0), single(1, 1.0)
    recovery.sent(measured)
    ack(recovery, 0.02, measured)
    recovery.sent(ping)
    assert recovery.deadline() == 1.0 + 5.0
    ack(recovery, 1.02, ping)
    recovery.sent(batch_of(1, 2, 2.0))
    due = 2.0 + recovery.probe_timeout
    assert recovery.deadline() == pytest.approx(due)
    assert recovery.handle_timeout(due)[1], "whose message has expired: a ping leaves instead"
    recovery.sent(single(3, due))
    assert recovery.deadline() == pytest.approx(due + 2 * recovery.probe_timeout)


@pytest.mark.parametrize("round_trip", [0.3, 3.0])
def test_a_long_path_is_not_flooded(round_trip: float) -> None:
    recovery = LossDetector(ACK_DELAY, FALLBACK)
    measured = batch_of(1, 0)
    recovery.sent(measured)
    ack(recovery, round_trip, measured)
    recovery.sent(batch_of(1, 1, 10.0))
    for number in range(1, 5):
        deadline = recovery.deadline()
        assert deadline is not None
        assert deadline == pytest.approx(10.0 + number * recovery.probe_timeout)
        recovery.handle_timeout(deadline)
        recovery.sent(batch_of(1, 1 + number, deadline))


def test_before_a_round_trip_is_known_probes_become_fewer_after_a_second() -> None:
    recovery, now = LossDetector(ACK_DELAY, FALLBACK), 0.0
    recovery.sent(batch_of(1, 0))
    probed = list[float]()
    while now < 5.0:
        deadline = recovery.deadline()
        assert deadline is not None
        now = deadline
        recovery.handle_timeout(now)
        recovery.sent(batch_of(1, 1 + len(probed), now))
        probed.append(now)
    expected = [0.1 * number for number in range(1, 11)] + [1.2, 1.6, 2.4, 3.2, 4.0, 4.8, 5.6]
    assert probed == pytest.approx(expected)


def send_and_lose(
    recovery: LossDetector, start: float, count: int, gap: float
) -> list[PacketSubset]:
    """Lose packets that leave at a pace, as the ack of the last one of four more tells."""
    first = 1 if start else 0
    packets = [batch_of(1, first + number, start + number * gap) for number in range(count + 4)]
    for sent in packets:
        recovery.sent(sent)
    named = packets[-1]
    return recovery.acked(named.sent_at + 0.02, acked([named]), 0.0)


def test_congestion_is_persistent_when_all_of_three_probe_timeouts_is_lost() -> None:
    for count, is_persistent in ((20, True), (5, False)):
        recovery = LossDetector(ACK_DELAY, FALLBACK)
        measured = batch_of(1, 0)
        recovery.sent(measured)
        ack(recovery, 0.02, measured)
        lost = send_and_lose(recovery, 1.0, count, gap=0.02)
        assert len(lost) == count + 3
        assert recovery.is_persistent_congestion(lost) is is_persistent


def test_congestion_is_not_persistent_before_a_round_trip_is_known() -> None:
    recovery = LossDetector(ACK_DELAY, FALLBACK)
    lost = send_and_lose(recovery, 0.0, 100, gap=0.02)
    assert len(lost) == 103
    assert not recovery.is_persistent_congestion(lost)


def test_congestion_is_not_persistent_when_anything_came_in_between() -> None:
    recovery = LossDetector(ACK_DELAY, FALLBACK)
    measured = batch_of(1, 0)
    recovery.sent(measured)
    ack(recovery, 0.02, measured)
    packets = [batch_of(1, 1 + number, 1.0 + 0.02 * number) for number in range(22)]
    for sent in packets:
        recovery.sent(sent)
    lost = recovery.acked(1.5, acked([packets[10], packets[-1]]), None)
    assert len(lost) == 20
    assert not recovery.is_persistent_congestion(lost)


def test_probes_without_number_are_no_number_too_large() -> None:
    recovery, _ = send_side(1)
    for _ in range(3000):
        deadline = recovery.deadline()
        assert deadline is not None
        _, probes = recovery.handle_timeout(deadline)
        assert probes
        after = recovery.deadline()
        assert after is not None
        assert deadline < after <= deadline + 8 * FALLBACK + 1e-6


def test_an_ack_ends_the_probing() -> None:
    recovery, packets = send_side(3)
    recovery.handle_timeout(0.1)
    recovery.handle_timeout(0.31)
    assert recovery.probes == 2
    ack(recovery, 0.35, packets[0])
    assert recovery.probes == 0
    probe_timeout = recovery.round_trip.probe_timeout(ACK_DELAY, FALLBACK)
    assert recovery.deadline() == pytest.approx(0.35 + probe_timeout), "from the ack"


def test_with_an_estimate_the_probe_is_after_that() -> None:
    recovery, packets = send_side(1)
    ack(recovery, 0.2, packets[0], delay=0.0)
    recovery.sent(single(1, 1.0))
    assert recovery.deadline() == pytest.approx(1.0 + 0.2 + 4 * 0.1 + ACK_DELAY)


def test_only_the_ack_that_the_header_names_is_a_sample() -> None:
    recovery, packets = send_side(3)
    ack(recovery, 5.0, packets[0], delay=None)
    assert recovery.round_trip.smoothed is None
    quiet = single(3, eliciting=False)
    ack(recovery, 5.0, quiet, delay=0.0)
    assert recovery.round_trip.smoothed is None


def test_a_path_that_reorders_is_given_more_room() -> None:
    recovery, packets = send_side(100)
    assert ack(recovery, 0.1, packets[5]) == packets[:3]
    assert ack(recovery, 0.1, packets[0]) == [], "it came all the same"
    assert ack(recovery, 0.1, packets[10]) == packets[3:5]
    assert ack(recovery, 0.1, packets[90]) == packets[6:10] + packets[11:85]
    assert ack(recovery, 0.1, packets[20]) == []
    assert ack(recovery, 0.1, packets[99]) == [], "from here on only time tells"


def test_a_late_ack_counts_once() -> None:
    recovery, packets = send_side(5)
    ack(recovery, 0.1, packets[4])
    assert recovery.bytes_in_flight == 200
    ack(recovery, 0.1, packets[0])
    assert recovery.bytes_in_flight == 200


def test_acks_of_mere_acks_say_nothing_of_loss_but_settle_what_is_older() -> None:
    recovery, packets = send_side(2)
    recovery.ratio = 0.5
    assert ack(recovery, 0.1, single(9, eliciting=False)) == packets
    assert recovery.ratio > 0.5
    assert recovery.bytes_in_flight == 0


def test_the_ratio_follows_the_verdicts() -> None:
    recovery, packets = send_side(4000)
    assert recovery.ratio == 0.0
    ack(recovery, 0.1, packets[3])
    assert recovery.ratio == SMOOTHING
    for number in range(4, 4000):
        if number % 4:
            ack(recovery, 0.1, packets[number])
    assert recovery.ratio == pytest.approx(0.25, abs=0.03)


def test_what_was_measured_stays_when_nothing_is_sent_any_more() -> None:
    recovery, packets = send_side(5)
    ack(recovery, 0.1, packets[4])
    recovery.stop()
    assert recovery.round_trip.smoothed == 0.1
    assert (recovery.bytes_in_flight, recovery.deadline()) == (0, None)


@given(
    st.lists(
        st.tuples(st.integers(1, 70), st.booleans(), st.floats(0, 0.2), st.integers(0, 2**70)),
        max_size=60,
    )
)
def test_every_packet_gets_one_verdict_and_the_clock_goes_on(
    script: list[tuple[int, bool, float, int]],
) -> None:
    recovery, now, following = LossDetector(ACK_DELAY, FALLBACK), 0.0, 0
    unacked: list[SentBatch] = []
    for number, is_acked, wait, pick in script:
        sent = batch_of(number, following, now) if number > 1 else single(following, now)
        following += number
        recovery.sent(sent)
        unacked.append(sent)
        now += wait
        lost: list[PacketSubset] = []
        named = unacked[pick % len(unacked)]
        if is_acked and (bits := pick & named.open):
            named.acked |= bits
            lost += recovery.acked(now, [PacketSubset(named, bits)], 0.0)
        waiting = sequences(
            PacketSubset(it, it.open & ~it.repeated) for it in unacked if it.has_content
        )
        more, probes = recovery.handle_timeout(now)
        lost += more
        if more:
            # What is lost is sent again first; a probe is due when it is not.
            waiting = sequences(
                PacketSubset(it, it.open & ~it.repeated) for it in unacked if it.has_content
            )
            _, probes = recovery.handle_timeout(now)
        assert sequences(lost) == sorted(set(sequences(lost)))
        oldest = waiting or unacked_packets(unacked)
        assert not probes or sequences(probes) == oldest[:1]
        unacked = [it for it in unacked if it.open]
        for it in unacked:
            assert it.open == ~(it.acked | it.lost) & (1 << it.number) - 1
        assert recovery.bytes_in_flight == 100 * len(unacked_packets(unacked))
        deadline = recovery.deadline()
        assert (deadline is None) == (not unacked)
        assert deadline is None or deadline > now


def unacked_packets(batches: list[SentBatch]) -> list[int]:
    return sequences(PacketSubset(it, it.open) for it in batches)


@brisk
@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0, 0.2)), min_size=1, max_size=20),
    st.lists(st.tuples(st.sets(st.integers(0, 300), min_size=1), st.floats(0, 0.1)), max_size=12),
)
def test_batches_are_judged_as_the_packets_in_them(
    batches: list[tuple[int, float]], acks: list[tuple[set[int], float]]
) -> None:
    """The same packets, once as they left together and once as if each had left alone."""
    joined, alone = LossDetector(ACK_DELAY, FALLBACK), LossDetector(ACK_DELAY, FALLBACK)
    places: list[tuple[SentBatch, int]] = []
    packets: list[SentBatch] = []
    now = 0.0
    for number, wait in batches:
        together = batch_of(number, len(packets), now)
        joined.sent(together)
        for bit in reversed(range(number)):
            places.append((together, 1 << bit))
            packets.append(batch_of(1, len(packets), now))
            alone.sent(packets[-1])
        now += wait
    for named, wait in acks:
        now += wait
        fresh = sorted(it for it in named if it < len(packets) and not packets[it].acked)
        if not fresh:
            continue
        subsets = list[PacketSubset]()
        for place in fresh:
            together, bit = places[place]
            together.acked |= bit
            if subsets and subsets[-1].batch is together:
                subsets[-1] = PacketSubset(together, subsets[-1].bits | bit)
            else:
                subsets.append(PacketSubset(together, bit))
        lost = joined.acked(now, subsets, 0.0)
        assert sequences(lost) == sequences(
            alone.acked(now, acked(packets[it] for it in fresh), 0.0)
        )
        late, probes = joined.handle_timeout(now, 3)
        expected, ones = alone.handle_timeout(now, 3)
        assert sequences(late) == sequences(expected)
        assert sequences(probes) == sequences(ones)
        assert joined.bytes_in_flight == alone.bytes_in_flight
        assert joined.deadline() == alone.deadline()
        assert joined.ratio == pytest.approx(alone.ratio)


def test_a_lost_tail_is_probed_within_a_few_round_trips() -> None:
    pair = Pair(1, Faults(delay=0.02))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(100)] * 50)
    pair.run(1)
    pair.network.set_faults(Faults(blocked=True), LEFT, RIGHT)
    pair.send(left, b"tail")
    pair.network.set_faults(Faults(delay=0.02), LEFT, RIGHT)
    start = pair.now
    pair.drive(lambda: right.port.readable)
    assert pair.now - start < 5 * 0.04
    assert pair.receive(right) == [b"tail"]


def test_reordering_costs_little_once_it_is_known() -> None:
    settings = ChannelSettings(congestion="fixed:2e6", max_datagram=1200)
    pair = Pair(1, Faults(delay=0.02, jitter=0.005), settings)
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1000)] * 1200)
    pair.run(1)
    figures = left.port.statistics()
    assert figures.lost < figures.sent * 0.1
    assert figures.lost_in_appearance >= figures.lost - 20


def test_after_a_silence_both_ways_a_message_leaves_each_tenth_of_a_second() -> None:
    """Pings do not put it off, and nothing waits for a keepalive."""
    pair = Pair(1, Faults(delay=0.01))
    left, right = pair.open()
    pair.run(1)
    pair.network.set_default(Faults(blocked=True))
    message = b"a message to be found"
    pair.send(left, message)
    blocked_at, sent = pair.now, list[float]()
    send = pair.network.send

    def noting(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        if message in datagram:
            sent.append(now)
        send(now, source, destination, datagram)

    pair.network.send = noting  # type: ignore[method-assign]
    pair.run(5)
    gaps = [after - before for before, after in pairwise([blocked_at, *sent])]
    assert max(gaps) < 0.101
    pair.network.set_default(Faults(delay=0.01))
    pair.run(0.12)
    assert pair.receive(right) == [message]


def test_without_samples_the_seeds_fixed_time_holds() -> None:
    estimate = RoundTrip()
    assert estimate.smoothed is None
    assert estimate.probe_timeout(0.01, FALLBACK) == FALLBACK


def test_the_first_sample_is_taken_whole() -> None:
    estimate = RoundTrip()
    estimate.sample(0.2)
    assert (estimate.smoothed, estimate.deviation) == (0.2, 0.1)


def test_later_samples_are_smoothed() -> None:
    estimate = RoundTrip()
    for elapsed in (0.2, 0.1, 0.3):
        estimate.sample(elapsed)
    # By hand: deviation 0.1 -> 0.1 -> 0.1 + (0.1125 - 0.1) / 4, smoothed 0.2 -> 0.1875 -> ...
    assert estimate.smoothed == pytest.approx(0.1875 + (0.3 - 0.1875) / 8)
    assert estimate.deviation == pytest.approx(0.103125)
    assert (estimate.latest, estimate.minimum) == (0.3, 0.1)


def test_a_steady_round_trip_is_found() -> None:
    estimate = RoundTrip()
    for _ in range(200):
        estimate.sample(0.25)
    assert estimate.smoothed == pytest.approx(0.25)
    assert estimate.deviation == pytest.approx(0, abs=1e-6)
    assert estimate.probe_timeout(0.01, FALLBACK) == pytest.approx(0.26 + LEAST_SPREAD)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_the_estimate_stays_between_the_samples(samples: list[float]) -> None:
    estimate = RoundTrip()
    for elapsed in samples:
        estimate.sample(elapsed)
    assert estimate.smoothed is not None
    assert min(samples) - 1e-9 <= estimate.smoothed <= max(samples) + 1e-9
    assert estimate.probe_timeout(0.01, FALLBACK) >= estimate.smoothed + LEAST_SPREAD


def test_what_the_peer_kept_an_ack_for_is_no_way() -> None:
    estimate = RoundTrip()
    estimate.sample(0.1)
    estimate.sample(0.16, 0.05)
    assert estimate.latest == pytest.approx(0.11)
    assert estimate.minimum == 0.1
    assert estimate.smoothed == pytest.approx(0.1 + 0.01 / 8)


def test_what_the_peer_kept_the_first_ack_for_is_no_way_either() -> None:
    estimate = RoundTrip()
    estimate.sample(5.1, 5.0)
    assert estimate.smoothed == estimate.minimum == pytest.approx(0.1)
    estimate.sample(9.1, 9.0)
    assert estimate.smoothed == pytest.approx(0.1)


def test_a_delay_that_is_not_possible_is_not_believed() -> None:
    estimate = RoundTrip()
    estimate.sample(0.1)
    estimate.sample(0.12, 0.05)
    assert estimate.latest == 0.1
    estimate.sample(0.05, 99.0)
    assert (estimate.latest, estimate.minimum) == (0.05, 0.05)
