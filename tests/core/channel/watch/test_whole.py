"""What is told adds up to what is counted, over all weathers."""

from collections import Counter

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Drop, WatchedChannel
from sphtp.core.channel.message_port import MessagePort
from sphtp.core.channel.receipts import Outcome
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.settings import ChannelSettings, Delivery
from sphtp.core.channel.statistics import ChannelStatistics
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow
from tests.recorder import Recorder
from tests.soaked import soaked

ROUGH = Faults(delay=0.02, jitter=0.02, loss=0.1, duplicate=0.1, reorder=0.1, reorder_delay=0.05)

COUNTED = {
    Drop.DUPLICATE: "duplicates",
    Drop.TOO_OLD: "too_old",
    Drop.TOO_EARLY: "too_early",
    Drop.FOREIGN_ADDRESS: "foreign_address",
    Drop.FORGED_ACK: "forged_acks",
}


def exchange(seed: int) -> tuple[Recorder, ChannelStatistics, Recorder, ChannelStatistics]:
    """Send much both ways through bad weather; return what was told and counted on either side."""
    here, there = Recorder(), Recorder()
    pair = Pair(seed, ROUGH, instrument=here, right_instrument=there)
    left, right = pair.open()
    payloads = [bytes(400)] * 150 + [bytes(100_000)]
    assert len(pair.transfer(left, right, payloads)) == len(payloads)
    for number in range(30):
        follow(right, bytes(50), pair.now, delivery=list(Delivery)[number % 3])
        pair.touch(right)
        pair.run(0.01)
    left.close(pair.now)
    pair.touch(left)
    pair.run(5)
    return here, left.port.statistics(), there, right.port.statistics()


@pytest.mark.parametrize("seed", [*range(2), *soaked(range(2, 40))])
def test_what_is_told_of_an_exchange_adds_up(seed: int) -> None:
    here, left, there, right = exchange(seed)
    check_counters((here, left), (there, right))
    check_fates((here, there), (there, here))
    for recorder in (here, there):
        check_order(recorder)
    check_settled(there)


def check_counters(*sides: tuple[Recorder, ChannelStatistics]) -> None:
    for recorder, counted in sides:
        told = Counter(recorder.names)
        assert told["packet_sent"] == counted.sent
        assert told["packet_lost"] == counted.lost
        assert told["loss_was_spurious"] == counted.lost_in_appearance
        drops = Counter(recorder.last("datagram_dropped", 4))
        for drop, counter in COUNTED.items():
            assert drops[drop] == getattr(counted, counter), drop
        repeats = drops[Drop.DUPLICATE] + drops[Drop.TOO_OLD] + drops[Drop.TOO_EARLY]
        assert told["packet_received"] == counted.received - repeats
        assert sum(packet.size for packet in recorder.last("packet_sent")) == counted.bytes_sent
        assert sum(recorder.last("messages_queued", 4)) == counted.messages_sent
        trips = recorder.last("round_trip_changed")
        assert (trips[-1].smoothed, trips[-1].deviation) == (counted.rtt, counted.rtt_deviation)


def check_fates(*sides: tuple[Recorder, Recorder]) -> None:
    """A packet has one fate, and only one that left has any."""
    for recorder, peer in sides:
        sent = [packet.sequence for packet in recorder.last("packet_sent")]
        assert sent == list(range(len(sent)))
        acked, lost = recorder.last("packet_acked"), recorder.last("packet_lost")
        assert len(set(acked)) == len(acked)
        assert len(set(lost)) == len(lost)
        assert set(lost) & set(acked) == set(recorder.last("loss_was_spurious"))
        received = {packet.sequence: packet for packet in peer.last("packet_received")}
        assert set(acked) <= set(received)
        said = {packet.sequence: packet for packet in recorder.last("packet_sent")}
        assert all(received[sequence].size == said[sequence].size for sequence in received)
        assert all(received[sequence].frames == said[sequence].frames for sequence in received)


def check_order(recorder: Recorder) -> None:
    """Time never goes back, and a channel is one object."""
    times = [event[0] for _, event in recorder.told]
    assert times == sorted(times)
    channels = {event[1] for _, event in recorder.told if type(event[1]) is WatchedChannel}
    assert len(channels) == 1
    assert recorder.names[0] == "channel_opening"
    assert recorder.names.count("channel_closed") == 1


def check_settled(recorder: Recorder) -> None:
    """Every message that is followed is settled once."""
    settled = recorder.last("message_settled")
    assert len(settled) == 30
    assert {message.size for message in settled} == {0}, "nobody told these tickets their size"
    came = [it for it in settled if it.outcome in (Outcome.DELIVERED, Outcome.ARRIVED)]
    assert len(came) >= 10
    assert all(0 < message.latency < 5 for message in settled)


def test_watching_changes_no_packet() -> None:
    """The watched parts only tell: with them one seed gives the same trace as without."""

    def trace(recorder: Recorder | None) -> list[bytes]:
        pair, datagrams = Pair(7, ROUGH, instrument=recorder), list[bytes]()
        send = pair.network.send

        def noting(now: float, source: object, destination: object, datagram: bytes) -> None:
            datagrams.append(datagram)
            send(now, source, destination, datagram)  # type: ignore[arg-type]

        pair.network.send = noting  # type: ignore[method-assign]
        left, right = pair.open()
        pair.transfer(left, right, [bytes(300)] * 200 + [bytes(50_000)])
        left.close(pair.now)
        pair.touch(left)
        pair.run(5)
        return datagrams

    recorder = Recorder()
    assert trace(None) == trace(recorder)
    assert recorder.told


def test_a_channel_that_nobody_watches_is_made_of_the_plain_parts() -> None:
    pair = Pair(1, settings=ChannelSettings())
    left, _ = pair.open()
    assert type(pair.left) is Endpoint
    assert type(left) is Connection
    assert type(left.port) is MessagePort
    assert type(left.port.receive_side) is ReceiveSide
