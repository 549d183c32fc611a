"""What is told of packets, messages and estimates."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.instrument import FrameInfo, LostBy, Obstacle
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.talk import follow, send_once
from tests.recorder import Recorder

Lose = Callable[[Pair, Callable[[Address, bytes], bool]], None]


def opened(
    faults: Faults | None = None, right: ChannelSettings | None = None, **changes: Any
) -> tuple[Pair, Connection, Connection, Recorder, Recorder]:
    """A pair with a channel that has come to rest, and what its sides are told from now on."""
    here, there = Recorder(), Recorder()
    settings = ChannelSettings(**changes)
    pair = Pair(1, faults, settings, right, instrument=here, right_instrument=there)
    left, answered = pair.open()
    pair.run(0.5)
    here.told.clear()
    there.told.clear()
    return pair, left, answered, here, there


def send_apart(pair: Pair, connection: Connection, count: int) -> None:
    """Send as many packets of one message each."""
    for number in range(count):
        pair.send(connection, b"%d" % number)
        pair.run(0.0001)


def losing(pair: Pair, lose: Lose, numbers: Sequence[int]) -> None:
    """Lose packets that the left sends from now on, by their number among those."""
    sent = iter(range(10_000))
    lose(pair, lambda source, _: source == LEFT and next(sent) in numbers)


def test_a_packet_is_described_by_what_it_carries() -> None:
    pair, left, _, here, there = opened(lanes=(Lane(), Lane()))
    left.port.send_many([b"abc", b"de"])
    left.port.send_many([b"fghi"], lane=1)
    send_once(left, b"once")
    pair.touch(left)
    pair.run(0.05)
    [packet] = here.last("packet_sent")
    assert packet.frames == (
        FrameInfo("unreliable", 0, 1, 4),
        FrameInfo("messages", 0, 2, 5, message_id=0),
        FrameInfo("messages", 1, 1, 4, message_id=0),
    )
    assert packet.messages == 4
    assert there.last("packet_received") == [packet]
    assert here.last("packet_acked")[-1] == packet.sequence
    assert [(ack.frames, ack.size) for ack in there.last("packet_sent")] == [((), 16)], (
        "header and ack delay"
    )


def test_fragments_and_signs_of_life_are_told_apart() -> None:
    pair, left, _, here, _ = opened(max_datagram=1200)
    pair.send(left, bytes(3000))
    pair.run(6)
    kinds = [[frame.kind for frame in packet.frames] for packet in here.last("packet_sent")]
    assert kinds == [["fragment"], ["fragment"], ["fragment"], ["ping"]]
    sizes = [frame.size for packet in here.last("packet_sent") for frame in packet.frames]
    assert sum(sizes) == 3000


def test_a_packet_that_others_overtake_is_lost_by_packets(lose: Lose) -> None:
    pair, left, _, here, _ = opened(max_datagram=1200)
    losing(pair, lose, [0])
    send_apart(pair, left, 6)
    pair.run(0.5)
    first = here.last("packet_sent")[0].sequence
    assert [event[2:] for event in here.of("packet_lost")] == [(first, LostBy.PACKETS)]
    assert first not in here.last("packet_acked")


def test_a_packet_that_waits_too_long_is_lost_by_time(lose: Lose) -> None:
    pair, left, _, here, _ = opened(max_datagram=1200)
    losing(pair, lose, [1])
    send_apart(pair, left, 3)
    pair.run(0.5)
    second = here.last("packet_sent")[1].sequence
    assert [event[2:] for event in here.of("packet_lost")] == [(second, LostBy.TIME)]


def test_probes_are_counted_until_something_is_acked(lose: Lose) -> None:
    pair, left, _, here, _ = opened()
    losing(pair, lose, [0, 1, 2])
    pair.send(left, b"tail")
    pair.run(2)
    assert here.last("probe_sent") == [1, 2, 3]
    assert here.of("packet_acked")[0][0] > here.of("probe_sent")[-1][0]


def test_a_late_ack_makes_a_loss_spurious() -> None:
    pair, left, _, here, _ = opened(max_datagram=1200)
    pair.network.set_faults(Faults(delay=0.2), LEFT, RIGHT)
    send_apart(pair, left, 1)
    pair.network.set_faults(Faults(delay=0.01), LEFT, RIGHT)
    send_apart(pair, left, 6)
    pair.run(1)
    [sequence] = here.last("packet_lost")
    assert here.last("loss_was_spurious") == [sequence]
    assert here.names.index("loss_was_spurious") > here.names.index("packet_lost")
    place = here.told.index(("loss_was_spurious", here.of("loss_was_spurious")[0]))
    assert here.told[place + 1][0] == "packet_acked"


def test_the_round_trip_is_told_without_the_time_an_ack_was_kept() -> None:
    pair, left, _, here, _ = opened(Faults(delay=0.03))
    pair.send(left, b"x")
    pair.run(0.5)
    [trip] = here.last("round_trip_changed")
    assert trip.latest == pytest.approx(0.06, abs=0.001)
    assert trip.minimum == pytest.approx(0.06, abs=0.001)
    assert trip.smoothed == left.port.statistics().rtt


@pytest.mark.parametrize(
    ("congestion", "states"),
    [
        ("cubic", {"slow_start", "congestion_avoidance"}),
        ("newreno", {"slow_start", "congestion_avoidance"}),
        ("tolerant", {"startup", "drain", "cruise"}),
        ("fixed:1000000", set()),
    ],
)
def test_congestion_control_is_told_with_its_state(congestion: str, states: set[str]) -> None:
    slow = Faults(delay=0.02, rate=4e6, queue=20_000)
    pair, left, right, here, _ = opened(slow, congestion=congestion, max_datagram=1200)
    pair.transfer(left, right, [bytes(1000)] * 250)
    told = here.last("congestion_changed")
    assert {congestion.state for congestion in told} >= states
    assert bool(told) == bool(states), "a fixed rate has nothing to tell after the first word"
    assert all(before != after for before, after in pairwise(told))
    assert all(congestion.in_flight >= 0 and congestion.window >= 2400 for congestion in told)


def test_the_path_mtu_is_told_both_ways() -> None:
    pair, left, right, here, _ = opened(Faults(mtu=4096))
    pair.transfer(left, right, [bytes(60_000)] * 10)
    grown = here.last("path_mtu_changed")
    assert grown[0] > 1200
    assert grown == sorted(grown)
    assert grown[-1] <= 4096
    pair.network.set_default(Faults(mtu=1300))
    pair.transfer(left, right, [bytes(60_000)] * 10)
    assert 1200 in here.last("path_mtu_changed")


def test_messages_queued_together_are_told_together() -> None:
    pair, left, _, here, _ = opened(lanes=(Lane(), Lane()))
    left.port.send_many([b"abc"] * 10)
    left.port.send_many([])
    follow(left, b"de", pair.now)
    follow(left, b"f", pair.now, lane=1, delivery=Delivery.SEQUENCED)
    pair.touch(left)
    assert [event[2:] for event in here.of("messages_queued")] == [
        (0, Delivery.RELIABLE, 11, 32),
        (1, Delivery.SEQUENCED, 1, 1),
    ]
    assert here.names.index("messages_queued") < here.names.index("packet_sent")


def test_what_became_of_messages_is_told() -> None:
    pair, left, _, here, _ = opened(lanes=(Lane(), Lane()))
    left.port.send(b"abcd", Ticket(pair.now, lane=1, size=4), Delivery.RELIABLE)
    pair.touch(left)
    pair.run(0.1)
    pair.network.set_default(Faults(blocked=True))
    follow(left, b"late", pair.now, deadline=0.2 + pair.now)
    pair.touch(left)
    pair.run(0.5)
    follow(left, b"never", pair.now)
    left.abort(pair.now, "enough")
    pair.touch(left)
    settled = here.last("message_settled")
    outcomes = [Outcome.DELIVERED, Outcome.EXPIRED, Outcome.CLOSED]
    assert [message.outcome for message in settled] == outcomes
    assert (settled[0].lane, settled[0].size) == (1, 4)
    assert 0.02 <= settled[0].latency < 0.05
    assert settled[1].latency == pytest.approx(0.2)


def test_a_message_that_is_sent_once_may_be_told_lost(lose: Lose) -> None:
    pair, left, _, here, _ = opened()
    losing(pair, lose, [0])
    send_once(left, b"x")
    pair.touch(left)
    send_apart(pair, left, 6)
    pair.run(0.5)
    assert [message.outcome for message in here.last("message_settled")] == [Outcome.LOST]


def test_credit_is_told_on_both_sides() -> None:
    pair, left, right, here, there = opened(right=ChannelSettings(receive_buffer=8))
    pair.transfer(left, right, [b"x"] * 4)
    pair.touch(right)
    pair.run(0.1)
    told = [event[2:] for event in there.of("credit_sent")]
    assert told[-1] == (12, ChannelSettings().receive_buffer_bytes + 4)
    assert [event[2:] for event in here.of("credit_received")] == told
    frames = [frame for packet in there.last("packet_sent") for frame in packet.frames]
    assert FrameInfo("credit", limits=told[-1]) in frames


def test_both_sides_are_told_the_same_of_a_packet() -> None:
    """Its frames, and what it acks, in full numbers; also when acks come late and out of order."""
    faults = Faults(loss=0.05, delay=0.02, jitter=0.03, duplicate=0.1, reorder=0.3)
    pair, left, right, here, there = opened(faults, first_sequence=65_500)
    sizes = [3000, 10, 40_000, 0] * 5
    assert len(pair.transfer(left, right, [bytes(size) for size in sizes])) == len(sizes)
    pair.run(1)
    sent = {packet.sequence: packet for packet in here.last("packet_sent")}
    received = there.last("packet_received")
    assert len(received) > 100
    assert all(packet == sent[packet.sequence] for packet in received)
    fragments = [part for packet in received for part in packet.frames if part.kind == "fragment"]
    assert {(part.total, part.offset + part.size <= part.total) for part in fragments} == {
        (3000, True),
        (40_000, True),
    }
    acked = {
        sequence
        for packet in here.last("packet_received")
        for first, last in packet.acked
        for sequence in range(first, last + 1)
    }
    assert acked >= set(here.last("packet_acked"))
    earlier = set(range(65_500, min(sent)))
    assert acked <= earlier | {packet.sequence for packet in received}


def blocked(recorder: Recorder) -> list[Obstacle | None]:
    names = {"send_blocked", "send_unblocked"}
    events = [(name, event) for name, event in recorder.told if name in names]
    return [event[2] if name == "send_blocked" else None for name, event in events]


def test_a_reader_that_stops_blocks_by_credit() -> None:
    right = ChannelSettings(receive_buffer=8)
    pair, left, answered, here, _ = opened(right=right, lanes=(Lane(), Lane()))
    left.port.send_many([b"x"] * 10, lane=1)
    pair.touch(left)
    pair.run(1)
    assert blocked(here)[-1] is Obstacle.CREDIT
    assert here.last("send_blocked", 3)[-1] == (1,)
    pair.receive(answered)
    pair.touch(answered)
    pair.run(1)
    assert blocked(here)[-1] is None


def test_a_full_window_blocks_and_an_ack_unblocks() -> None:
    pair, left, right, here, _ = opened(congestion="fixed:1e12", max_window=131_014)
    pair.transfer(left, right, [bytes(1000)] * 200)
    assert blocked(here) == [Obstacle.WINDOW, None]


def test_pacing_blocks_once_for_all_packets_that_wait_their_turn() -> None:
    pair, left, right, here, _ = opened(congestion="fixed:1e5", max_datagram=1200)
    pair.transfer(left, right, [bytes(1000)] * 50)
    assert blocked(here) == [Obstacle.PACING, None]


def test_a_lane_whose_ids_are_used_up_blocks_alone(lose: Lose) -> None:
    right = ChannelSettings(receive_buffer=8)
    pair, left, answered, here, _ = opened(right=right, lanes=(Lane(ordered=False),))
    lose(pair, lambda source, datagram: source == LEFT and b"first" in datagram)
    for payload in [b"first"] + [b"later"] * 8:
        pair.send(left, payload)
        pair.run(0.03)
        pair.receive(answered)
        pair.touch(answered)
    pair.run(0.03)
    assert blocked(here)[-1] is Obstacle.LANE
    assert answered.port.statistics().messages_received == 7


def test_more_packets_than_sequences_can_tell_block(lose: Lose) -> None:
    pair, left, _, here, _ = opened(
        congestion="fixed:1e15", max_datagram=256, base_datagram=256, max_window=2**31
    )
    lose(pair, lambda *_: True)
    left.port.send_many([bytes(5_000_000)])
    pair.touch(left)
    assert blocked(here) == [Obstacle.SEQUENCES]
